"""Forward passes beside the training itself that leave no trace in it: no random number, no metric, no flag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor, nn
from transformers import Trainer

from runner.stability.clipping import total_norm
from runner.training import rng
from runner.training.step import Step


class Again(Trainer):
    """Mixin: the current step once more, or other rows, with the weights as they are."""

    step_now: Step
    recording: bool
    """Whether a training forward pass adds to `step_now`."""

    held_out: dict[str, tuple[str, float, int]] | None
    """row_id -> (source, summed loss, tokens) of the rows measured so far; None while no rows are measured."""

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters that train, by the unwrapped model's names."""
        model: Any = self.model
        return [(name, p) for name, p in model.named_parameters() if p.requires_grad]

    def metrics_so_far(self) -> Any:
        """What the trainer has collected for its next log line; a subclass that collects says what."""
        return None

    def set_metrics(self, metrics: Any) -> None:
        """Put back what `metrics_so_far` returned."""

    @contextmanager
    def no_trace(self) -> Iterator[None]:
        """Inside, forward passes are not recorded; afterwards random numbers, metrics and flags are as before."""
        model: Any = self.model
        flags = [(module, module.training) for module in model.modules()]
        metrics, recording = self.metrics_so_far(), self.recording
        self.recording = False
        with rng.untouched():
            try:
                yield
            finally:
                for module, flag in flags:
                    module.training = flag
                self.set_metrics(metrics)
                self.recording = recording

    def repeat_micro(self, i: int) -> Tensor:
        """Micro-batch `i` of the current step exactly as training ran it; gradients add to `.grad` of this process.

        Returns its detached loss.
        """
        step = self.step_now
        wrapped: Any = self.model_wrapped
        with self.no_trace(), self.accelerator.no_sync(wrapped):
            rng.restore(step.rng[i])
            return super().training_step(wrapped, dict(step.batches[i]), step.num_items).detach()

    def finite_at_scale(self, scale: float) -> bool:
        """fp16: whether the gradient of the current step is finite at loss scale `scale`. Collective.

        Gradients and loss scale are left as they were. Where memory does not suffice to know, True.
        """
        from runner.training.investigate import set_aside

        scaler: Any = self.accelerator.scaler
        before = scaler.state_dict()
        with set_aside(self.model):
            scaler.load_state_dict({**before, "scale": scale})
            try:
                for i in range(len(self.step_now.batches)):
                    self.repeat_micro(i)
                finite = bool(torch.isfinite(total_norm([p for _, p in self.trainable()])))
            except torch.OutOfMemoryError:
                finite = True
            finally:
                scaler.load_state_dict(before)
        if self.accelerator.num_processes > 1:
            flag = torch.tensor([float(not finite)], device=self.accelerator.device)
            finite = not bool(self.accelerator.reduce(flag, "sum"))
        return finite

    def objective(self) -> float:
        """The loss that the current step minimises, over its global batch, at the weights as they are, dropout off."""
        step = self.step_now
        model: Any = self.model
        with self.no_trace(), torch.no_grad():
            model.eval()
            losses = []
            for batch in step.batches:
                inputs = self._prepare_inputs(dict(batch))
                with self.compute_loss_context_manager():
                    losses.append(self.compute_loss(model, inputs, num_items_in_batch=step.num_items))
            total = torch.stack([x.float().reshape(()) for x in losses]).sum()
            if self.accelerator.num_processes > 1:
                total = self.accelerator.reduce(total, "mean")
            return float(total)

    def row_losses(self, dataset: Dataset) -> dict[str, tuple[float, int]]:
        """{row_id: (summed loss, supervised tokens)} of every row, dropout off. Collective over the processes."""
        return {row: (s, n) for row, (_, s, n) in self.measure(dataset).items()}

    def measure(self, dataset: Dataset) -> dict[str, tuple[str, float, int]]:
        """{row_id: (source, summed loss, supervised tokens)} of every row, by the trainer's own evaluation loop."""
        before, self.held_out = self.held_out, {}
        try:
            with self.no_trace():
                super().evaluation_loop(self.get_eval_dataloader(dataset), "rows", prediction_loss_only=True)
            return self.all_held_out()
        finally:
            self.held_out = before

    def all_held_out(self) -> dict[str, tuple[str, float, int]]:
        """`held_out` of every process together."""
        rows = self.held_out or {}
        return dict(gather_object(list(rows.items()))) if self.accelerator.num_processes > 1 else rows
