"""Whether one of two paired series varies more: the same batches, two settings (DESIGN 7.11)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class VarianceTest(NamedTuple):
    """Two variances of paired values; NaN where it cannot be told."""

    t: float
    """Above 0: the first series varies more. t distribution with n - 2 degrees of freedom if both vary alike."""

    p: float
    """Two-sided, for Gaussian values."""

    robust_p: float
    """Two-sided, whatever the shape of the values: the one to go by for losses."""

    ratio: float
    """Variance of the first / variance of the second."""

    correlation: float
    """Between the two: the higher, the smaller a difference of variances is found."""

    n: int
    """Pairs."""


def paired_variances(first: ArrayLike, second: ArrayLike) -> VarianceTest:
    """Pitman-Morgan test: `r = corr(x + y, x - y)`, `t = r sqrt((n - 2) / (1 - r^2))` (Pitman 1939, Morgan 1939).

    Both of shape (n,), in the same order, and each pair independent of the next one: residuals, not the curves
    themselves. Pairs in which one is not finite are left out. NaN below 3 pairs or where a series does not vary.
    `p` holds for Gaussian values: of log-normal ones (sigma 0.5, correlation 0.8) that vary alike it calls 25 to 30 %
    different at 5 %. `robust_p` takes the standard error of mean((x + y)(x - y)) from the scatter of that product
    (White 1980), with the same degrees of freedom: 5 % there, and nearly the power of `p` for Gaussian values.
    Raises ValueError for arrays of different shape.
    """
    from scipy.special import stdtr

    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if x.shape != y.shape:
        raise ValueError(f"first has shape {x.shape}, second {y.shape}: they are not pairs")
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    n, nan = len(x), float("nan")
    if n < 3:
        return VarianceTest(nan, nan, nan, nan, nan, n)
    x, y = x - x.mean(), y - y.mean()
    var_x, var_y = float(x @ x), float(y @ y)
    if var_x <= 0 or var_y <= 0:
        return VarianceTest(nan, nan, nan, var_x / var_y if var_y > 0 else nan, nan, n)
    correlation = float(x @ y) / np.sqrt(var_x * var_y)
    # (x + y).(x - y) = var_x - var_y.
    spread = float((x + y) @ (x + y)) * float((x - y) @ (x - y))
    if spread <= 0:
        return VarianceTest(0.0, 1.0, 1.0, var_x / var_y, float(correlation), n)
    r = float(np.clip((var_x - var_y) / np.sqrt(spread), -1.0, 1.0))
    rest = 1 - r * r
    robust = _robust_p(x, y)
    if rest < 1e-15:
        return VarianceTest(float(np.copysign(np.inf, r)), 0.0, robust, var_x / var_y, float(correlation), n)
    t = r * np.sqrt((n - 2) / rest)
    p = float(2 * stdtr(n - 2, -abs(t)))
    return VarianceTest(float(t), p, robust, var_x / var_y, float(correlation), n)


def paired_variances_of_curves(first: ArrayLike, second: ArrayLike) -> VarianceTest:
    """The same test on the noise of two loss curves, shape (n,), point by point on the same batches.

    It takes the differences of points 1-0, 3-2, 5-4, ...: they are free of the trend, and share no point, so that they
    stay independent. A difference with a value that is not finite is left out.
    """
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if x.shape != y.shape:
        raise ValueError(f"first has shape {x.shape}, second {y.shape}: they are not pairs")
    return paired_variances(_halves(x), _halves(y))


def _robust_p(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """p of mean(x^2 - y^2) = 0 against its own scatter; x and y without their means."""
    from scipy.special import stdtr

    product, n = (x + y) * (x - y), len(x)
    spread = float(product.std(ddof=1))
    if spread <= 0:
        return 1.0 if abs(float(product.mean())) <= 0 else 0.0
    return float(2 * stdtr(n - 2, -abs(float(product.mean())) * np.sqrt(n) / spread))


def _halves(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    even = len(curve) // 2 * 2
    usable = np.where(np.isfinite(curve[:even]), curve[:even], np.nan)
    return usable[1::2] - usable[::2]
