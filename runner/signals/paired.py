"""Paired change of the same examples between two moments of a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Change(NamedTuple):
    """How much the losses of a fixed set of examples moved."""

    mean: float
    """Mean of after - before (nats); negative = better. NaN without a pair."""

    se: float
    """Standard error of that mean; NaN below two pairs."""

    learning: bool
    """mean < -2 se: the improvement is more than chance. False where it cannot be told."""

    left_out: int
    """Pairs in which one of the two losses is not finite; mean and se are of the others."""


def paired_change(before: ArrayLike, after: ArrayLike) -> Change:
    """Mean difference of losses, both of shape (m,) in the same order, with its paired standard error.

    D = mean(after_i - before_i), SE = sd / sqrt(m) with m - 1 in the sd; learning iff D < -2 SE (DESIGN 7.11,
    faults-and-statistics 2.9). The difficulty of an example cancels in its own difference, so 64 examples suffice where
    the mean loss of a batch shows nothing. Raises ValueError for arrays of different shape.
    """
    first, second = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"before has shape {first.shape}, after {second.shape}: they are not pairs")
    usable = np.isfinite(first) & np.isfinite(second)
    change = second[usable] - first[usable]
    m = len(change)
    mean = float(change.mean()) if m else float("nan")
    se = float(change.std(ddof=1) / np.sqrt(m)) if m > 1 else float("nan")
    return Change(mean, se, mean < -2 * se, first.size - m)
