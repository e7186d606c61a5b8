"""The level of a curve, and whether it fell. Arrays have shape (n,), finite values in the order of the steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runner.signals.noise_floor import noise_floor

DIRECT = 400_000
"""Elements that the exact running median may look at; longer series go through block medians."""

TWO_KINDS = 1.35
"""How much larger the second estimate of `noise_of` has to be: of 60 Gaussian points it hardly ever is by chance."""

FLOOR = 0.003
"""Least noise, as a share of the level: logs print four digits, and a change below that is none."""


def running_median(values: ArrayLike, width: int) -> NDArray[np.float64]:
    """Median of the `width` (odd, cut to n) points around each point, shape (n,); at the ends of those that there are.

    Above `DIRECT` elements: medians of blocks, a running median of those, linear interpolation between their centres.
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    width = min(width | 1, n if n % 2 else n - 1)
    if width < 3:
        return x.copy()
    half = width // 2
    if n * width <= DIRECT:
        middle = np.median(np.lib.stride_tricks.sliding_window_view(x, width), axis=1)
        first = [np.median(x[: i + half + 1]) for i in range(half)]
        last = [np.median(x[i - half :]) for i in range(n - half, n)]
        return np.concatenate([first, middle, last])
    block = max(1, n // 400)
    count = n // block
    medians = np.median(x[: count * block].reshape(count, block), axis=1)
    centres = (np.arange(count) + 0.5) * block - 0.5
    return np.interp(np.arange(n), centres, running_median(medians, max(3, width // block)))


def noise_of(values: ArrayLike) -> float:
    """Robust standard deviation from point to point, at least `FLOOR` of the level; NaN for fewer than 3 points.

    From successive differences: their MAD, or the 80 % point of their size where that is far larger, each scaled to
    what Gaussian noise would give.
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 3:
        return float("nan")
    found = noise_floor(x)
    sd = found.robust if np.isfinite(found.robust) else found.sd
    # Rows of two sources make two kinds of steps, small and large: the median knows the small ones only.
    wide = float(np.quantile(np.abs(np.diff(x)), 0.8)) / (1.2816 * np.sqrt(2))
    return max(wide if wide > TWO_KINDS * sd else float(sd), FLOOR * abs(float(np.median(x))))


class Fall(NamedTuple):
    """How far a curve came down from its first points to its last ones."""

    first: float
    """Level of the first points."""

    last: float
    fall: float
    """first - last."""

    relative: float
    """fall / |first|."""

    z: float
    """fall in its own standard errors."""

    late: float
    """The same fall, relative, over the second half only: is it still coming down?"""

    late_z: float


def fall(values: ArrayLike) -> Fall:
    """From the first n/20 points to the last n/5, or from the first third to the last, whichever shows it better.

    Levels are medians, their standard errors 1.25 sd / sqrt(points).
    """
    x = np.asarray(values, dtype=np.float64)
    first, last, drop, relative, z = _drop(x)
    late = _drop(x[len(x) // 2 :]) if len(x) >= 12 else (np.nan,) * 5
    return Fall(first, last, drop, relative, z, float(late[3]), float(late[4]))


def _drop(x: NDArray[np.float64]) -> tuple[float, float, float, float, float]:
    n = len(x)
    if n < 4:
        return (float("nan"),) * 5
    m = min(max(3, n // 5), n // 2)
    # Early training falls steeply: its level is that of the first few points, or half the fall is averaged away. A slow
    # fall under much noise is seen only in many points.
    found = []
    for early, late in ((min(m, max(2, n // 20)), m), (max(2, n // 3), max(2, n // 3))):
        first, last = float(np.median(x[:early])), float(np.median(x[-late:]))
        error = noise_of(x) * 1.25 * np.sqrt(1 / early + 1 / late)
        drop = first - last
        share = drop / abs(first) if first else 0.0
        found.append((first, last, drop, share, float(drop / error) if error > 0 else 0.0))
    return max(found, key=lambda f: f[4])
