"""`task`: what is trained on what signal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Task:
    """sft = next-token loss on the answers; classification = one label per text."""

    name: Literal["sft", "classification"] = "sft"
    """Which trainer runs: TRL's `SFTTrainer` (sft) or HF's `Trainer` on a sequence classifier (classification)."""

    train_on: Literal["answers", "last_answer", "all"] = "answers"
    """sft: which tokens carry loss. answers = every assistant turn, last_answer = only the last one, all = prompts
    too."""

    labels: list[str] | None = None
    """classification: the label names in id order, e.g. [积极, 消极, 中立]. null = read from the data, sorted, and
    printed."""

    class_weights: Literal["balanced"] | dict[str, float] | None = None
    """classification: weight of each label in the loss. balanced = inverse frequency in the training rows; null = 1."""
