"""How many bytes a run writes: arithmetic on sizes known before its first step."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

RECORD = 400
"""Bytes of names, offsets and padding around one tensor in a file of weights or of optimizer state; measured."""


@dataclass(frozen=True)
class Writes:
    """Bytes that a run leaves on disk."""

    checkpoint: int
    """One checkpoint."""

    kept: int
    """Checkpoints kept at the end."""

    final: int
    """The final model with its tokenizer."""

    beside: int = 0
    """A snapshot on disk."""

    @property
    def peak(self) -> int:
        """The most that lies on disk at once: an old checkpoint goes after the new one is written."""
        return self.checkpoint * (self.kept + 1 if self.kept else 0) + self.final + self.beside

    @property
    def least(self) -> int:
        """One checkpoint, or where none is kept the final model."""
        return (self.checkpoint if self.kept else self.final) + self.beside


def saves(strategy: str, total_steps: int, steps_per_epoch: int, save_steps: int) -> int:
    """Checkpoints that a run writes: one at every interval, and one at its end."""
    if strategy == "no":
        return 0
    return ceil(total_steps / (steps_per_epoch if strategy == "epoch" else max(save_steps, 1)))


def kept(written: int, limit: int | None) -> int:
    """Checkpoints that stay."""
    return written if limit is None else min(written, max(limit, 1))


def limit_that_fits(writes: Writes, free: int) -> int | None:
    """The largest `checkpoint.save_total_limit` for which everything fits; None where not even 1 does."""
    room = free - writes.final - writes.beside
    fits = room // writes.checkpoint - 1
    return int(fits) if fits >= 1 else None
