"""Whether neighbouring residuals know of each other (DESIGN 7.7, faults-and-statistics 2.3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class VonNeumann(NamedTuple):
    """Ratio of the jitter between neighbours to the whole variance; NaN where it cannot be told."""

    ratio: float
    """2 = white; below = slow drift, blocks, a plateau; above = every other point (a 2-cycle)."""

    low: float
    high: float
    """95 % of white series lie between."""

    z: float
    """(ratio - 2) in standard deviations of white noise; about -rho sqrt(n) for a correlation rho of neighbours."""

    n: int
    """Finite residuals."""


def von_neumann(residual: ArrayLike) -> VonNeumann:
    """`VN = sum (e_{t+1} - e_t)^2 / sum (e_t - mean)^2`, white 2 +- 3.92 sqrt((n - 2) / (n^2 - 1)).

    von Neumann 1941; the variance of VN is 4 (n - 2) / (n^2 - 1). `residual` has shape (n,), without its trend. Pairs
    with a value that is not finite are left out; then the denominator is half the sum of squares of both members of the
    pairs that are left, so that both sums are over the same points. NaN below 4 finite residuals, without a pair, or
    where nothing varies.
    """
    e = np.asarray(residual, dtype=np.float64)
    known = np.isfinite(e)
    n = int(known.sum())
    nan = float("nan")
    pairs = known[1:] & known[:-1]
    count = int(pairs.sum())
    if n < 4 or not count:
        return VonNeumann(nan, nan, nan, nan, n)
    e = e - e[known].mean()
    after, before = e[1:][pairs], e[:-1][pairs]
    whole = float(e[known] @ e[known]) if count == n - 1 else float(after @ after + before @ before) / 2
    if whole <= 0:
        return VonNeumann(nan, nan, nan, nan, n)
    ratio = float(np.sum((after - before) ** 2)) / whole
    sd = 2 * float(np.sqrt((count - 1) / (count * (count + 2)))) if count > 1 else 2.0
    return VonNeumann(ratio, 2 - 1.96 * sd, 2 + 1.96 * sd, (ratio - 2) / sd, n)


class LjungBox(NamedTuple):
    """All correlations up to a lag at once; NaN where it cannot be told."""

    q: float
    p: float
    """Chance of such a q in white noise, chi-squared with `lags` degrees of freedom."""

    lags: int


def ljung_box(residual: ArrayLike, lags: int = 8) -> LjungBox:
    """`Q = n (n + 2) sum_k r_k^2 / (n - k)` for k = 1..lags (Ljung and Box 1978).

    `residual` has shape (n,), without its trend. r_k is over the pairs in which both are finite, with as many terms as
    there would be without gaps. `lags` is at most a quarter of the finite residuals; NaN below 8 of them or where
    nothing varies. Raises ValueError for lags below 1.
    """
    from scipy.special import chdtrc

    if lags < 1:
        raise ValueError(f"lags {lags} has to be at least 1")
    e = np.asarray(residual, dtype=np.float64)
    known = np.isfinite(e)
    n = int(known.sum())
    lags = min(lags, n // 4)
    if n < 8:
        return LjungBox(float("nan"), float("nan"), lags)
    centred = np.where(known, e - e[known].mean(), 0.0)
    square = float(centred @ centred)
    if square <= 0:
        return LjungBox(float("nan"), float("nan"), lags)
    q = 0.0
    for k in range(1, lags + 1):
        pairs = int((known[k:] & known[:-k]).sum())
        if pairs:
            # With gaps fewer pairs are left, and the variance of r_k is that of `pairs` of them.
            r = float(centred[k:] @ centred[:-k]) / square
            q += n * n / pairs * r * r * (n + 2) / n
    return LjungBox(q, float(chdtrc(lags, q)), lags)
