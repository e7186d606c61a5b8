"""SFT: TRL's trainer with the truth about every step."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from trl import SFTTrainer

from runner.training.truth import Truth


class Sft(Truth, SFTTrainer):
    """`SFTTrainer`; per-example losses come from its fused head's per-token log-probabilities and cost nothing."""

    def per_example(self, outputs: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """(summed negative log-likelihood, supervised tokens) of each row, shape (b,); rows are padded, not packed."""
        # log_probs and label_mask have shape (b, t - 1); log_probs is 0 where the label is ignored.
        return -outputs.log_probs.float().sum(1), outputs.label_mask.sum(1)
