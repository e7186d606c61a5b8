"""Classification: HF's trainer with a loss that does not depend on how a batch is split."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import Trainer

from runner.training.truth import Truth


class GlobalMeanTrainer(Trainer):
    """Cross-entropy, summed over the examples of a micro-batch and divided by the weight of the global batch.

    Upstream drops the loss kwargs of sequence classifiers (transformers modeling_layers.py, catalogue F1), so that loss
    and gradients grow with `gradient_accumulation_steps`.
    """

    loss_is_scaled_for_ga = True
    class_weights: Tensor | None = None
    """Shape (labels,); None = all 1. The loss is the weighted mean, as in `torch.nn.CrossEntropyLoss(weight=...)`."""

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Any]], device: torch.device) -> Tensor:
        """Weight of the global batch: the number of its examples, or the sum of their class weights."""
        labels = [batch["labels"].to(device) for batch in batch_samples]
        total = torch.stack([self.weight_of(x) for x in labels]).sum() if labels else torch.zeros((), device=device)
        return self.accelerator.gather(total).sum() if self.args.world_size > 1 else total

    def weight_of(self, labels: Tensor) -> Tensor:
        """Sum of the class weights of `labels`, a scalar."""
        if self.class_weights is None:
            return torch.tensor(float(labels.numel()), device=labels.device)
        return self.class_weights.to(labels.device)[labels].sum()

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Loss of one micro-batch, and its outputs where they are asked for."""
        labels = inputs["labels"]
        outputs = model(**{k: v for k, v in inputs.items() if k != "labels"}, use_cache=False)
        weight = None if self.class_weights is None else self.class_weights.to(labels.device)
        summed = F.cross_entropy(outputs.logits.float(), labels, weight=weight, reduction="sum")
        loss = summed / (self.weight_of(labels) if num_items_in_batch is None else num_items_in_batch)
        if num_items_in_batch is not None:
            # The divisor counts every process, and DDP averages gradients over them.
            loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss


class Classification(Truth, GlobalMeanTrainer):
    """The classification trainer with the truth about every step."""

    def per_example(self, outputs: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """(unweighted cross-entropy, 1) of each row, shape (b,)."""
        losses = F.cross_entropy(outputs.logits.float(), inputs["labels"], reduction="none")
        return losses, torch.ones_like(losses, dtype=torch.long)
