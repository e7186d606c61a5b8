"""Traces of simulated losses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runner.diagnosis.trace import Column, Evaluations, Trace, column
from runner.signals.trend import running_median

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


def cut(full: Trace, share: float) -> Trace:
    """The first `share` of the points, with what was known by then."""
    k = int(share * len(full.step))
    last = int(full.step[k - 1]) if k else -1

    def head(of: Column) -> Column:
        return Column(of.values[:k], of.known[:k])

    def until(of: Evaluations) -> Evaluations:
        kept = of.step <= last
        return Evaluations(of.name, of.step[kept], of.epoch[kept], of.loss[kept])

    return replace(
        full,
        step=full.step[:k],
        epoch=full.epoch[:k],
        loss=head(full.loss),
        grad_norm=head(full.grad_norm),
        learning_rate=head(full.learning_rate),
        evaluations=[e for e in map(until, full.evaluations) if len(e.step)],
        extra={name: head(c) for name, c in full.extra.items()},
        sources={name: head(c) for name, c in full.sources.items()},
        source_tokens={name: head(c) for name, c in full.source_tokens.items()},
        marks={name: [s for s in steps if s <= last] for name, steps in full.marks.items()},
        restarts=[r for r in full.restarts if r.step <= last],
        ended=False,
    )


def shuffled(full: Trace, rng: np.random.Generator) -> Trace | None:
    """Neighbouring points change the parts in which they differ from their running median; None below 20 points.

    What differs (as a ratio) moves by n/10 points at most, and not in the first tenth, so that no steep start ends up
    in the middle: the same run with its rows in another order.
    """
    at = np.flatnonzero(full.loss.finite)
    x = full.loss.values[at]
    n = len(x)
    if n < 20 or x.min() <= 0:
        return None
    middle = running_median(x, max(5, min(31, n // 5)))
    ratio = x / middle
    for first in range(max(5, n // 10), n, max(8, n // 10)):
        part = slice(first, first + max(8, n // 10))
        ratio[part] = rng.permutation(ratio[part])
    values = full.loss.values.copy()
    values[at] = middle * ratio
    return replace(full, loss=Column(values, full.loss.known))
