"""What differs between the config of a run and the one it is resumed with."""

from __future__ import annotations

from typing import Any

from runner.errors import ConfigError

FIXED = ("task", "model", "dataset", "lora", "batch", "seed", "optim.name")
"""Settings that the checkpoint's weights, optimizer state or data position depend on."""

FREE = ("output_dir", "checks", "checkpoint.resume", "dataset.preview", "dataset.cache", "hub", "name")
"""Settings that change no number; not worth a word."""


def changed(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """{dotted key: (old value, new value)} of the leaves that differ; a key that one side lacks counts as None."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys([*old, *new]):
        name, a, b = f"{prefix}{key}", old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found |= changed(a, b, f"{name}.")
        elif (list(a) if isinstance(a, tuple) else a) != (list(b) if isinstance(b, tuple) else b):
            found[name] = (a, b)
    return found


def below(name: str, keys: tuple[str, ...]) -> bool:
    """Whether `name` is one of `keys` or lies below one."""
    return any(name == key or name.startswith(key + ".") for key in keys)


def check_resumed(old: dict[str, Any], new: dict[str, Any], folder: str) -> list[str]:
    """Sentences about settings that a resumed run changes and may change, e.g. "schedule.max_steps 60 -> 90".

    Raises ConfigError, listing them all, where a setting differs that the checkpoint does not fit.
    """
    differing = {name: pair for name, pair in changed(old, new).items() if not below(name, FREE)}
    fixed = [f"{name} was {a}, is {b}" for name, (a, b) in differing.items() if below(name, FIXED)]
    if fixed:
        raise ConfigError(
            [
                f"checkpoint.resume={folder}: its checkpoint does not fit these settings: {'; '.join(fixed)}. Give the "
                "same overrides as before, or start a new run without checkpoint.resume"
            ]
        )
    return [f"{name} {a} -> {b}" for name, (a, b) in differing.items()]
