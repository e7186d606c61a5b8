"""`clip`: what is done to the gradient before the step. This changes the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Clip:
    """Clipping acts once per optimizer step, on the accumulated gradient, after fp16 unscaling."""

    method: Literal["norm", "value", "none"] = "norm"
    """norm = scale the whole gradient down to `max_grad_norm`; value = clamp each element; none."""

    max_grad_norm: float = 1.0
    """norm: largest global L2 norm."""

    clip_value: float = 1.0
    """value: largest absolute value of one gradient element."""
