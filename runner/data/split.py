"""Hold out a fraction of every source, and of every label in it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from runner.data.mixing import generator
from runner.errors import DataError


def held_out(groups: Sequence[tuple[str, Hashable]], fraction: float, seed: int) -> list[bool]:
    """True for each row that is for validation; `groups` gives (source, label) of each row.

    Every group of n >= 2 rows gives round(fraction * n), at least 1 and at most n - 1; a single row is trained on.
    Raises DataError unless 0 <= fraction < 1.
    """
    if not 0 <= fraction < 1:
        raise DataError(f"dataset.validation.fraction={fraction}: the share held out must be from 0 to below 1.")
    chosen = [False] * len(groups)
    if fraction == 0:
        return chosen
    members: dict[tuple[str, Hashable], list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    for (source, label), rows in members.items():
        n = len(rows)
        if n < 2:
            continue
        count = min(n - 1, max(1, int(fraction * n + 0.5)))
        for k in generator(seed, "validation", source, str(label)).permutation(n)[:count]:
            chosen[rows[k]] = True
    return chosen
