"""The columns of prepared rows as flat arrays, and sums over the rows of such arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

BLOCK = 1 << 16
"""Tokens looked at in one go: what is made of them then fits into the cache of a processor."""


@dataclass(frozen=True)
class Columns:
    """Rows of `PreparedData.train` or `.validation`; `tokens` and `labels` share memory with the data set."""

    tokens: np.ndarray
    """Token ids of all rows, one after the other, shape (tokens,)."""

    starts: np.ndarray
    """Where each row begins in `tokens`, and where the last one ends, shape (rows + 1,)."""

    labels: np.ndarray
    """sft: shape (tokens,), -100 where there is no loss. classification: class ids, shape (rows,)."""

    ids: Any
    """Row ids, an arrow column."""

    names: list[str]
    """Names of the sources."""

    source: np.ndarray
    """Index into `names`, shape (rows,)."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, shape (rows,)."""
        return np.diff(self.starts)

    def row_ids(self, rows: np.ndarray, most: int = 8) -> tuple[str, ...]:
        """Ids of the first `most` of these rows."""
        return tuple(str(self.ids[int(i)]) for i in rows[:most])

    def blocks(self, tokens: int = BLOCK) -> Iterator[tuple[int, int]]:
        """(first row, row behind the last) of blocks of about `tokens` tokens, at least one row each."""
        first, rows = 0, len(self)
        while first < rows:
            last = int(np.searchsorted(self.starts, self.starts[first] + tokens, side="right")) - 1
            last = max(first + 1, min(last, rows))
            yield first, last
            first = last

    def tokens_of(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and starts of rows `first` to `last` - 1."""
        starts = self.starts[first : last + 1]
        return self.tokens[starts[0] : starts[-1]], starts - starts[0]

    def labels_of(self, first: int, last: int) -> np.ndarray:
        """Labels of the tokens of rows `first` to `last` - 1 (sft)."""
        return self.labels[self.starts[first] : self.starts[last]]


def columns(dataset: datasets.Dataset) -> Columns:
    """The columns of a data set of `PreparedData`."""
    table = dataset.with_format("arrow")[:]
    tokens, starts = _flat(table["input_ids"])
    labels = table["labels"]
    flat = _flat(labels)[0] if pa.types.is_list(labels.type) else labels.to_numpy()
    source = table["source"].combine_chunks().dictionary_encode()
    return Columns(
        tokens=tokens,
        starts=starts,
        labels=flat,
        ids=table["row_id"],
        names=source.dictionary.to_pylist(),
        source=source.indices.to_numpy(),
    )


def _flat(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Values and starts of a column of lists."""
    lists = column.combine_chunks()
    starts = lists.offsets.to_numpy().astype(np.int64)
    values = lists.values.to_numpy(zero_copy_only=False)
    return values[starts[0] : starts[-1]], starts - starts[0]


def row_sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sum of `values` (tokens,) over each row, shape (rows,); 0 for an empty row."""
    totals = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    return totals[starts[1:]] - totals[starts[:-1]]


def row_hashes(values: np.ndarray, starts: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
    """A number per row, equal for equal content (and equal `extra`, shape (rows,)), shape (rows,) int64.

    Differs from process to process; two different rows share one with odds of 2 ** -64.
    """
    rows = [hash(values[a:b].tobytes()) for a, b in pairwise(starts.tolist())]
    if extra is not None:
        rows = [hash((h, e)) for h, e in zip(rows, extra.tolist(), strict=True)]
    return np.asarray(rows, dtype=np.int64)
