"""Traces of simulated losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runner.diagnosis.trace import Column, Evaluations, Trace, column

NONE = column([])


def trace(
    loss: NDArray[np.float64] | list[float],
    norms: list[float] | None = None,
    rates: list[float] | None = None,
    epochs: NDArray[np.float64] | None = None,
    evaluations: list[tuple[int, float]] | None = None,
    **more: object,
) -> Trace:
    """A foreign log with one point per step."""
    x = np.asarray(loss, dtype=np.float64)
    n = len(x)
    absent = Column(np.full(n, np.nan), np.zeros(n, dtype=bool))

    def there(values: list[float] | None) -> Column:
        return absent if values is None else Column(np.asarray(values, dtype=np.float64), np.ones(n, dtype=bool))

    held_out = []
    if evaluations:
        steps = np.array([s for s, _ in evaluations], dtype=np.int64)
        held_out = [Evaluations("", steps, np.full(len(steps), np.nan), np.array([x for _, x in evaluations]))]
    made = Trace(
        Path("log.json"),
        "records",
        "transformers",
        np.arange(1, n + 1, dtype=np.int64),
        np.full(n, np.nan) if epochs is None else epochs,
        Column(x, np.ones(n, dtype=bool)),
        there(norms),
        there(rates),
        evaluations=held_out,
        logging_steps=1,
    )
    for key, value in more.items():
        setattr(made, key, value)
    return made


def noise(rng: np.random.Generator, n: int, cv: float, kind: str) -> NDArray[np.float64]:
    """Independent noise with mean 0 and standard deviation 1; log-normal noise has the skew that belongs to `cv`."""
    e = rng.standard_normal(n)
    return e if kind == "gaussian" else (np.exp(cv * e) - np.exp(cv**2 / 2)) / cv


def level(n: int, shape: str) -> NDArray[np.float64]:
    """A loss that falls from 1.5 to 1.15, evenly or fast at first."""
    if shape == "straight":
        return np.linspace(1.5, 1.15, n)
    return 1.15 + 0.35 * np.exp(-np.linspace(0, 5, n))
