"""Does the loss climb, and does it stay up? Arrays have shape (n,), finite values in the order of the steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runner.signals.trend import noise_of


class Rise(NamedTuple):
    """The clearest rise of a curve. Index fields count points; NaN and -1 where the curve is too short."""

    at: int
    """First point of the higher stretch."""

    low: float
    """Level before."""

    high: float
    """Level after."""

    in_sd: float
    """high - low, in standard deviations of the noise from point to point."""

    relative: float
    """high / low - 1."""

    z: float
    """The rise in its own standard errors."""

    unusual: float
    """The rise in robust standard deviations of all such differences in the curve: small where it drifts all the time.
    Infinite below 200 points, where there are too few places to compare with."""

    kept: float
    """Share of the rise that is still there at the end; about 1 = it stayed, 0 = it came back down."""


NO_RISE = Rise(-1, float("nan"), float("nan"), 0.0, 0.0, 0.0, 0.0, 0.0)


def step_up(values: ArrayLike) -> Rise:
    """The largest sudden rise: mean of `m` points against the mean of up to 2 m points just before, m = n/8 (at least
    10) or n/4, whichever shows it better.

    Unlike a comparison with the lowest level so far, this looks at neighbours only, so that a falling trend does not
    hide a rise and chance lows do not make one. Values are drawn in to 4 sd around a median of 5 points first: a
    single spike is no level. Under white noise the largest z over all places is below 3.5 in 99 % of curves.
    """
    x = _drawn_in(np.asarray(values, dtype=np.float64))
    n = len(x)
    found = [_step(x, m) for m in sorted({max(min(10, n // 4), n // 8), n // 4})]
    best = max(found, key=lambda rise: rise.z)
    # The shorter window leaves more places without the step to compare with.
    return best._replace(unusual=max(rise.unusual for rise in found))


def _step(x: NDArray[np.float64], m: int) -> Rise:
    n = len(x)
    if m < 2 or n < 3 * m:
        return NO_RISE
    sums = np.concatenate([[0.0], np.cumsum(x)])
    at = np.arange(m, n - m + 1)
    before = np.minimum(at, 2 * m)
    high, low = (sums[at + m] - sums[at]) / m, (sums[at] - sums[at - before]) / before
    z = (high - low) / np.sqrt(1 / m + 1 / before)
    return _rise(x, sums, int(at[np.argmax(z)]), int(np.argmax(z)), high, low, float(z.max()), m)


def climb(values: ArrayLike) -> Rise:
    """The largest rise at any pace: mean of m points against the lowest mean of m points before them, m as above.

    The lowest of many means is low by chance, so this needs a larger z than `step_up` before it means anything.
    """
    x = _drawn_in(np.asarray(values, dtype=np.float64))
    n = len(x)
    m = max(min(10, n // 3), n // 8)
    if m < 2 or n < 2 * m + 1:
        return NO_RISE
    sums = np.concatenate([[0.0], np.cumsum(x)])
    means = (sums[m:] - sums[:-m]) / m
    lowest = np.minimum.accumulate(means)
    high, low = means[m:], lowest[:-m]
    at = int(np.argmax(high - low))
    return _rise(x, sums, at + m, at, high, low, float((high - low)[at] / np.sqrt(2 / m)), m)


def above_start(values: ArrayLike) -> tuple[float, float]:
    """(log ratio of the level of the last quarter to that of the first 3 points, its standard error).

    The noise of the first points is taken to be, relative to the level, that of the last half. (0, inf) where a level
    is not positive or there are fewer than 6 points.
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 6:
        return 0.0, float("inf")
    start, end = float(np.median(x[:3])), float(np.median(x[-max(3, len(x) // 4) :]))
    late = x[len(x) // 2 :]
    middle = float(np.median(late))
    if min(start, end, middle) <= 0:
        return 0.0, float("inf")
    return float(np.log(end) - np.log(start)), noise_of(late) / middle * 1.1


def _drawn_in(x: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(x) < 5:
        return x
    padded = np.concatenate([x[:2], x, x[-2:]])
    centre = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    reach = 4 * noise_of(x)
    return np.clip(x, centre - reach, centre + reach)


def _rise(
    x: NDArray[np.float64],
    sums: NDArray[np.float64],
    at: int,
    index: int,
    high: NDArray[np.float64],
    low: NDArray[np.float64],
    raw: float,
    m: int,
) -> Rise:
    sd = noise_of(x)
    bottom, top = float(low[index]), float(high[index])
    rise = top - bottom
    if not rise > 0 or not sd > 0:
        return NO_RISE
    end = float(sums[-1] - sums[-1 - m]) / m
    relative = rise / abs(bottom) if bottom else float("inf")
    spread = float(np.quantile(np.abs(high - low), 0.4)) / 0.5244 if len(x) >= 200 else 0.0
    unusual = rise / spread if spread > 0 else float("inf")
    return Rise(at, bottom, top, rise / sd, relative, raw / sd, unusual, (end - bottom) / rise)
