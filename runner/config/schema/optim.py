"""`optim`: the update rule."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Optim:
    """Optimizer and its numbers; the learning rate lives here."""

    name: str = "adamw_torch_fused"
    """Any optimizer name of transformers' `OptimizerNames` (adamw_torch_fused, stable_adamw, sgd, adafactor, ...)."""

    learning_rate: float | None = None
    """Peak learning rate. null = 1e-4 with LoRA, 1e-5 in full or freeze; the header says which and why."""

    weight_decay: float = 0.0
    """Decoupled weight decay (not applied to biases and norms)."""

    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay rates."""

    eps: float = 1.0e-8
    """Adam's epsilon."""

    args: dict[str, str | float | bool] = field(default_factory=dict)
    """Further arguments of the optimizer, by its own names (transformers' `optim_args`)."""
