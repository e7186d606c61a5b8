"""`precision`: in which number formats a run computes and stores weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass
class LossScale:
    """fp16 only: the dynamic loss scale."""

    initial_power: int = 16
    """The scale starts at 2 to this power."""

    growth_interval: int = 2000
    """Steps without overflow after which the scale doubles."""


@dataclass
class Precision:
    """Autocast dtype of the computation, dtype of frozen and of trainable weights."""

    compute: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """auto = bf16 on a GPU that has it, else fp32 (fp32 on a CPU, never fp16 by itself)."""

    frozen_weights: Literal["fp32", "bf16", "fp16"] | None = None
    """Dtype of weights that do not train; null = the compute dtype."""

    trainable_weights: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Dtype of weights that train. Below fp32 small updates are rounded away."""

    loss_scale: LossScale = field(default_factory=LossScale)
    """fp16: dynamic loss scale."""
