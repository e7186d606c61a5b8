"""Gradient noise scale: how many examples a step needs before its gradient is more signal than noise (DESIGN 7.6).

McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", appendix A.1, with micro-batches as the small
batch and the step's whole batch as the large one.
"""

from __future__ import annotations

import math
from typing import Any


def noise_scale(first_square: float, whole_square: float, micro: int, count: int) -> tuple[float, float]:
    """Unbiased (S, |G|^2) of one step; single values are noisy and `|G|^2` may be negative.

    `first_square` is the mean of |g_b|^2 over some micro-batches of `micro` rows (one is enough), `whole_square` is
    |g|^2 of the mean gradient over `count` micro-batches, in the same units (unscaled, before clipping).
    `S = (mean|g_b|^2 - |g|^2) / (1/b - 1/(G b))` estimates the trace of the covariance of one example's gradient,
    `|G|^2 = (G b |g|^2 - b mean|g_b|^2) / (G b - b)` the squared norm of the true gradient.
    (NaN, NaN) for a single micro-batch, which has nothing to be compared with. Raises ValueError for counts below 1.
    """
    if micro < 1 or count < 1:
        raise ValueError(f"micro-batches of {micro} rows, {count} of them: both have to be at least 1")
    if count == 1:
        return float("nan"), float("nan")
    whole = count * micro
    trace = (first_square - whole_square) / (1 / micro - 1 / whole)
    signal = (whole * whole_square - micro * first_square) / (whole - micro)
    return trace, signal


class NoiseScale:
    """`B_simple = S / |G|^2` in examples, online: averages of both over the last steps, the ratio last.

    A ratio of single steps would be biased, since |G|^2 of one step is often near zero.
    """

    def __init__(self, decay: float = 0.95):
        """`decay` is the weight that an average keeps from one step to the next."""
        self.decay = decay
        self._trace = self._signal = self._weight = 0.0

    def update(self, trace: float, signal: float) -> None:
        """Take one step's (S, |G|^2), as `noise_scale` gives them; a step with a non-finite one is passed over."""
        if not (math.isfinite(trace) and math.isfinite(signal)):
            return
        keep, take = self.decay, 1 - self.decay
        self._trace = keep * self._trace + take * trace
        self._signal = keep * self._signal + take * signal
        self._weight = keep * self._weight + take

    @property
    def averages(self) -> tuple[float, float] | None:
        """(S, |G|^2), corrected for the start (Adam's bias correction); None before the first step."""
        return (self._trace / self._weight, self._signal / self._weight) if self._weight > 0 else None

    @property
    def value(self) -> float | None:
        """`B_simple`; None before the first step, and where one of the averages is not above 0 (too few steps yet)."""
        found = self.averages
        return found[0] / found[1] if found is not None and min(found) > 0 else None

    def state(self) -> dict[str, Any]:
        """The averages, for a checkpoint."""
        return {"trace": self._trace, "signal": self._signal, "weight": self._weight}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._trace, self._signal, self._weight = (float(state[k]) for k in ("trace", "signal", "weight"))
