"""The sizes behind the memory estimate of one run, and how much less it would need with other settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from runner.data.sampler import epoch_order
from runner.model.formats import DTYPES
from runner.preflight.context import Context
from runner.preflight.resources.memory import (
    NOTHING,
    Batch,
    Parts,
    Pass,
    Shape,
    Sizes,
    largest_batch,
    moments,
    optimizer_state,
    smaller_batches,
    update_workspace,
)
from runner.preflight.resources.token_head import TokenHead
from runner.preflight.resources.traced import trace
from runner.training.base_loss import wanted_rows
from runner.training.probes import SMALL, due

MOST_EPOCHS = 4
"""Epochs whose order is looked through for the longest batch: a later one exceeds it by little."""

LEAST_LENGTH = 128
"""`dataset.max_length` is not advised below this."""


@dataclass(frozen=True)
class Setting:
    """What decides the activations."""

    per_device: int
    accumulation: int
    checkpointing: bool
    max_length: int
    eval_rows: int


@dataclass(frozen=True)
class Need:
    """The largest moment of a run."""

    moment: str
    """loading, training, update, probe or evaluation."""

    parts: Parts
    batch: Batch | None
    """The largest micro-batch of training, or of evaluation where that is the moment; None where unknown."""

    @property
    def total(self) -> int:
        """Bytes."""
        return self.parts.total


class Needs:
    """Computes `Need` for any setting of one run; passes over the model are made once for each shape."""

    def __init__(self, c: Context) -> None:
        self.c = c
        trainer: Any = c.trainer
        self.model: Any = trainer.model.get_base_model() if hasattr(trainer.model, "get_base_model") else trainer.model
        self.device: torch.device = next(self.model.parameters()).device
        self.on_gpu = self.device.type == "cuda"
        self.trained = trained_shapes(c)
        self.weights = stored_bytes(trainer.model)
        self.gradients = sum(prod(sizes) * element for sizes, element in self.trained)
        self.optimizer, self.optimizer_known = optimizer_state(c.cfg.optim.name, c.cfg.optim.args, self.trained)
        self.update = update_workspace(c.cfg.optim.name, self.trained, self.on_gpu)
        self.passes: dict[tuple[Batch, bool, bool, bool], Pass] = {}
        data = c.data
        self.lengths: list[int] = list(data.train["length"])
        self.orders = list(planned_orders(c, self.lengths))
        self.measured = list(self._measured())

    @property
    def setting(self) -> Setting:
        """The one of this run."""
        args = self.c.trainer.args
        return Setting(
            args.per_device_train_batch_size,
            args.gradient_accumulation_steps,
            bool(args.gradient_checkpointing),
            self.c.cfg.dataset.max_length,
            args.per_device_eval_batch_size,
        )

    def of(self, setting: Setting) -> Need:
        """What the run needs with `setting`. Raises `Untraceable` for a model whose passes cannot be foreseen."""
        longest = setting.max_length
        batch = largest_batch([min(n, longest) for n in self.lengths], self.orders, setting.per_device)
        measured = self._largest_measured(setting)
        trained = self._pass(batch, True, setting.checkpointing, setting.accumulation > 1)
        copy = self._probe_copy()
        # A pass without gradients over no more tokens needs less than training does.
        larger = measured is not None and measured.tokens > batch.tokens
        evaluation = self._pass(measured, False, False, False) if larger and measured else NOTHING
        if not copy:
            forward = NOTHING
        elif larger and measured:
            forward = evaluation.scaled(batch.tokens / measured.tokens)
        else:
            forward = self._pass(batch, False, False, False)
        snapshots = self.c.trainer.decider.snapshots
        rolls_back = self.c.trainer.guard.may_roll_back and snapshots.where == "memory" and not self.on_gpu
        sizes = Sizes(
            weights=self.weights,
            gradients=self.gradients * (2 if self.c.processes > 1 else 1),
            optimizer=self.optimizer,
            trained=trained,
            forward=forward,
            evaluation=evaluation,
            update=self.update,
            snapshot=self.gradients + self.optimizer if rolls_back else 0,
            renewed=self.c.plan.total_steps > self.c.trainer.decider.snapshot_every,
            probe=copy,
            loading=self._loading(),
            on_gpu=self.on_gpu,
        )
        found = moments(sizes)
        moment = max(found, key=lambda name: found[name].total)
        shown = measured if moment == "evaluation" and measured is not None else batch
        return Need(moment, found[moment], shown)

    def _pass(self, batch: Batch, training: bool, checkpointing: bool, gradients_before: bool) -> Pass:
        key = (batch, training, checkpointing, gradients_before)
        if key not in self.passes:
            compute = self.c.formats.compute
            triton = self.on_gpu and triton_is_there()
            head = None if self.c.classification else TokenHead(triton, DTYPES[compute])
            lower = None if compute == "fp32" else DTYPES[compute]
            with self.c.trainer.no_trace():
                self.passes[key] = trace(self.model, batch, lower, head, training, gradients_before, checkpointing)
            self.c.trainer._outputs = None  # the hook on a classifier has kept tensors without content
        return self.passes[key]

    def _measured(self) -> Iterator[list[int]]:
        """Lengths, in the order they are batched, of the rows that are measured without training on them."""
        c = self.c
        if c.data.validation is not None:
            held_out = list(c.data.validation["length"])
            if str(getattr(c.trainer.args.eval_strategy, "value", c.trainer.args.eval_strategy)) != "no":
                yield held_out
        if c.cfg.stability.base_loss != "off":
            yield [self.lengths[i] for i in wanted_rows(c.cfg, c.plan, c.data)]
        probes = c.trainer.probes
        if probes is not None and probes.row_ids:
            data = c.data.validation if probes.held_out and c.data.validation is not None else c.data.train
            known = set(probes.row_ids)
            yield [n for row, n in zip(data["row_id"], data["length"], strict=True) if row in known]

    def _largest_measured(self, setting: Setting) -> Batch | None:
        found = [
            largest_batch([min(n, setting.max_length) for n in rows], [range(len(rows))], setting.eval_rows)
            for rows in self.measured
            if rows
        ]
        return max(found, key=lambda b: b.tokens, default=None)

    def _probe_copy(self) -> int:
        """Bytes of what is remembered around a probed update; 0 where no step is probed or it goes to the host."""
        probes, last = self.c.cfg.stability.probes, self.c.plan.total_steps
        if not self.c.cfg.stability.telemetry:
            return 0
        elements = sum(prod(sizes) for sizes, _ in self.trained)
        if self.on_gpu and elements >= SMALL:
            return 0
        lost = any(due(probes.lost_updates, step) for step in _steps(probes.lost_updates, last))
        line = any(due(probes.line, step) for step in _steps(probes.line, last))
        return (self.gradients if lost or line else 0) + (elements if lost else 0)

    def _loading(self) -> int:
        """Beside the weights: the tensor in hand, and of a GGUF the file it is unpacked from."""
        largest = max((p.numel() * p.element_size() for p in self.model.parameters()), default=0)
        file = self.c.cfg.model.gguf_file
        path = Path(self.c.cfg.model.path).expanduser() / file if file else None
        return largest + (path.stat().st_size if path is not None and path.exists() else 0)


def _steps(interval: int | None, last: int) -> range:
    """The first step that is due, if the run reaches it."""
    return range(interval, interval + 1) if interval is not None and interval <= last else range(0)


def planned_orders(c: Context, lengths: Sequence[int]) -> Iterator[Sequence[int]]:
    """Row indices in the planned order, epoch by epoch as far as the run goes, at most `MOST_EPOCHS`."""
    plan, cfg = c.plan, c.cfg
    sources = list(c.data.train["source"])
    for epoch in range(min(ceil(plan.total_steps / plan.steps_per_epoch), MOST_EPOCHS)):
        order = epoch_order(cfg.batch.sampler, cfg.seed, epoch, sources, lengths, plan.global_batch)
        left = plan.total_steps - epoch * plan.steps_per_epoch
        yield order[: left * plan.global_batch]


def trained_shapes(c: Context) -> list[Shape]:
    """Of every parameter that trains."""
    return [(tuple(p.shape), p.element_size()) for _, p in c.trainer.trainable()]


def stored_bytes(model: nn.Module) -> int:
    """Bytes of parameters and buffers; a storage that several of them share counts once."""
    stores = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in (*model.parameters(), *model.buffers())}
    return sum(stores.values())


def triton_is_there() -> bool:
    """Whether TRL's fused head can use Triton."""
    from transformers.utils import is_triton_available

    return bool(is_triton_available())


def cheaper(needs: Needs, limit: float) -> tuple[Setting, Need] | None:
    """The nearest setting that needs at most `limit` bytes, and what it needs; None where none does.

    First fewer rows at once and more accumulation, which keeps every number of the run; then gradient checkpointing;
    then both; then shorter rows too, which changes the data. Evaluation takes fewer rows wherever that is needed.
    """
    start = needs.setting

    def fits(setting: Setting) -> tuple[Setting, Need] | None:
        need = needs.of(setting)
        while need.total > limit and need.moment == "evaluation" and setting.eval_rows > 1:
            setting = replace(setting, eval_rows=setting.eval_rows // 2)
            need = needs.of(setting)
        return (setting, need) if need.total <= limit else None

    def fewer_rows(setting: Setting) -> tuple[Setting, Need] | None:
        smaller = [
            replace(setting, per_device=rows, accumulation=accumulation)
            for rows, accumulation in smaller_batches(setting.per_device, setting.accumulation)
        ]
        if not smaller or fits(smaller[-1]) is None:
            return None
        return next(found for s in smaller if (found := fits(s)) is not None)

    found = fits(start) or fewer_rows(start)
    if found is None and not start.checkpointing:
        start = replace(start, checkpointing=True)
        found = fits(start) or fewer_rows(start)
    if found is not None:
        return found
    smallest = [
        replace(start, per_device=d, accumulation=a) for d, a in smaller_batches(start.per_device, start.accumulation)
    ]
    setting = smallest[-1] if smallest else start
    length = 2 ** int(np.log2(max(max(needs.lengths) - 1, 1)))
    while found is None and length >= LEAST_LENGTH:
        found = fits(replace(setting, max_length=min(length, start.max_length)))
        length //= 2
    return found


def overrides(before: Setting, after: Setting, by_global: bool) -> tuple[str, ...]:
    """The change as Hydra overrides; with `by_global` the accumulation follows from batch.global_batch_size."""
    found = []
    if after.per_device != before.per_device:
        found.append(f"batch.per_device_train_batch_size={after.per_device}")
    if after.accumulation != before.accumulation and not by_global:
        found.append(f"batch.gradient_accumulation_steps={after.accumulation}")
    if after.checkpointing and not before.checkpointing:
        found.append("model.gradient_checkpointing=true")
    if after.max_length != before.max_length:
        found.append(f"dataset.max_length={after.max_length}")
    if after.eval_rows != before.eval_rows:
        found.append(f"evaluation.per_device_eval_batch_size={after.eval_rows}")
    return tuple(found)
