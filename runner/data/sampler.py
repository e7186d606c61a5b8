"""The order of rows in an epoch: a pure function of seed, epoch, sources and lengths.

numpy's generators are used rather than torch's, so that an order does not change with the torch version or the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler

from runner.config.schema.batch import MEGA

KINDS = ("random", "stratified", "length_grouped")


def epoch_order(
    kind: str, seed: int, epoch: int, sources: Sequence[str], lengths: Sequence[int], batch_size: int
) -> list[int]:
    """Row indices of one epoch, each exactly once.

    `sources` and `lengths` (tokens) describe the rows; `batch_size` is the global batch: rows of one optimizer step.
    random: a shuffle. stratified: every block of `batch_size` holds each source in proportion (off by at most about
    one row). length_grouped: rows of similar length together, the longest full batch first, so that running out of
    memory shows at once. Raises ValueError for an unknown kind, unequal lengths or a batch size below 1.
    """
    if kind not in KINDS:
        raise ValueError(f"sampler {kind!r}; known are {', '.join(KINDS)}")
    if len(sources) != len(lengths):
        raise ValueError(f"{len(sources)} sources but {len(lengths)} lengths")
    if batch_size < 1:
        raise ValueError(f"batch_size {batch_size} is below 1")
    rng = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, epoch, KINDS.index(kind)])
    if kind == "stratified":
        order = _stratified(rng, sources, batch_size)
    elif kind == "length_grouped":
        order = _length_grouped(rng, np.asarray(lengths, dtype=np.int64), batch_size)
    else:
        order = rng.permutation(len(lengths))
    return [int(i) for i in order]


def _stratified(rng: np.random.Generator, sources: Sequence[str], batch: int) -> np.ndarray:
    """Shuffle each source, then deal its rows to the blocks by a table of whole numbers near the exact shares."""
    names = sorted(set(sources))
    code = np.searchsorted(np.array(names), np.asarray(sources)) if names else np.zeros(0, dtype=int)
    rows = [rng.permutation(np.flatnonzero(code == s)) for s in range(len(names))]
    counts = _block_counts(np.array([len(r) for r in rows], dtype=np.int64), batch, rng)
    used = np.zeros(len(names), dtype=np.int64)
    blocks = []
    for per_source in counts:
        picked = [rows[s][used[s] : used[s] + n] for s, n in enumerate(per_source)]
        used += per_source
        blocks.append(rng.permutation(np.concatenate(picked)))
    return np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int64)


def _block_counts(sizes: np.ndarray, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of each source in each block, shape (blocks, sources): rows sum to the block sizes, columns to `sizes`.

    A short last block gets the rounded shares first. Of what remains, every full block gets the whole part of its
    share, and the left-over units of each source go to consecutive blocks, one each, as in McNaughton's wrap-around
    rule: so no entry is off by more than one, and all sums come out exactly. Block order is then shuffled.
    """
    total = int(sizes.sum())
    full, rest = divmod(total, batch)
    last = _largest_remainder(sizes * rest / total, rest) if rest else np.zeros_like(sizes)
    left = sizes - last
    counts = np.zeros((full, len(sizes)), dtype=np.int64)
    if full:
        counts += left // full
        at = 0
        for source, units in enumerate(left % full):
            counts[(at + np.arange(units)) % full, source] += 1
            at += int(units)
        counts = counts[rng.permutation(full)]
    return np.vstack([counts, last[None]]) if rest else counts


def _largest_remainder(shares: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers near `shares` that sum to `total`."""
    whole = np.floor(shares).astype(np.int64)
    for s in np.argsort(-(shares - whole), kind="stable")[: total - int(whole.sum())]:
        whole[s] += 1
    return whole


def _length_grouped(rng: np.random.Generator, lengths: np.ndarray, batch: int) -> np.ndarray:
    """Shuffle, sort by length within mega-blocks of 50 batches, shuffle the batches, the longest one to the front."""
    shuffled = rng.permutation(len(lengths))
    mega = MEGA * batch
    parts = [shuffled[i : i + mega] for i in range(0, len(shuffled), mega)]
    ordered = [part[np.argsort(-lengths[part], kind="stable")] for part in parts]
    batches = [part[i : i + batch] for part in ordered for i in range(0, len(part), batch)]
    # A ragged batch anywhere but at the end would shift the borders of all that follow.
    ragged = [batches.pop()] if batches and len(batches[-1]) < batch else []
    if not batches:
        return shuffled if not ragged else ragged[0]
    first = int(np.argmax([lengths[b].max() for b in batches]))
    others = [b for i, b in enumerate(batches) if i != first]
    return np.concatenate([batches[first], *(others[i] for i in rng.permutation(len(others))), *ragged])


class EpochSampler(Sampler[int]):
    """Yields `epoch_order(...)` of the current epoch; resuming in any epoch gives the order a whole run had.

    `set_epoch` is called by accelerate's data loaders at the start of each epoch.
    """

    def __init__(self, kind: str, seed: int, sources: Sequence[str], lengths: Sequence[int], batch_size: int):
        """Arguments as in `epoch_order`; starts at epoch 0."""
        self.kind, self.seed, self.batch_size = kind, seed, batch_size
        self.sources, self.lengths = list(sources), list(lengths)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(epoch_order(self.kind, self.seed, self.epoch, self.sources, self.lengths, self.batch_size))

    def __len__(self) -> int:
        return len(self.lengths)
