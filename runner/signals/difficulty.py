"""How much of the loss curve is only the difficulty of its batches (DESIGN 7.3).

`L_t = f(t) + b c_t + e_t`: `L` is the loss of step t, `c` the frozen start model's loss on the same batch, `f` the
trend of the training. Differences between neighbouring points are nearly free of `f`, so `b` is estimated from those.
All arrays have shape (n,) and are in nats, in the order of the steps; NaN stands for unknown.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def slope(loss: ArrayLike, base: ArrayLike) -> float:
    """`b = sum(dL dc) / sum(dc^2)`, over successive points where both losses are finite.

    NaN for fewer than two such points, or where the start model's loss does not vary.
    """
    change, base_change = _differences(loss, base)
    square = float(base_change @ base_change)
    return float(change @ base_change) / square if square > 0 else float("nan")


def r_squared(loss: ArrayLike, base: ArrayLike) -> float:
    """Share, 0 to 1, of the successive differences of the loss that `slope` explains.

    `1 - sum (dL - b dc)^2 / sum dL^2`, over the points that `slope` uses; NaN where `slope` is NaN or no loss differs.
    """
    change, base_change = _differences(loss, base)
    total = float(change @ change) * float(base_change @ base_change)
    return float(change @ base_change) ** 2 / total if total > 0 else float("nan")


def adjusted(loss: ArrayLike, base: ArrayLike, slope: float, mean: float | None = None) -> NDArray[np.float64]:
    """`L - b (c - mean c)`: the loss as it would be on batches of equal difficulty, shape (n,).

    `mean` is the start model's loss on all rows; None = the mean of the known `base`. NaN where `base` is unknown and
    everywhere if `slope` is NaN; a loss that is not finite stays so.
    """
    values, known = np.asarray(loss, dtype=np.float64), np.asarray(base, dtype=np.float64)
    finite = np.isfinite(known)
    if not finite.any():
        return np.full(values.shape, np.nan)
    centre = float(known[finite].mean()) if mean is None else mean
    return values - slope * (np.where(finite, known, np.nan) - centre)


def _differences(loss: ArrayLike, base: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Successive differences of both, over the points where both are finite."""
    values, known = np.asarray(loss, dtype=np.float64), np.asarray(base, dtype=np.float64)
    both = np.isfinite(values) & np.isfinite(known)
    return np.diff(values[both]), np.diff(known[both])
