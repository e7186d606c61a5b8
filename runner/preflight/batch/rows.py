"""Rows of the first step through the trainer, leaving no trace in it; shared by the checks of stage batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from accelerate.utils.operations import convert_outputs_to_fp32
from datasets import Dataset
from torch import nn

from runner.data.sampler import epoch_order
from runner.preflight.context import Context
from runner.training.collate import IDENTITY
from runner.training.step import Step


def first_rows(c: Context, count: int) -> Dataset:
    """The first `count` training rows (fewer where there are fewer) in the order in which epoch 0 visits them."""
    train = c.data.train
    cfg = c.cfg
    order = epoch_order(
        cfg.batch.sampler, cfg.seed, 0, list(train["source"]), list(train["length"]), c.plan.global_batch
    )
    return train.select(order[:count])


def collate(c: Context, rows: Dataset) -> dict[str, Any]:
    """The rows as one batch: what the trainer's collator makes of them, on its device, without the identity columns."""
    trainer = c.trainer
    kept = trainer._remove_unused_columns(rows, description="training")
    batch = trainer.data_collator([kept[i] for i in range(len(kept))])
    plain = {key: value for key, value in batch.items() if key not in IDENTITY}
    return cast(dict[str, Any], trainer._prepare_inputs(plain))


def micro_batches(c: Context, rows: Dataset, size: int) -> list[dict[str, Any]]:
    """The rows in batches of `size`, the last one perhaps smaller, each as `collate` gives it."""
    return [collate(c, rows.select(range(i, min(i + size, len(rows))))) for i in range(0, len(rows), size)]


class Prepared(nn.Module):
    """The model as accelerate will prepare it: forward under the autocast of the run, outputs in fp32.

    Shares the parameters of the model; holds no state of its own.
    """

    def __init__(self, trainer: Any):
        super().__init__()
        self.inner = trainer.model
        self.accelerator = trainer.accelerator

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the prepared model returns."""
        if not self.accelerator.native_amp:
            return self.inner(*args, **kwargs)
        with self.accelerator.autocast():
            outputs = self.inner(*args, **kwargs)
        return convert_outputs_to_fp32(lambda: outputs)()


def prepared(c: Context) -> nn.Module:
    """The trainer's model, to be called as in training: mixed precision included."""
    return Prepared(c.trainer)


@contextmanager
def untouched(c: Context) -> Iterator[None]:
    """Inside, anything may be run forward and backward; afterwards the trainer is as it was before.

    `.grad` is None for every parameter inside at first; gradients, train and eval flags, random numbers, metrics, what
    the step has recorded and the loss scale are put back. Not the weights: who changes those puts them back.
    """
    trainer: Any = c.trainer
    parameters = list(trainer.model.parameters())
    gradients = [p.grad for p in parameters]
    missing = object()
    step, outputs = trainer.step_now, trainer._outputs
    windows = getattr(trainer, "current_gradient_accumulation_steps", missing)
    scaler = trainer.accelerator.scaler
    scale = None if scaler is None else scaler.state_dict()
    with trainer.no_trace():
        try:
            drop_gradients(parameters)
            trainer.step_now = Step(loss_scale=step.loss_scale)
            yield
        finally:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            trainer.step_now, trainer._outputs = step, outputs
            if windows is not missing:
                trainer.current_gradient_accumulation_steps = windows
            elif hasattr(trainer, "current_gradient_accumulation_steps"):
                del trainer.current_gradient_accumulation_steps
            if scaler is not None and scale:
                scaler.load_state_dict(scale)


def drop_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Set `.grad` of each to None."""
    for parameter in parameters:
        parameter.grad = None


@contextmanager
def deterministic(model: nn.Module) -> Iterator[None]:
    """Inside, nothing is dropped: every dropout rate is 0, in training mode too; afterwards each rate is as before.

    A rate is any number that a module keeps under a name with "drop" in it, and the `p` of torch's dropout modules.
    """
    rates = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, float) and ("drop" in name or (name == "p" and "Drop" in type(module).__name__))
    ]
    try:
        for module, name, _ in rates:
            setattr(module, name, 0.0)
        yield
    finally:
        for module, name, value in rates:
            setattr(module, name, value)


def loss_and_gradients(
    c: Context, micros: Sequence[dict[str, Any]], num_items: Any = None, scale: float | None = None
) -> tuple[float, None]:
    """One step as far as the backward pass: `trainer.training_step` for each micro-batch, as in `Trainer.train`.

    Returns the step's loss as the trainer logs it (the sum over the micro-batches), NaN where it is NaN; gradients are
    added to `.grad`. `num_items` is the divisor; None = the trainer's own count over `micros`. Under fp16 the backward
    pass runs at loss scale `scale` (None = the scale the run starts with) and `.grad` is divided by it afterwards.
    To be called inside `untouched`, with `.grad` None at first.
    """
    trainer: Any = c.trainer
    trainer.current_gradient_accumulation_steps = len(micros)
    if num_items is None:
        num_items = trainer._get_num_items_in_batch(list(micros), trainer.args.device)
    scaler = trainer.accelerator.scaler
    if scaler is not None and scale is not None:
        scaler.load_state_dict({**scaler.state_dict(), "scale": scale})
    model = prepared(c)
    losses = [trainer.training_step(model, dict(micro), num_items).detach().float().reshape(()) for micro in micros]
    if scaler is not None:
        used = float(scaler.get_scale())
        for parameter in trainer.model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(used)
    return float(torch.stack(losses).sum()), None
