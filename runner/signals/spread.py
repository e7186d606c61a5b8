"""Does the noise of a curve grow? Arrays have shape (n,), finite values in the order of the steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runner.signals.trend import noise_of


class Growth(NamedTuple):
    """Noise from point to point, second half against first half (less its start, where the level falls steeply)."""

    before: float
    after: float
    factor: float
    """after / before."""

    relative: float
    """The same after each is divided by its level."""

    z: float
    """log of the larger of the two factors in its standard errors, `sqrt(3 / (4 n))` of a half (DESIGN 7.2)."""


def noise_growth(values: ArrayLike) -> Growth:
    """`Growth` of a curve; NaN for fewer than 40 points."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 40:
        return Growth(*[float("nan")] * 5)
    half = len(x) // 2
    first, second = x[len(x) // 20 : half], x[half:]
    before, after = _noise(first), _noise(second)
    if not (before > 0 and after > 0):
        return Growth(before, after, float("nan"), float("nan"), float("nan"))
    factor = after / before
    levels = abs(float(np.median(second))) / max(abs(float(np.median(first))), 1e-12)
    error = np.sqrt(0.75 * (1 / len(first) + 1 / len(second)))
    relative = factor / levels if levels > 0 else factor
    return Growth(before, after, factor, relative, float(np.log(max(factor, relative)) / error))


def _noise(x: NDArray[np.float64]) -> float:
    """sqrt(mean(d^2) / 2) of the successive differences d, drawn in to 4 robust standard deviations."""
    reach = 4 * np.sqrt(2) * noise_of(x)
    change = np.clip(np.diff(x), -reach, reach)
    return float(np.sqrt(np.mean(change**2) / 2))
