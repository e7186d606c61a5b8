"""How much a sweep's result depends on hitting the learning rate (DESIGN 7.10)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Sensitivity(NamedTuple):
    """One sweep over learning rates; NaN where it cannot be told."""

    value: float
    """Mean loss given away by a rate drawn evenly on the log scale, nats; 0 = every rate does as well as the best."""

    best_rate: float
    best_loss: float
    failed: int
    """Rates whose loss was not finite or not below the start."""

    n: int
    """Different rates."""


def lr_sensitivity(rate: ArrayLike, loss: ArrayLike, start_loss: float) -> Sensitivity:
    """`S = E_eta[min(loss(eta), loss_0) - loss*]` over the log of the rates, by the trapezoid rule.

    Wortsman et al. 2023, "Small-scale proxies for large-scale Transformer training instabilities". `rate` and `loss`,
    shape (n,), in any order: learning rate (above 0) and final loss of each run, `start_loss` the loss before training.
    A loss that is not finite counts as the start loss; of runs with the same rate (several seeds) the mean counts.
    NaN below two different rates. Raises ValueError for arrays of different shape or a start loss that is not finite.
    """
    rates, losses = np.asarray(rate, dtype=np.float64), np.asarray(loss, dtype=np.float64)
    if rates.shape != losses.shape:
        raise ValueError(f"rate has shape {rates.shape}, loss {losses.shape}: they are not the same runs")
    if not np.isfinite(start_loss):
        raise ValueError(f"start_loss {start_loss} has to be finite")
    kept = np.isfinite(rates) & (rates > 0)
    rates, losses = rates[kept], losses[kept]
    held = np.minimum(np.where(np.isfinite(losses), losses, start_loss), start_loss)
    unique, code, counts = np.unique(rates, return_inverse=True, return_counts=True)
    nan = float("nan")
    if not len(unique):
        return Sensitivity(nan, nan, nan, 0, 0)
    mean = np.bincount(code, weights=held) / counts
    best = int(np.argmin(mean))
    failed = int((mean >= start_loss).sum())
    value = nan
    if len(unique) > 1:
        width = np.diff(np.log(unique))
        above = mean - mean[best]
        value = float(width @ (above[1:] + above[:-1]) / 2 / width.sum())
    return Sensitivity(value, float(unique[best]), float(mean[best]), failed, len(unique))
