"""Clipping at a norm that the run itself teaches: ZClip and AutoClip. State is a few plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from runner.config.schema import Clip
from runner.stability.clipping import Clipper

EPS = 1e-6
"""ZClip's epsilon."""


def zclip_threshold(norm: float, mean: float, variance: float, z_threshold: float) -> float | None:
    """The norm that an outlier is scaled to, None where `norm` is none.

    z = (norm - mean) / (sd + 1e-6); above `z_threshold` the target is mean + z_threshold^2 / z * sd: the further
    out, the nearer to the mean (Kumar et al. 2025, ZClip, arXiv 2504.02507, "adaptive scaling").
    """
    deviation = variance**0.5
    z = (norm - mean) / (deviation + EPS)
    return mean + z_threshold * deviation / (z / z_threshold) if z > z_threshold else None


class ZClip(Clipper):
    """clip=zclip: scales down a norm that is unusual for this run, and caps every norm at `max_grad_norm`.

    Mean and variance of the norm start from the first `warmup_steps` norms, then move as EMAs with factor `alpha` over
    what was applied of each norm (its target where it was an outlier), so that an outlier does not widen the band.
    """

    def __init__(self, clip: Clip):
        super().__init__(clip)
        self.first: list[float] = []
        self.mean: float | None = None
        self.variance = 0.0

    def limit(self, norm: Tensor) -> float:
        """The smaller of the outlier's target and the cap."""
        value = float(norm)
        if self.mean is None:
            self.first.append(value)
            if len(self.first) >= self.clip.warmup_steps:
                self.mean, self.variance = float(np.mean(self.first)), float(np.var(self.first))
                self.first = []
            return self.clip.max_grad_norm
        target = zclip_threshold(value, self.mean, self.variance, self.clip.z_threshold)
        seen = value if target is None else target
        alpha = self.clip.alpha
        self.mean = alpha * self.mean + (1 - alpha) * seen
        # The authors' code takes the deviation from the mean after its update.
        self.variance = alpha * self.variance + (1 - alpha) * (seen - self.mean) ** 2
        return min(seen, self.clip.max_grad_norm) if target is not None else self.clip.max_grad_norm

    def state(self) -> dict[str, Any]:
        """Warmup norms, mean, variance."""
        return {"first": list(self.first), "mean": self.mean, "variance": self.variance}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.first, self.mean, self.variance = list(state["first"]), state["mean"], state["variance"]


class AutoClip(Clipper):
    """clip=autoclip: clips at a percentile of all norms so far (Seetharaman et al. 2020, arXiv 2007.14469)."""

    def __init__(self, clip: Clip):
        super().__init__(clip)
        self.history: list[float] = []

    def limit(self, norm: Tensor) -> float:
        """`percentile` of the history, which holds this norm too."""
        self.history.append(float(norm))
        return float(np.percentile(self.history, self.clip.percentile))

    def state(self) -> dict[str, Any]:
        """All norms so far."""
        return {"history": list(self.history)}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.history = list(state["history"])
