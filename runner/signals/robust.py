"""A z-score that outliers in its own window cannot hide from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

_TO_SD = 1.4826
"""MAD to standard deviation for Gaussian values."""

_RELATIVE_FLOOR = 0.01
_ABSOLUTE_FLOOR = 1e-12


def robust_z(value: float, window: ArrayLike, floor: float = _ABSOLUTE_FLOOR) -> float:
    """`(value - median) / (1.4826 MAD)` of the finite values in `window`; above 0 = above the median.

    The scale is never below 1 % of |median|, nor below `floor` (in the unit of the values): in a converged run the
    window hardly varies, and a change far too small to matter must not read as hundreds of standard deviations. So a
    score of 8 means at least 8 % above the median. For a logarithm, whose median says nothing about its scale, `floor`
    is what counts. A non-finite `value` scores infinity; fewer than two finite values in `window` score 0.
    """
    if not math.isfinite(value):
        return math.inf
    seen = np.asarray(window, dtype=np.float64).ravel()
    seen = seen[np.isfinite(seen)]
    if seen.size < 2:
        return 0.0
    median = float(np.median(seen))
    scale = _TO_SD * float(np.median(np.abs(seen - median)))
    return (value - median) / max(scale, _RELATIVE_FLOOR * abs(median), floor)
