"""`evaluation`: when the held-out rows are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Evaluation:
    """sft reports the token-mean loss; classification also accuracy, macro-F1, a per-class report and a confusion
    matrix."""

    eval_strategy: Literal["no", "steps", "epoch"] = "epoch"
    """When to evaluate. Needs held-out rows (dataset.validation)."""

    eval_steps: int | None = None
    """eval_strategy=steps: optimizer steps between two evaluations."""

    per_device_eval_batch_size: int = 8
    """Rows in one evaluation pass of one process."""

    eval_on_start: bool = False
    """Also evaluate before the first step."""
