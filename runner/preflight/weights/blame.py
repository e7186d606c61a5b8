"""Which of file, loader and initialiser a bad tensor comes from: the same tensor, read from the file's bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from runner.preflight.context import Context
from runner.preflight.weights.disk import origin

Culprit = Literal["file", "cast", "loader", "initialiser", "unknown"]
"""cast: the file's value is beyond the number format it was loaded in; unknown: the file cannot be read here."""


@dataclass(frozen=True)
class Fault:
    """Who is at fault for one tensor."""

    culprit: Culprit
    file: str | None = None
    """Name of the file that holds the tensor."""

    why_not: str = ""
    """unknown: why the file was not read."""

    @property
    def sentence(self) -> str:
        """What was compared, and the conclusion."""
        return {
            "file": f"{self.file} holds the same, so the file is at fault",
            "cast": f"{self.file} holds a finite value that this number format cannot",
            "loader": f"{self.file} holds good values, so the loader is at fault",
            "initialiser": "no file holds it, so the initialiser is at fault",
            "unknown": f"not compared with its file ({self.why_not})",
        }[self.culprit]


def blame(c: Context, name: str, dtype: torch.dtype, bad: Callable[[torch.Tensor], bool]) -> Fault:
    """Who is at fault for tensor `name` of the start model, which was loaded in `dtype` and is `bad`."""
    known = origin(c)
    if known.files.why_not:
        missing = name in c.loading.get("missing_keys", ())
        return Fault("initialiser") if missing else Fault("unknown", why_not=known.files.why_not)
    found = known.sources.get(name, [])
    if not found or name in mismatched(c):
        return Fault("initialiser")
    for source in found:
        stored = source.stored.read()
        if bad(stored):
            return Fault("file", source.stored.file.name)
        if bad(stored.to(dtype)):
            return Fault("cast", source.stored.file.name)
    return Fault("loader", found[0].stored.file.name)


def mismatched(c: Context) -> set[str]:
    """Names of tensors that the loader left out because the file's shape differs."""
    return {str(k[0] if isinstance(k, tuple) else k) for k in c.loading.get("mismatched_keys", ())}
