"""Which rows of each source are used, and in what order the sources are put together."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from runner.data.report import DataReport
from runner.data.rows import Row
from runner.errors import DataError

T = TypeVar("T")
_MASK = 0xFFFFFFFFFFFFFFFF


def generator(seed: int, *names: str) -> np.random.Generator:
    """A generator that depends on the seed and on names only, so that adding a source never reshuffles another."""
    return np.random.default_rng([seed & _MASK, *(zlib.crc32(name.encode("utf-8")) for name in names)])


def drop_duplicates(
    tables: Mapping[str, list[Row]], report: DataReport, first: str | None = None
) -> dict[str, list[Row]]:
    """Rows without exact duplicates, within and across sources; the earliest stays, all others are counted.

    `first`: a source (the validation one) that is looked at before the others, so that no copy of it is trained on.
    """
    seen: set[str] = set()
    out: dict[str, list[Row]] = {}
    for name in sorted(tables, key=lambda n: n != first):
        kept = []
        for row in tables[name]:
            if row.digest in seen:
                source = report.sources[name]
                source.duplicates += 1
                source.first_duplicate = source.first_duplicate or row.row_id
            else:
                seen.add(row.digest)
                kept.append(row)
        out[name] = kept
    return {name: out[name] for name in tables}


def sample_rows(rows: list[T], limit: int | None, seed: int, name: str) -> list[T]:
    """At most `limit` rows, the first of a seeded shuffle, in their original order (a larger limit keeps these too)."""
    if limit is None or limit >= len(rows):
        return rows
    chosen = generator(seed, "sample", name).permutation(len(rows))[:limit]
    return [rows[i] for i in np.sort(chosen)]


def limit_of(name: str, own: int | None, general: Any) -> int | None:
    """max_samples of a source: its own, else `dataset.max_samples` (a number, or {source: number})."""
    limit = own if own is not None else general.get(name) if isinstance(general, Mapping) else general
    if limit is not None and limit < 1:
        raise DataError(f"max_samples of source {name!r} is {limit}; it must be at least 1, or null for all rows.")
    return limit


def check_limits(general: Any, names: Sequence[str]) -> None:
    """Raises DataError if `dataset.max_samples` is {source: number} and names a source that is not there."""
    unknown = [n for n in general if n not in names] if isinstance(general, Mapping) else []
    if unknown:
        raise DataError(f"dataset.max_samples: {unknown[0]!r} is no source; there are {', '.join(names)}.")


def check_weights(weights: Mapping[str, float] | None, names: Sequence[str]) -> dict[str, float]:
    """Probability of each source; equal if `weights` is None. Raises DataError for names or numbers that do not fit."""
    if weights is None:
        return {name: 1 / len(names) for name in names}
    unknown = [n for n in weights if n not in names]
    missing = [n for n in names if n not in weights]
    if unknown or missing:
        what = f"{unknown[0]!r} is no source" if unknown else f"{missing[0]!r} has no weight"
        raise DataError(f"dataset.weights: {what}; the training sources are {', '.join(names)}.")
    total = float(sum(weights.values()))
    if any(not np.isfinite(w) or w < 0 for w in weights.values()) or total <= 0:
        raise DataError(f"dataset.weights={dict(weights)}: weights are numbers from 0 up, at least one above 0.")
    return {name: weights[name] / total for name in names}


def interleave(sizes: Mapping[str, int], weights: Mapping[str, float], seed: int) -> list[tuple[str, int]]:
    """(source, row) in the order of a weighted draw without replacement that ends when a source is exhausted.

    Rows of a source come in seeded random order, so those left over are a random part of it.
    """
    names = [n for n in sizes if weights[n] > 0]
    orders = {n: generator(seed, "interleave", n).permutation(sizes[n]) for n in names}
    if any(sizes[n] == 0 for n in names):
        return []
    probabilities = np.array([weights[n] for n in names])
    rng = generator(seed, "interleave")
    used = dict.fromkeys(names, 0)
    drawn: list[tuple[str, int]] = []
    while True:
        for pick in rng.choice(len(names), size=1024, p=probabilities / probabilities.sum()):
            name = names[pick]
            drawn.append((name, int(orders[name][used[name]])))
            used[name] += 1
            if used[name] == sizes[name]:
                return drawn
