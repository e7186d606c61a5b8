"""Does the held-out loss turn up while the training loss goes down?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Turn(NamedTuple):
    """A held-out loss against its own best."""

    best: float
    best_at: int
    """Index of the best."""

    end: float
    """Median of the last evaluations after the best, a quarter of all and at least 2 where there are."""

    relative: float
    """end / best - 1; 0 where the best is the last."""

    noise: float
    """Relative noise from one evaluation to the next: 1.4826 MAD of their differences / sqrt(2) / best; 0 for few."""

    fell: float
    """1 - last / first: how far it came down in all."""


def turn(loss: ArrayLike) -> Turn | None:
    """`Turn` of evaluations in order, shape (m,); non-finite ones are left out, None for fewer than 2 finite ones."""
    x = np.asarray(loss, dtype=np.float64)
    x = x[np.isfinite(x)]
    if len(x) < 2:
        return None
    at = int(np.argmin(x))
    best = float(x[at])
    after = x[at + 1 :]
    tail = after[-max(2, len(x) // 4) :]
    end = float(np.median(tail)) if len(tail) else best
    moves = np.diff(x)
    noise = 1.4826 * float(np.median(np.abs(moves - np.median(moves)))) / np.sqrt(2) if len(x) >= 6 else 0.0
    scale = abs(best) if best else 1.0
    return Turn(best, at, end, (end - best) / scale, noise / scale, float(1 - x[-1] / x[0]) if x[0] else 0.0)
