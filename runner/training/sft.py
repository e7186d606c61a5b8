"""SFT: TRL's trainer with the truth about every step."""

from __future__ import annotations

from collections import defaultdict
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

    def metrics_so_far(self) -> Any:
        """TRL's entropy, accuracy and token counts, which every forward pass adds to."""
        lists = {mode: {name: list(x) for name, x in found.items()} for mode, found in self._metrics.items()}
        return lists, self._total_train_tokens

    def set_metrics(self, metrics: Any) -> None:
        """Put them back."""
        lists, self._total_train_tokens = metrics
        self._metrics = {mode: defaultdict(list, found) for mode, found in lists.items()}
