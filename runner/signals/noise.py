"""How far the logged loss moves because every step sees other rows: predicted before the run (DESIGN 7.1).

Example `i` has `n_i` supervised tokens and summed loss `s_i`; `mu = sum(s) / sum(n)` is the token-mean loss. The loss
of a step is a ratio of two sums over its rows, so to first order (Cochran 1977, Sampling Techniques, chapter 6) it
moves like the mean of `z_i = (s_i - mu n_i) / E[n]`, in nats, which is `n_i (l_i - mu) / E[n]`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def predicted_noise(
    sums: ArrayLike,
    tokens: ArrayLike,
    batch: int,
    window: int = 1,
    population: int | None = None,
    sources: Sequence[str] | None = None,
) -> float:
    """Standard deviation, in nats, of the token-mean loss of `batch` examples, averaged over `window` steps.

    `sums` and `tokens`, shape (n,), describe a sample of the training rows; rows whose sum is not finite are left out,
    rows without a token count with no loss. The square of the result is `(1 - B/N) / (k B) E[n^2 (l - mu)^2] / E[n]^2`.

    `population` is N, the rows of an epoch: batches without replacement move less around the epoch's mean. None leaves
    that factor out, which is what successive differences need (DESIGN 7.2).
    `sources`, one name per example, is for source-stratified batches: the part between sources goes, except for what
    rounding leaves, since a batch holds whole rows (a batch of one row cannot be stratified at all).

    NaN where fewer than two examples or no token is left. Raises ValueError for a batch or window below 1.
    """
    if batch < 1 or window < 1:
        raise ValueError(f"batch {batch} and window {window} have to be at least 1")
    z, kept = _deviations(sums, tokens)
    if len(z) < 2:
        return float("nan")
    rest = 1.0 if population is None else max(1.0 - batch / population, 0.0)
    if sources is None:
        return float(np.sqrt(rest * np.mean(z**2) / (window * batch)))
    shares, means = _by_source(z, np.asarray(sources)[kept])
    within = max(float(np.mean(z**2) - shares @ means**2), 0.0)
    return float(np.sqrt((rest * within / batch + _rounding(shares * batch, means) / batch**2) / window))


def between_sources(sums: ArrayLike, tokens: ArrayLike, sources: Sequence[str]) -> float:
    """Share, 0 to 1, of the sampling variance that lies between sources: what source-stratified batches remove.

    Arguments have shape (n,). It is `sum_s p_s zbar_s^2 / E[z^2]`; where all sources have examples of equal length,
    `zbar_s` is `mu_s - mu`, as DESIGN 7.1 writes it. 0 where nothing varies; NaN where fewer than two examples count.
    """
    z, kept = _deviations(sums, tokens)
    if len(z) < 2:
        return float("nan")
    shares, means = _by_source(z, np.asarray(sources)[kept])
    total = float(np.mean(z**2))
    return float(shares @ means**2) / total if total > 0 else 0.0


def _deviations(sums: ArrayLike, tokens: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """`z` of the examples that count, and which those are; empty where they have no token."""
    s, n = np.asarray(sums, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
    kept = np.isfinite(s) & np.isfinite(n)
    s, n = s[kept], n[kept]
    if n.sum() <= 0:
        return np.zeros(0), np.zeros_like(kept)
    return (s - s.sum() / n.sum() * n) / n.mean(), kept


def _by_source(z: NDArray[np.float64], sources: NDArray[np.str_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(share of the examples, mean of z) of each source, in sorted order."""
    _, code, counts = np.unique(sources, return_inverse=True, return_counts=True)
    return counts / len(z), np.bincount(code, weights=z) / counts


def _rounding(expected: NDArray[np.float64], means: NDArray[np.float64]) -> float:
    """Variance over batches of `sum_s count_s means_s` for a stratified batch that expects `expected` rows per source.

    The sampler gives each source the whole part of its expectation and deals the fractions to consecutive batches: seen
    from one batch, fractions are arcs laid end to end around a circle of length 1, and the batch is one point on it
    (systematic sampling, Madow 1949). The variance is the integral over that point.
    """
    ends = np.cumsum(expected % 1.0)
    starts = np.concatenate([[0.0], ends[:-1]])
    borders = np.unique(np.concatenate([[0.0, 1.0], ends % 1.0]))
    points, lengths = (borders[:-1] + borders[1:]) / 2, np.diff(borders)
    # A point lies in the arc [start, end) when some integer k has start <= point + k < end.
    extra = np.floor(ends[None] - points[:, None]) - np.floor(starts[None] - points[:, None])
    values = (np.floor(expected)[None] + extra) @ means
    mean = float(lengths @ values)
    return float(lengths @ (values - mean) ** 2)
