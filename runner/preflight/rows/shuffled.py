"""How well rows are mixed over the steps of an epoch, against what a shuffle gives: pure functions of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Mixing:
    """Groups (labels or sources) in the blocks of one order."""

    correlation: float
    """Intraclass correlation of the rows of a block: about 0 where the order is a shuffle, 1 where each block holds one
    group, below 0 where blocks are more even than a shuffle. NaN where there is only one group or one block."""

    sigmas: float
    """How many standard deviations above a shuffle that is."""

    alone: float
    """Share of blocks that hold one group only."""

    alone_shuffled: float
    """The same share expected of a shuffle."""


def mixing(groups: np.ndarray, block: int) -> Mixing:
    """`groups` are whole numbers from 0 on, in the order of training, shape (rows,); `block` rows are one step.

    Under a shuffle the counts of a block are hypergeometric, so that sum_k (n_k - B p_k)^2 has the expectation
    B (1 - sum_k p_k^2) (N - B) / (N - 1); clustering with intraclass correlation r multiplies it by 1 + (B - 1) r
    (Kish 1965, Survey Sampling, section 5.4). A ragged last block is left out.
    """
    blocks = len(groups) // block
    counts = np.bincount(groups)
    shares = counts / max(1, len(groups))
    spread = 1.0 - float((shares**2).sum())
    if blocks < 2 or block < 2 or spread == 0.0:
        return Mixing(math.nan, 0.0, math.nan, math.nan)
    kinds = len(counts)
    cells = np.arange(blocks * block) // block * kinds + groups[: blocks * block]
    table = np.bincount(cells, minlength=blocks * kinds).reshape(blocks, kinds)
    squares = ((table - block * shares) ** 2).sum(axis=1)
    total = len(groups)
    expected = block * spread * (total - block) / (total - 1)
    ratio = float(squares.mean() / expected)
    # For many blocks the ratio is about chi-square with `free` degrees of freedom per block, divided by them.
    free = spread**2 / _squared_eigenvalues(shares)
    return Mixing(
        correlation=(ratio - 1.0) / (block - 1),
        sigmas=(ratio - 1.0) / math.sqrt(2.0 / (blocks * free)),
        alone=float((table.max(axis=1) == block).mean()),
        alone_shuffled=float(sum(_all_from(int(n), total, block) for n in counts)),
    )


def _squared_eigenvalues(shares: np.ndarray) -> float:
    """Sum of the squared eigenvalues of the covariance of one draw, diag(p) - p p'."""
    square, cube = float((shares**2).sum()), float((shares**3).sum())
    return square - 2.0 * cube + square**2


def _all_from(count: int, total: int, block: int) -> float:
    """Odds that `block` rows drawn without replacement from `total` all come from a group of `count`."""
    if count < block:
        return 0.0
    log = math.lgamma
    ways = log(count + 1) - log(count - block + 1) - log(total + 1) + log(total - block + 1)
    return math.exp(ways)


def repeated(order: np.ndarray, rows: int) -> np.ndarray:
    """Rows that come more than once in `order`, an epoch over `rows` rows."""
    return np.flatnonzero(np.bincount(order, minlength=rows) > 1)
