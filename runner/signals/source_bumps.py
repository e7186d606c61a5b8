"""Whether the loss moves slowly because the mixture of the batches does (E8: sorted or unshuffled sources)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runner.signals.whiteness import von_neumann

_DECAYS = (0.05, 0.2)
_FEWEST, _MOST = 12, 60


class SourceBumps(NamedTuple):
    """The slow part of a loss curve against the sources of its batches; NaN where it cannot be told."""

    r_squared: float
    """Share, 0 to 1, of the slow movement beyond the trend that the shares of the sources explain."""

    p: float
    """Chance of such a share if they explain nothing (F test on block means)."""

    effects: dict[str, float]
    """Nats by which a batch of this source alone lies above one of the average mixture."""

    swing: float
    """Standard deviation of the explained movement, nats."""

    order: float
    """Smallest von Neumann ratio among the shares: 2 = well mixed, near 0 = the sources come in blocks."""

    order_z: float
    """The same in standard deviations of a well mixed order; -4 and below is no chance."""

    order_source: str
    """The source it is of."""

    blocks: int


def source_bumps(loss: ArrayLike, tokens: Mapping[str, ArrayLike], blocks: int = _MOST) -> SourceBumps:
    """Regression of the smoothed loss on the token shares of the sources, both without their trend.

    `loss` has shape (n,), the raw curve; `tokens` is {source: supervised tokens of it at each point, shape (n,)}, what
    is not finite counts as 0. Points without a finite loss or without a token are left out. Loss and shares are
    averaged over `blocks` equal stretches (12 to 60, at least 3 points each), a parabola and exponentials of 5 and 20 %
    are taken out of both (Frisch and Waugh 1933), and the rest of the loss is fitted on the rest of the shares. Stretch
    means are independent where points are, so F(k - 1, blocks - 5 - (k - 1)) holds for k sources.
    Low shares of one source can only be told from the others where they vary: `effects` of a mixture that does not move
    are noise. Empty below 2 sources or 36 points. Raises ValueError for arrays of different shape.
    """
    from scipy.special import fdtrc

    values = np.asarray(loss, dtype=np.float64)
    names = list(tokens)
    if any(len(np.asarray(tokens[name])) != len(values) for name in names):
        raise ValueError(
            f"loss has {len(values)} points, the tokens of some source do not: they are not the same points"
        )
    counts = np.array([tokens[name] for name in names], dtype=np.float64).reshape(len(names), len(values))
    counts = np.where(np.isfinite(counts) & (counts > 0), counts, 0.0)
    total = counts.sum(axis=0)
    kept = np.isfinite(values) & (total > 0)
    nan = float("nan")
    used = [i for i in range(len(names)) if counts[i, kept].any()]
    n, k = int(kept.sum()), len(used)
    stretches = min(max(blocks, _FEWEST), _MOST, n // 3)
    if k < 2 or stretches < max(_FEWEST, 5 + 2 * k):
        return SourceBumps(nan, nan, {}, nan, nan, nan, "", 0)
    names = [names[i] for i in used]
    shares = counts[used][:, kept] / total[kept]
    mixed = [von_neumann(share) for share in shares]
    worst = min(range(k), key=lambda i: mixed[i].z if np.isfinite(mixed[i].z) else np.inf)
    edges = np.linspace(0, n, stretches + 1).astype(np.int64)
    slow_loss = _block_means(values[kept], edges)
    slow_shares = np.column_stack([_block_means(share, edges) for share in shares])
    x = (np.arange(stretches) + 0.5) / stretches
    trend = np.column_stack([np.ones_like(x), x, x * x, *(np.exp(-x / tau) for tau in _DECAYS)])
    hat = trend @ np.linalg.pinv(trend)
    y, z = slow_loss - hat @ slow_loss, slow_shares - hat @ slow_shares
    # A mixture that stands still leaves rounding.
    z[np.abs(z) < 1e-9] = 0.0
    # Shares add up to 1: the smallest solution leaves the free level out.
    fit, _, found, _ = np.linalg.lstsq(z, y, rcond=1e-8)
    rank = int(found)
    freedom = stretches - trend.shape[1] - rank
    whole = float(y @ y)
    order, order_z = mixed[worst].ratio, mixed[worst].z
    if rank < 1 or whole <= 0:
        return SourceBumps(nan, nan, {}, nan, order, order_z, names[worst], stretches)
    explained = z @ fit
    share_of = float(explained @ explained) / whole
    level = float(shares.mean(axis=1) @ fit)
    ratio = share_of / rank / max((1 - share_of) / freedom, 1e-300)
    return SourceBumps(
        share_of,
        float(fdtrc(rank, freedom, ratio)),
        {name: float(b) - level for name, b in zip(names, fit, strict=True)},
        float(np.sqrt(np.mean(explained**2))),
        order,
        order_z,
        names[worst],
        stretches,
    )


def _block_means(values: NDArray[np.float64], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(np.add.reduceat(values, edges[:-1]) / np.diff(edges), dtype=np.float64)
