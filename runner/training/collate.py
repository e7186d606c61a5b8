"""Rows keep their identity on the way to the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

IDENTITY = ("row_id", "source", "length")
"""Columns that travel beside the tensors."""


class CarryIdentity:
    """Wraps a collator: the identity columns pass by it as plain lists, never padded, never moved to a device."""

    def __init__(self, inner: Callable[[list[dict[str, Any]]], dict[str, Any]]):
        self.inner = inner

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The inner collator's batch plus one list per identity column."""
        carried = {key: [row[key] for row in rows] for key in IDENTITY if key in rows[0]}
        batch = self.inner([{k: v for k, v in row.items() if k not in IDENTITY} for row in rows])
        return {**batch, **carried}
