"""Every cause the project can name, by id; preflight and diagnosis share it. The codes are those of a collection of
public reports of fine-tuning gone wrong; one code may have several forms."""

from __future__ import annotations

from runner.causes.catalogue import (
    data,
    kernels,
    labels,
    optimisation,
    precision,
    resources,
    shape,
    trainability,
    trainer,
    weights,
)
from runner.causes.cause import Cause

_FILES = (weights, trainability, optimisation, precision, kernels, labels, data, trainer, shape, resources)

CAUSES: dict[str, Cause] = {c.id: c for file in _FILES for c in file.CAUSES}
"""Causes by id, in the order of their files."""

CODES = tuple(
    f"{room}{n}" for room, count in zip("ABCDEFG", (5, 6, 6, 5, 9, 5, 4), strict=True) for n in range(1, count + 1)
)
"""A1 to G4."""


def cause(id: str) -> Cause:
    """The cause of that id. Raises `KeyError` that names it."""
    return CAUSES[id]


def by_code(code: str) -> tuple[Cause, ...]:
    """The causes of a code of `CODES`, such as B5; none for an unknown code."""
    return tuple(c for c in CAUSES.values() if c.code == code)
