"""`clip`: what is done to the gradient before the step. This changes the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Clip:
    """Clipping acts once per optimizer step, on the accumulated gradient, after fp16 unscaling."""

    method: Literal["norm", "value", "zclip", "autoclip", "agc", "adagc", "none"] = "norm"
    """norm, value, zclip, autoclip, agc, adagc or none; each option's file holds its own keys."""

    max_grad_norm: float = 1.0
    """norm: largest global L2 norm. zclip: cap on every norm."""

    clip_value: float = 1.0
    """value: largest absolute value of one gradient element."""

    z_threshold: float = 2.5
    """zclip: standard deviations above the mean at which a norm is an outlier."""

    alpha: float = 0.97
    """zclip: EMA factor of the norm's mean and variance."""

    warmup_steps: int = 25
    """zclip: norms collected before outliers are judged. adagc: steps clipped globally at `lambda_abs`."""

    percentile: float = 10.0
    """autoclip: percentile of all norms so far at which the gradient is clipped."""

    clipping: float = 0.01
    """agc: largest ratio of a unit's gradient norm to its weight norm."""

    agc_eps: float = 1.0e-3
    """agc: smallest weight norm that counts, so that weights at zero can move."""

    lambda_abs: float = 1.0
    """adagc: global norm limit during warmup."""

    lambda_rel: float = 1.05
    """adagc: largest ratio of a tensor's gradient norm to the EMA of its clipped norms."""

    beta: float = 0.98
    """adagc: EMA factor of a tensor's clipped norm."""
