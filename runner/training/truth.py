"""One mixin for both trainers: true loss, norm before clipping, row identity, data order, fp16 that is real on a CPU.

Written against transformers 5.24 and trl 1.16. Order inside `Trainer._run_epoch`: `training_step` for each micro-batch,
`_clip_grad_norm`, `on_pre_optimizer_step`, `optimizer.step`, `on_optimizer_step`, scheduler, `on_step_end`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import EvalLoopOutput

from runner.config.schema import Clip, Guard, LossScale
from runner.data.sampler import EpochSampler
from runner.errors import ConfigError
from runner.stability.clipping import make_clipper
from runner.stability.guard import NonFiniteGuard
from runner.training.collate import IDENTITY, CarryIdentity
from runner.training.step import Micro, Step, step_facts


@dataclass
class Instruments:
    """What the mixin needs to know beyond the trainer's own arguments."""

    clip: Clip
    guard: Guard
    loss_scale: LossScale
    sampler: str
    global_batch: int
    sources: list[str]
    """Names of all sources, training and validation, in the same order on every process."""

    telemetry: bool
    """False = `stability=off`: nothing is captured from the forward pass."""

    on_row: Callable[[dict[str, Any]], None]
    """Called with each finished telemetry row on the first process."""


class Truth(Trainer):
    """Mixin; stands left of the trainer class it instruments, which supplies `per_example`."""

    data_collator: Any
    _signature_columns: Any

    def __init__(self, *args: Any, instruments: Instruments, **kwargs: Any):
        self.instruments = instruments
        self.clipper = make_clipper(instruments.clip)
        self.guard = NonFiniteGuard(instruments.guard)
        self.step_now = Step()
        self.order: EpochSampler | None = None
        self._outputs: Any = None
        self._held_out: dict[str, tuple[str, float, int]] = {}
        super().__init__(*args, **kwargs)
        # After __init__: TRL builds its own collator there and refuses a foreign one when padding-free.
        collator: Any = self.data_collator
        self.data_collator = CarryIdentity(collator)
        self.add_callback(StepFacts(self))
        self.add_callback(StabilityState(self))
        model: Any = self.model
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        base.register_forward_hook(self._keep_outputs)

    def per_example(self, outputs: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """(summed loss, supervised tokens) of each example, both of shape (b,)."""
        raise NotImplementedError  # abstract

    def _keep_outputs(self, module: Any, args: Any, outputs: Any) -> None:
        self._outputs = outputs

    def create_accelerator_and_postprocess(self) -> None:
        """Give fp16 its loss scale, on a CPU too: there transformers would train in fp32 without a word."""
        super().create_accelerator_and_postprocess()
        if self.args.fp16 and not self.is_deepspeed_enabled:
            accelerator = self.accelerator
            scale = self.instruments.loss_scale
            accelerator.native_amp = True
            accelerator.scaler = torch.amp.GradScaler(
                accelerator.device.type, init_scale=2.0**scale.initial_power, growth_interval=scale.growth_interval
            )

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns: list[str] = list(self._signature_columns)
        self._signature_columns = list(dict.fromkeys([*columns, *IDENTITY]))

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:
        """`batch.sampler` as an order that depends on seed and epoch only, so that a resumed run sees the same rows."""
        data = self.train_dataset if train_dataset is None else train_dataset
        self.order = EpochSampler(
            self.instruments.sampler,
            self.args.seed,
            list(data["source"]),
            list(data["length"]),
            self.instruments.global_batch,
        )
        return self.order

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The trainer's own loss; on the way, each example's summed loss is kept from the same forward pass."""
        identity = {key: inputs.pop(key) for key in IDENTITY if key in inputs}
        result = super().compute_loss(
            model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch
        )
        training = bool(self.model.training)
        if identity and (self.instruments.telemetry or not training):
            with torch.no_grad():
                sums, tokens = self.per_example(self._outputs, inputs)
            if training:
                self.step_now.micros.append(Micro(sums.detach(), tokens, identity["source"], identity["length"]))
            else:
                for row, source, s, n in zip(
                    identity["row_id"], identity["source"], sums.tolist(), tokens.tolist(), strict=True
                ):
                    self._held_out[row] = (source, s, int(n))
        self._outputs = None
        return result

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """One micro-batch; its loss is kept as the trainer returns it, NaN included."""
        if not self.step_now.losses:
            self.step_now.started = time.perf_counter()
        loss = super().training_step(*args, **kwargs)
        self.step_now.losses.append(loss.detach())
        return loss

    def _clip_grad_norm(self, model: Any) -> Tensor:
        """Unscale (fp16), measure, clip. Returns the norm before clipping."""
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            method = self.instruments.clip.method
            if method not in ("norm", "none"):
                raise ConfigError(
                    [f"clip.method={method} needs whole gradients, which DeepSpeed and FSDP split: set clip=norm"]
                )
            self.step_now.grad_norm = super()._clip_grad_norm(model)
            return self.step_now.grad_norm
        self.accelerator.unscale_gradients()
        # Names without the prefix of a wrapper: what a method learns has to fit a resumed run.
        norm, coefficient = self.clipper(list(self.model.named_parameters()))
        self.step_now.grad_norm, self.step_now.clip_coef = norm, coefficient
        self.judge_step(norm)
        return norm

    def judge_step(self, norm: Tensor) -> None:
        """Ask the guard before the optimizer sees the gradient; a vetoed step has none, so no state is touched.

        Every process decides alike: the flags are combined over all of them.
        """
        loss = torch.stack([x.float().reshape(()) for x in self.step_now.losses]).sum()
        finite = torch.stack([torch.isfinite(loss), torch.isfinite(norm).to(loss.device)]).float()
        if self.accelerator.num_processes > 1:
            finite = (self.accelerator.reduce(finite, "mean") == 1).float()
        loss_finite, gradient_finite = (value == 1 for value in finite.tolist())
        if self.guard.judge(loss_finite, gradient_finite, self.accelerator.scaler is not None) == "skip":
            self.optimizer.zero_grad(set_to_none=True)
            self.step_now.vetoed = True

    def finish_step(self) -> None:
        """Turn what the step has seen into a telemetry row and hand it on. Collective: every process calls it."""
        step, self.step_now = self.step_now, Step()
        several = self.accelerator.num_processes > 1
        facts = step_facts(step, self.instruments.sources, self.accelerator.reduce if several else lambda x, how: x)
        scaler = self.accelerator.scaler
        row = {
            "step": self.state.global_step,
            "epoch": self.state.epoch,
            "time": time.time(),
            **facts,
            "learning_rate": step.learning_rate,
            "loss_scale": scaler.get_scale() if scaler is not None else None,
            "skipped": self.why_skipped(step),
            "seconds": time.perf_counter() - step.started,
        }
        if self.is_world_process_zero():
            self.instruments.on_row(row)

    def why_skipped(self, step: Step) -> str | None:
        """non_finite (the guard), loss_scale_overflow (fp16), or None."""
        if step.vetoed:
            return "non_finite"
        return "loss_scale_overflow" if self.accelerator.optimizer_step_was_skipped else None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """Upstream's loop, with the loss as token mean over all held-out rows (upstream averages means of batches), and
        the loss of each source beside it."""
        self._held_out = {}
        output = super().evaluation_loop(*args, **kwargs)
        rows = self._held_out
        if self.accelerator.num_processes > 1:
            rows = dict(pair for pair in gather_object(list(rows.items())))
        prefix = kwargs.get("metric_key_prefix", "eval")
        if rows and output.metrics is not None:
            output.metrics[f"{prefix}_loss"] = token_mean(list(rows.values()))
            names = sorted({source for source, _, _ in rows.values()})
            for name in names if len(names) > 1 else ():
                output.metrics[f"{prefix}_loss_{name}"] = token_mean([r for r in rows.values() if r[0] == name])
        self._held_out = {}
        return output


def token_mean(rows: list[tuple[str, float, int]]) -> float:
    """Sum of losses over sum of tokens; rows are (source, summed loss, tokens)."""
    return sum(s for _, s, _ in rows) / max(sum(n for _, _, n in rows), 1)


class StepFacts(TrainerCallback):
    """Reads the learning rate as applied, sets the epoch of the data order, and closes each step."""

    def __init__(self, trainer: Truth):
        self.trainer = trainer

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Under several processes `set_epoch` is not reached after a resume, so it is set here for every case."""
        if self.trainer.order is not None:
            self.trainer.order.set_epoch(int(state.epoch or 0))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The rate of this very step; the scheduler moves on afterwards."""
        self.trainer.step_now.learning_rate = float(self.trainer._get_learning_rate())

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Say that guard or loss scale skipped the step, so that the schedule waits for it.

        accelerate 1.15 clears the flag itself only where there is a loss scale, and misses a skip of a fused optimizer:
        that one takes the overflow flag itself and returns without a step (accelerate/optimizer.py,
        `_accelerate_step_called`).
        """
        step, scaled = self.trainer.step_now, self.trainer.accelerator.scaler is not None
        overflow = scaled and step.grad_norm is not None and not bool(torch.isfinite(step.grad_norm))
        if step.vetoed or overflow:
            optimizer._is_overflow = True
        elif not scaled and hasattr(optimizer, "_is_overflow"):
            optimizer._is_overflow = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """One telemetry row; the end of the run where the guard says so."""
        self.trainer.finish_step()
        if self.trainer.guard.ends_run is not None:
            control.should_training_stop = True
            control.should_evaluate = control.should_save = False

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A run that the guard ended is neither measured nor saved once more."""
        if self.trainer.guard.ends_run is not None:
            control.should_evaluate = control.should_save = False


class StabilityState(TrainerCallback, ExportableState):
    """Carries what clipping and guard have learnt through a checkpoint, in `trainer_state.json`."""

    def __init__(self, trainer: Truth):
        self.trainer = trainer

    def state(self) -> dict[str, Any]:
        """Trainer's shape: no constructor arguments, and what is remembered."""
        return {"args": {}, "attributes": {"clip": self.trainer.clipper.state(), "guard": self.trainer.guard.state()}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After a resume, Trainer's state holds what the checkpoint held."""
        saved = state.stateful_callbacks.get("StabilityState", {})
        learnt = saved.get("attributes", {}) if isinstance(saved, dict) else {}
        if learnt.get("clip"):
            self.trainer.clipper.load(learnt["clip"])
        if learnt.get("guard"):
            self.trainer.guard.load(learnt["guard"])
