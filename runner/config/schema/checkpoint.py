"""`checkpoint`: what is kept, what a run continues from, and when it ends early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Checkpoint:
    """Checkpoints hold weights, optimizer, scheduler, scaler, random state and data position."""

    save_strategy: Literal["no", "steps", "epoch"] = "epoch"
    """When to save. Ctrl-C and SIGTERM always save one."""

    save_steps: int | None = None
    """save_strategy=steps: optimizer steps between two checkpoints."""

    save_total_limit: int | None = 3
    """Checkpoints kept (the best one is never deleted); null = all."""

    resume: str | None = None
    """auto = the newest unfinished run of this name with the same config; else a run folder, or one of its checkpoints.
    null = start anew."""

    load_best_model_at_end: bool = False
    """Save the checkpoint with the best `metric_for_best_model` as the final model."""

    metric_for_best_model: str = "eval_loss"
    """eval_loss, or for classification eval_accuracy, eval_macro_f1."""

    greater_is_better: bool | None = None
    """null = false for a loss, true for any other metric."""

    early_stopping_patience: int | None = None
    """Stop after this many evaluations without improvement; null = never. Needs load_best_model_at_end=true."""

    early_stopping_threshold: float = 0.0
    """Smallest change that counts as an improvement."""
