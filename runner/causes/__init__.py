"""The catalogue of causes, torch-free: what each one looks like, what cures it, and how likely the signs make it."""
