"""Points far above their neighbours. Arrays have shape (n,), finite values in the order of the steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runner.signals.trend import FLOOR, running_median

Array = NDArray[np.float64]

SETTLING = 0.05
"""Share of the run at its start where the level still falls steeply: a point above it there is no spike."""

LOG_Z = 6.0
"""Robust standard deviations of log(value / level) that a spike needs as well."""

LEAST = 0.05
"""Noise, in nats, below which a loss counts as equal: near 0, everything is large relative to it."""


class Spikes(NamedTuple):
    """Indices, z-scores and ratios to the local level, each of shape (k,), in the order of the steps."""

    at: NDArray[np.int64]
    z: NDArray[np.float64]
    ratio: NDArray[np.float64]


def heights(
    values: ArrayLike, width: int = 31, least: float = LEAST
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(z, ratio) of every point, shape (n,): height above its level in local robust standard deviations (`_spread`),
    and value / level.

    The level is the running median around the point or the median of the 9 points before it, whichever is higher.
    `width` is the window of the median in points, cut to a third of n.
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    width = max(5, min(width, n // 3))
    level = running_median(x, width)
    # The few last points are no level of their own: a burst at the very end would hide itself.
    level[n - width // 2 :] = np.median(x[-width:])
    # On a steep fall the centred level lies below the curve: a spike stands out from what came before it as well.
    reference = np.maximum(level, _before(x))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(level > 0, x / reference, np.nan)
    return (x - reference) / _spread(x, level, least), ratio


def _before(x: NDArray[np.float64], width: int = 9) -> NDArray[np.float64]:
    """Median of the `width` points before each one, shape (n,); of those that there are, +inf at the first."""
    out = np.full(len(x), np.inf)
    for i in range(1, min(width, len(x))):
        out[i] = np.median(x[:i])
    if len(x) > width:
        windows = np.lib.stride_tricks.sliding_window_view(x, width)
        out[width:] = np.median(windows[: len(x) - width], axis=1)
    return out


def spikes(values: ArrayLike, z: float, ratio: float, least: float = LEAST) -> Spikes:
    """Points beyond both `z` and `ratio`, after the settling time. Empty for fewer than 9 points."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 9:
        return _among_few(x)
    height, factor = heights(x, least=least)
    # Losses of single rows are skewed: what stands out only on the linear scale is a tail.
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.nan_to_num(np.log(factor), neginf=0.0, posinf=0.0)
    spread = 1.4826 * float(np.median(np.abs(logs - np.median(logs))))
    found = (height >= z) & (np.nan_to_num(factor) >= ratio) & (logs >= LOG_Z * spread)
    found &= np.arange(len(x)) >= max(2, SETTLING * len(x))
    at = np.flatnonzero(found)
    return Spikes(at, height[at], factor[at])


def _among_few(x: NDArray[np.float64]) -> Spikes:
    """Of 5 to 8 points, one in the middle that is 4 times all others, which lie within a factor of 2."""
    nothing = Spikes(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
    if len(x) < 5 or x.min() <= 0:
        return nothing
    at = int(np.argmax(x))
    others = np.delete(x, at)
    level = float(np.median(others))
    if at in (0, len(x) - 1) or others.max() > 2 * others.min() or x[at] < 4 * level:
        return nothing
    height = (x[at] - level) / max(float(others.std()), FLOOR * level)
    return Spikes(np.array([at]), np.array([height]), np.array([x[at] / level]))


def bursts(values: ArrayLike, z: float, width: int = 5, around: int = 9) -> NDArray[np.int64]:
    """First points of the stretches of `width` points whose median lies `z` local standard deviations above the level
    before them and the level after them (medians of `around` points each); shape (k,).

    Noise that is independent from point to point has single high points, hardly ever three in five; a rise that stays
    is high afterwards too, a falling start was high before. At the end of the curve, with fewer than 4 points to
    follow, the level before is all there is.
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    if n < 2 * width + 4:
        return np.zeros(0, dtype=np.int64)
    middle = np.median(np.lib.stride_tricks.sliding_window_view(x, width), axis=1)
    start = np.arange(len(middle))
    before = _before(x, around)[start]
    after = _before(x[::-1], around)[::-1][np.minimum(start + width - 1, n - 1)]
    after = np.where(start + width + 4 > n, before, after)
    spread = _spread(x, running_median(x, max(5, min(31, n // 3))))
    score = (middle - np.maximum(before, after)) / spread[start + width // 2]
    full = np.flatnonzero((score >= z) & (start >= max(2, SETTLING * n)))
    return full[np.flatnonzero(np.diff(full, prepend=-n) >= width)] if len(full) else full


def _spread(x: Array, level: Array, least: float = LEAST) -> Array:
    """Local robust standard deviation of single points, shape (n,), from successive differences over a window of n/8
    to n/2 points (at least half of that of the whole curve): a burst has only two large ones, in and out."""
    n = len(x)
    change = np.abs(np.diff(x, prepend=x[1]))
    middle = float(np.median(change))
    # As in `noise_of`: where steps are of two kinds, the median knows the small ones only.
    wider = max(1.0, float(np.quantile(change, 0.8)) / (1.2816 * 1.4826 * middle)) if middle > 0 else 1.0
    scale = wider * 1.4826 / np.sqrt(2)
    local = scale * running_median(change, max(5, min(max(51, n // 8), n // 4 * 2)))
    whole = 0.5 * scale * middle
    return np.maximum.reduce([local, np.full(n, whole), FLOOR * np.abs(level), np.full(n, least / 8)])
