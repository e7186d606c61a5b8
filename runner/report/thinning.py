"""Fewer points for a picture, so that nothing a person has to see goes missing. Pure functions on arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Stretch(NamedTuple):
    """Neighbouring points without a finite value."""

    first: int
    """Step of the first one."""

    last: int
    points: int
    word: str
    """NaN, inf, or both."""


def thin_extremes(y: NDArray[np.float64], most: int, keep: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Indices, increasing, of at most `most` of the finite values `y`, shape (n,): of each of equally long buckets the
    lowest and the highest, first and last, and those marked by `keep`, shape (n,), as far as half of `most` allows."""
    n = len(y)
    if n <= most:
        return np.arange(n)
    forced = np.flatnonzero(keep) if keep is not None else np.zeros(0, dtype=np.int64)
    if len(forced) > most // 2:
        forced = forced[np.linspace(0, len(forced) - 1, most // 2).round().astype(np.int64)]
    buckets = max((most - len(forced) - 2) // 2, 1)
    width = -(-n // buckets)
    rest = -n % width

    def places(fill: float) -> NDArray[np.float64]:
        return np.concatenate([y, np.full(rest, fill)]).reshape(-1, width)

    starts = np.arange(0, n, width)
    low, high = starts + places(np.inf).argmin(axis=1), starts + places(-np.inf).argmax(axis=1)
    return np.unique(np.concatenate([[0, n - 1], low, high, forced]).astype(np.int64))


def lost_stretches(
    step: NDArray[np.int64], values: NDArray[np.float64], most: int = 400, apart: bool = False
) -> list[Stretch]:
    """Where `values`, shape (n,), are not finite, neighbours joined; of more than `most` stretches the nearest ones
    are joined too, so that the count of points stays true. `apart` keeps every point its own stretch below `most`."""
    broken = np.flatnonzero(~np.isfinite(values))
    if not len(broken):
        return []
    gaps = np.diff(broken) if not apart else np.full(len(broken) - 1, 2)
    cut = gaps > 1
    if cut.sum() >= most:
        at = np.flatnonzero(cut)
        widest = np.argsort(-np.diff(step[broken])[at], kind="stable")[: most - 1]
        cut = np.zeros_like(cut)
        cut[at[widest]] = True
    ends = np.concatenate([np.flatnonzero(cut), [len(broken) - 1]])
    starts = np.concatenate([[0], ends[:-1] + 1])
    nans = np.concatenate([[0], np.cumsum(np.isnan(values[broken]))])
    found = []
    for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
        n, of_nan = b - a + 1, int(nans[b + 1] - nans[a])
        word = "NaN" if of_nan == n else "inf" if of_nan == 0 else "NaN, inf"
        found.append(Stretch(int(step[broken[a]]), int(step[broken[b]]), n, word))
    return found


def bucket_means(
    x: NDArray[np.int64], y: NDArray[np.float64], most: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(x, y) of at most `most` points: means of y, shape (n,), over equally long buckets, at the last x of each."""
    width = -(-len(y) // most)
    if width <= 1:
        return x, y
    starts = np.arange(0, len(y), width)
    counts = np.diff(np.concatenate([starts, [len(y)]]))
    return x[starts + counts - 1], np.add.reduceat(y, starts) / counts
