"""How much a curve jitters from point to point, and what change could be seen through it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_MAD_TO_SD = 1.4826
_TWO_SIDED_5, _POWER_80 = 1.959964, 0.841621


class NoiseFloor(NamedTuple):
    """Noise of single points; NaN without two finite neighbours."""

    sd: float
    """`sqrt(mean(dL^2) / 2)`, nats: every spike counts."""

    robust: float
    """`1.4826 MAD(dL) / sqrt(2)`, nats: spikes do not count; 0 where a rounded log repeats itself half of the time."""

    level: float
    """Median of the finite values."""

    variation: float
    """sd / |level|, the coefficient of variation; NaN at level 0."""

    robust_variation: float
    """robust / |level|."""

    n: int
    """Pairs of neighbours it rests on."""


def noise_floor(values: ArrayLike) -> NoiseFloor:
    """Noise of a curve of shape (n,) from successive differences, nearly free of its trend (von Neumann 1941).

    Only points next to each other that are both finite count. Noise that depends on its neighbour (a sine, a smoothed
    log) is measured too small: sd x sqrt(1 - rho).
    """
    series = np.asarray(values, dtype=np.float64)
    known = np.isfinite(series)
    pairs = known[1:] & known[:-1]
    change = series[1:][pairs] - series[:-1][pairs]
    nan = float("nan")
    level = float(np.median(series[known])) if known.any() else nan
    if not len(change):
        return NoiseFloor(nan, nan, level, nan, nan, 0)
    sd = float(np.sqrt(np.mean(change**2) / 2))
    robust = _MAD_TO_SD * float(np.median(np.abs(change - np.median(change)))) / np.sqrt(2.0)
    size = abs(level)
    return NoiseFloor(
        sd, float(robust), level, sd / size if size > 0 else nan, float(robust) / size if size > 0 else nan, len(change)
    )


def visible_change(sd: float, before: int, after: int | None = None) -> float:
    """Smallest difference of two means, of `before` and `after` points, that is found in 80 % of runs; unit of `sd`.

    `(1.96 + 0.84) sd sqrt(1 / before + 1 / after)`, two-sided at 5 %; `after` None = as many as before. The points have
    to be independent. Infinite below one point.
    """
    second = before if after is None else after
    if before < 1 or second < 1:
        return float("inf")
    return float((_TWO_SIDED_5 + _POWER_80) * sd * np.sqrt(1 / before + 1 / second))
