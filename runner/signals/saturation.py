"""How often and how hard the gradient was clipped."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

_UNCLIPPED = 1 - 1e-6
"""torch multiplies by max_norm / (norm + 1e-6), held at 1: a little less than 1 is rounding."""


class Saturation(NamedTuple):
    """Clipping over a run."""

    n: int
    """Points with a finite factor."""

    share: float
    """Of them, clipped; NaN without any point."""

    factor: float
    """Median factor of the clipped ones; NaN without any. 0.1 = the gradient was ten times longer than allowed."""

    every: bool
    """Every step was clipped (10 points or more): the clip sets the length of all updates."""

    rolling: NDArray[np.float64]
    """Clipped share of the last `window` points at each point, shape (n of the input,); NaN where none is known."""


def clipping(clip_coef: ArrayLike, window: int = 50) -> Saturation:
    """From the factors that were applied, shape (n,), 1 = not clipped; what is not finite is unknown.

    Raises ValueError for a window below 1.
    """
    if window < 1:
        raise ValueError(f"window {window} has to be at least 1")
    factor = np.asarray(clip_coef, dtype=np.float64)
    known = np.isfinite(factor)
    clipped = known & (np.where(known, factor, 1.0) < _UNCLIPPED)
    n, count = int(known.sum()), int(clipped.sum())
    seen, hit = _window(known, window), _window(clipped, window)
    rolling = np.divide(hit, seen, out=np.full(factor.shape, np.nan), where=seen > 0)
    return Saturation(
        n,
        count / n if n else float("nan"),
        float(np.median(factor[clipped])) if count else float("nan"),
        n >= 10 and count == n,
        rolling,
    )


def clipping_by_norm(grad_norm: ArrayLike, max_grad_norm: float | None, window: int = 50) -> Saturation:
    """The same from norms before clipping: factor `min(1, max_grad_norm / norm)`.

    No clip (None or 0) gives factors of 1. Only right where the norm was logged before clipping, as transformers does;
    norms that are not finite are unknown.
    """
    norm = np.asarray(grad_norm, dtype=np.float64)
    if not max_grad_norm:
        return clipping(np.where(np.isfinite(norm), 1.0, np.nan), window)
    return clipping(np.where(np.isfinite(norm), max_grad_norm / np.maximum(norm, max_grad_norm), np.nan), window)


def logged_after_clipping(grad_norm: ArrayLike, max_grad_norm: float) -> bool:
    """Whether the norms look like norms after clipping: none above the clip and most of them exactly at it.

    Within 1e-3 of it (logs round), at least 10 finite norms, at least half of them there. Then `clipping_by_norm` says
    nothing. A norm that does not move at all beside a loss of 0 is a hidden NaN instead (`hidden_nan.constant_norm`).
    """
    norm = np.asarray(grad_norm, dtype=np.float64)
    norm = norm[np.isfinite(norm)]
    if len(norm) < 10 or max_grad_norm <= 0:
        return False
    near = np.abs(norm / max_grad_norm - 1) < 1e-3
    return bool((norm <= max_grad_norm * (1 + 1e-3)).all() and near.mean() >= 0.5)


def _window(flags: NDArray[np.bool_], window: int) -> NDArray[np.float64]:
    total = np.concatenate([[0], np.cumsum(flags)])
    end = np.arange(1, len(flags) + 1)
    return np.asarray(total[end] - total[np.maximum(end - window, 0)], dtype=np.float64)
