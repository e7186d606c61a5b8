"""Noise ratio: how much the loss moves from point to point, against what sampling alone explains (DESIGN 7.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MAD_TO_SD = 1.4826
_MOST_BLOCKS = 2000
"""Blocks a resample draws: 400 resamples of 100,000 points would take seconds otherwise."""


class Kappa(NamedTuple):
    """Measured variance between neighbouring points / predicted variance; NaN where it cannot be told."""

    value: float
    """1 = sampling explains it all; roughly 0.6 to 1.5 when benign."""

    low: float
    high: float
    """90 % interval."""

    robust: float
    """The same from the median absolute difference: free of single spikes, and below `value` for skewed losses."""

    sd: float
    """Measured standard deviation of a point, nats."""

    n: int
    """Pairs of neighbouring points it rests on."""

    expected_sd: float
    """sd of log kappa for these points, sqrt((3 + g) / n) with their own kurtosis (`log_kappa_sd`)."""


def kappa(
    loss: ArrayLike,
    sd_independent: float,
    window: int = 1,
    seed: int = 0,
    resamples: int = 400,
    block: int | None = None,
) -> Kappa:
    """`sum (L_{t+1} - L_t)^2 / (2 (n - 1)) / sigma^2` over neighbouring points that are both finite, with its interval.

    `loss` has shape (n,), nats. `sd_independent` is `predicted_noise` of one step without the factor 1 - B/N (that
    factor cancels in differences; with it kappa is biased to 1.08 .. 1.19); `window` steps are averaged in each point,
    sigma^2 = sd_independent^2 / window.

    Interval: moving-block bootstrap (Kunsch 1989) of the squared differences, which depend on their neighbours; blocks
    of `block` differences (None: n^(1/3), more where there would be over 2,000). The lower end is the 5 % quantile, the
    upper the larger of the 95 % quantile and its mirror value^2 / lower end, since a resample cannot draw a tail that
    the sample has not shown. Simulated: the lower end lies above the truth in 5 % of draws or fewer, from 30 points on
    and up to log-normal losses of sigma 0.8; the upper below it in 5 to 10 % (Gaussian), 17 % (sigma 0.5, 60 points).
    The prediction's own error is not in it. The result depends on `seed` only through resampling.
    """
    change = _changes(loss)
    n, nan = len(change), float("nan")
    if not n:
        return Kappa(nan, nan, nan, nan, nan, 0, nan)
    squares = change**2 / 2
    measured = float(squares.mean())
    sd = float(np.sqrt(measured))
    if not (np.isfinite(sd_independent) and sd_independent > 0) or window < 1:
        return Kappa(nan, nan, nan, nan, sd, n, nan)
    predicted = sd_independent**2 / window
    robust = (_MAD_TO_SD * float(np.median(np.abs(change - np.median(change))))) ** 2 / 2
    value = measured / predicted
    low, high = nan, nan
    if n >= 4 and measured > 0:
        drawn = _bootstrap(squares, block, seed, resamples) / predicted
        low, upper = (float(q) for q in np.quantile(drawn, [0.05, 0.95]))
        high = max(upper, value**2 / low) if low > 0 else upper
    return Kappa(value, low, high, robust / predicted, sd, n, log_kappa_sd(change, n))


def log_kappa_sd(change: ArrayLike, n: int) -> float:
    """`sqrt((3 + g) / n)`, n pairs, g the excess kurtosis of the losses, estimated from their differences (DESIGN 7.2).

    The kurtosis of a difference of two independent values is half that of one. NaN where nothing varies.
    """
    d = np.asarray(change, dtype=np.float64)
    square = float(np.mean(d**2)) if len(d) else 0.0
    if square <= 0 or n < 1:
        return float("nan")
    excess = 2 * (float(np.mean(d**4)) / square**2 - 3)
    return float(np.sqrt(max(3 + excess, 1.0) / n))


def _changes(loss: ArrayLike) -> NDArray[np.float64]:
    """Differences of points next to each other, where both are finite."""
    values = np.asarray(loss, dtype=np.float64)
    known = np.isfinite(values)
    pairs = known[1:] & known[:-1]
    return values[1:][pairs] - values[:-1][pairs]


def _bootstrap(squares: NDArray[np.float64], block: int | None, seed: int, resamples: int) -> NDArray[np.float64]:
    """Means of `resamples` series of blocks drawn with replacement, shape (resamples,)."""
    n = len(squares)
    length = block if block is not None else max(2, round(n ** (1 / 3)), -(-n // _MOST_BLOCKS))
    length = min(max(length, 1), n)
    total = np.concatenate([[0.0], np.cumsum(squares)])
    sums = total[length:] - total[:-length]
    drawn = np.random.default_rng(seed).integers(0, len(sums), (resamples, -(-n // length)))
    return np.asarray(sums[drawn].mean(axis=1) / length, dtype=np.float64)
