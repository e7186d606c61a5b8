"""Smoothing of a loss curve for the eye."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def ema(values: ArrayLike, half_life: float) -> NDArray[np.float64]:
    """Exponential moving average, shape (n,), corrected for its start; non-finite values are passed over.

    `half_life` is in points. Where no finite value has come yet the result is NaN. The weight of a point falls by half
    every `half_life` points; the correction divides by the sum of weights seen (Adam's bias correction).
    """
    series = np.asarray(values, dtype=np.float64)
    decay = 0.5 ** (1.0 / half_life)
    out = np.full(series.shape, np.nan)
    total = weight = 0.0
    for i, x in enumerate(series):
        total *= decay
        weight *= decay
        if np.isfinite(x):
            total += (1 - decay) * x
            weight += 1 - decay
        if weight > 0:
            out[i] = total / weight
    return out


def thin(n: int, most: int) -> NDArray[np.int64]:
    """Indices of at most `most` of `n` points, evenly spaced, first and last included."""
    if n <= most:
        return np.arange(n)
    return np.unique(np.linspace(0, n - 1, most).round().astype(np.int64))
