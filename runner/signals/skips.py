"""Steps that made no update, and the loss scale behind them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

START_UP = 10
"""A dynamic loss scale starts at 2^16 and finds its size within so many steps: skips there are normal."""


class Skips(NamedTuple):
    """Skipped steps of a run."""

    total: int
    share: float
    """Of all points; 0 without any point."""

    longest: int
    """Longest row."""

    first: int | None
    """Index."""

    last: int | None
    later: int
    """Skips after the first 10 points."""

    later_share: float
    """Of the points after the first 10."""

    start_up_only: bool
    """There are skips, all within the first 10 points, and not the whole run: the search for the loss scale."""


def skips(skipped: ArrayLike) -> Skips:
    """Measures of a mask of shape (n,), true where a step was skipped."""
    mask = np.asarray(skipped, dtype=bool)
    n, at = len(mask), np.flatnonzero(mask)
    later = int((at >= START_UP).sum())
    if not len(at):
        return Skips(0, 0.0, 0, None, None, 0, 0.0, False)
    edges = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    longest = int((np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)).max())
    rest = max(n - START_UP, 0)
    return Skips(
        len(at),
        len(at) / n,
        longest,
        int(at[0]),
        int(at[-1]),
        later,
        later / rest if rest else 0.0,
        later == 0 and len(at) < n,
    )


class LossScale(NamedTuple):
    """A loss-scale trace; NaN without a finite value."""

    first: float
    last: float
    smallest: float
    halvings: int
    """Times it fell by half or more, from one known point to the next."""

    later_halvings: int
    """Those after the first 10 points."""

    doublings: int
    """Times it rose to twice or more."""

    at_minimum: float
    """Share of the known points at the minimum or below."""

    exhausted: bool
    """It ends at the minimum or below: nothing is left to lower, every further overflow is lost."""


def loss_scale(scale: ArrayLike, minimum: float = 1.0) -> LossScale:
    """Measures of a loss scale of shape (n,); values that are not finite are unknown.

    `minimum` is where the scaler stops (DeepSpeed: 1; torch's GradScaler goes on below, and a scale below 1 makes
    gradients smaller, so that 1 is where it has failed as well). A scale of 1 from the first point on is no dynamic
    scale (bf16, fp32): it is not exhausted.
    """
    series = np.asarray(scale, dtype=np.float64)
    at = np.flatnonzero(np.isfinite(series))
    nan = float("nan")
    if not len(at):
        return LossScale(nan, nan, nan, 0, 0, 0, 0.0, False)
    known = series[at]
    down, up = known[1:] <= known[:-1] / 2, known[1:] >= known[:-1] * 2
    # 0 is half of 0, and twice.
    moved = known[1:] != known[:-1]
    down, up = down & moved, up & moved
    low = known <= minimum
    constant = bool((known == known[0]).all())
    return LossScale(
        float(known[0]),
        float(known[-1]),
        float(known.min()),
        int(down.sum()),
        int((down & (at[1:] >= START_UP)).sum()),
        int(up.sum()),
        float(low.mean()),
        bool(low[-1]) and not constant,
    )
