"""Steps at the ends of epochs: the rows are known the second time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from runner.signals.trend import noise_of


class Staircase(NamedTuple):
    """Drops at epoch boundaries against the slope inside the epochs."""

    boundaries: int
    """Boundaries with enough points on both sides."""

    drop: float
    """Median drop over a boundary beyond what the slope inside epochs explains, as a share of the level before."""

    z: float
    """Sum of the drops in its standard errors."""

    falling: int
    """Boundaries at which the loss dropped."""

    kept: float
    """Fall from the first epoch to the last / sum of all drops: about 1 for stairs; near 0 for a curve that climbs up
    again inside every epoch."""


def staircase(loss: ArrayLike, epoch: ArrayLike, least: int = 3) -> Staircase | None:
    """Compares the mean of the points just before each whole epoch with that of those just after it.

    `loss` and `epoch` have shape (n,); epoch counts from 0 and may be rounded. Each side has a third of an epoch's
    points, at least `least`. None without a boundary that has them (fewer than two epochs, or too few points).
    """
    x, e = np.asarray(loss, dtype=np.float64), np.asarray(epoch, dtype=np.float64)
    kept = np.isfinite(x) & np.isfinite(e)
    x, e = x[kept], e[kept]
    if len(x) < 4 * least or e.max() - e.min() < 1.2 or e.max() > len(x) / least:
        return None
    per_epoch = len(x) / max(e.max() - e.min(), 1e-9)
    m = int(max(least, per_epoch // 3))
    sd = noise_of(x)
    drops, levels = [], []
    for border in range(1, int(np.floor(e.max() - 1e-9)) + 1):
        after = int(np.searchsorted(e, border, side="right"))
        if after < m or after + m > len(x):
            continue
        before, behind = x[after - m : after], x[after : after + m]
        # What the slope inside the epochs would have done anyway over m points.
        slopes = [np.polyfit(np.arange(m), part, 1)[0] if m > 2 else 0.0 for part in (before, behind)]
        drops.append(float(before.mean() - behind.mean() + np.median(slopes) * m))
        levels.append(abs(float(before.mean())))
    if not drops:
        return None
    error = sd * np.sqrt(2 / m) * np.sqrt(len(drops)) * 1.5
    relative = float(np.median(np.array(drops) / np.maximum(levels, 1e-12)))
    z = float(np.sum(drops) / error) if error > 0 else 0.0
    m = int(max(least, min(per_epoch, len(x) // 3)))
    total = float(np.sum(drops))
    lasting = float(x[:m].mean() - x[-m:].mean()) / total if total > 0 else 0.0
    return Staircase(len(drops), relative, z, int(np.sum(np.array(drops) > 0)), lasting)


def ramp_share(residual: ArrayLike, epoch: ArrayLike, bins: int = 12) -> float:
    """Share, 0 to 1, of what a residual does within an epoch that is a straight ramp; NaN where it cannot be told.

    Stairs less a smooth trend climb evenly through every epoch and drop at its end: 1. A sine has 6 / pi^2 = 0.61 at
    most, in the phase that is most like it. `residual` and `epoch` have shape (n,); the mean of each of up to `bins`
    parts of the epoch is what counts, less the variance that noise gives such means.
    """
    x, e = np.asarray(residual, dtype=np.float64), np.asarray(epoch, dtype=np.float64)
    kept = np.isfinite(x) & np.isfinite(e)
    x, e = x[kept], e[kept]
    if len(x) < 24:
        return float("nan")
    per_epoch = len(x) / max(float(e.max() - e.min()), 1e-9)
    bins = int(min(bins, per_epoch // 2, len(x) // 4))
    if bins < 4:
        return float("nan")
    part = np.minimum((np.mod(e, 1.0) * bins).astype(int), bins - 1)
    counts = np.bincount(part, minlength=bins)
    if counts.min() < 2:
        return float("nan")
    means = np.bincount(part, weights=x, minlength=bins) / counts
    within = float(np.mean((x - means[part]) ** 2))
    phase = np.arange(bins) - (bins - 1) / 2
    deviation = means - means.mean()
    slope = float(phase @ deviation / (phase @ phase))
    noise = within * float(np.mean(1 / counts))
    total = float(np.mean(deviation**2)) - noise
    ramp = slope**2 * float(np.mean(phase**2))
    return float(min(max(ramp, 0.0) / total, 1.0)) if total > 0 and slope > 0 else 0.0
