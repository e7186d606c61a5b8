"""Every formula as a pure numpy function; guards online and diagnosis afterwards use the same ones."""
