"""One mixin for both trainers: true loss, norm before clipping, row identity, data order, fp16 that is real on a CPU.

Written against transformers 5.24 and trl 1.16. Order inside `Trainer._run_epoch`: `training_step` for each micro-batch,
`_clip_grad_norm`, `on_pre_optimizer_step`, `optimizer.step`, `on_optimizer_step`, scheduler, `on_step_end`.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.trainer_utils import EvalLoopOutput

from runner.data.sampler import EpochSampler
from runner.errors import ConfigError
from runner.signals.noise_scale import NoiseScale, noise_scale
from runner.stability.clipping import make_clipper, norms_of
from runner.training import rng
from runner.training.again import Again
from runner.training.callbacks import StabilityState, StepFacts
from runner.training.collate import IDENTITY, CarryIdentity
from runner.training.decide import Decider
from runner.training.instruments import Instruments
from runner.training.probes import Probes
from runner.training.statistics import weight_statistics
from runner.training.step import Micro, Step, World, module_norms, read_step


class Truth(Again):
    """Mixin; stands left of the trainer class it instruments, which supplies `per_example`."""

    data_collator: Any
    _signature_columns: Any

    def __init__(self, *args: Any, instruments: Instruments, **kwargs: Any):
        self.instruments = instruments
        self.clipper = make_clipper(instruments.clip)
        self.noise_scale = NoiseScale()
        self.step_now = Step()
        self.recording = True
        self.held_out = None
        self.order: EpochSampler | None = None
        self.probes: Probes | None = None
        self._outputs: Any = None
        super().__init__(*args, **kwargs)
        self.decider = Decider(self)
        self.guard = self.decider.guard
        stability = instruments.stability
        if self.guard.acts and (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            raise ConfigError(
                [
                    "stability.guard acts on whole gradients before the step, which DeepSpeed and FSDP do not "
                    "show yet: set stability=observe"
                ]
            )
        self.every = stability.weight_statistics_every or (1 if instruments.adapters else 10)
        validation: Any = self.eval_dataset
        train: Any = self.train_dataset
        if stability.telemetry and train is not None:
            self.probes = Probes(stability.probes, self, train, validation, self.args.seed, instruments.on_probe)
        # After __init__: TRL builds its own collator there and refuses a foreign one when padding-free.
        collator: Any = self.data_collator
        self.data_collator = CarryIdentity(collator)
        self.add_callback(StabilityState(self))
        self.add_callback(StepFacts(self))
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

    @property
    def world(self) -> World:
        """The processes of this run."""
        accelerator = self.accelerator
        if accelerator.num_processes == 1:
            return World()
        return World(
            accelerator.process_index,
            accelerator.num_processes,
            lambda x: accelerator.reduce(x, "sum"),
            accelerator.gather,
        )

    def begin_training(self) -> None:
        """Measure what has to be measured before the first step of this process."""
        self.step_now = Step(loss_scale=self.scale())
        self.instruments.before_training(self)
        if self.probes is not None:
            self.probes.start(self.state.global_step)

    def scale(self) -> float | None:
        """fp16's loss scale; None without one."""
        scaler = self.accelerator.scaler
        return None if scaler is None else float(scaler.get_scale())

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The trainer's own loss; on the way, each example's summed loss is kept from the same forward pass."""
        identity = {key: inputs.pop(key) for key in IDENTITY if key in inputs}
        result = super().compute_loss(
            model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch
        )
        training = bool(self.model.training)
        kept = self.recording and self.instruments.stability.telemetry if training else self.held_out is not None
        if identity and kept:
            with torch.no_grad():
                sums, tokens = self.per_example(self._outputs, inputs)
            if training:
                rows = (identity["row_id"], identity["source"], identity["length"])
                self.step_now.micros.append(Micro(sums.detach(), tokens, *rows))
            elif self.held_out is not None:
                for row, source, s, n in zip(
                    identity["row_id"], identity["source"], sums.tolist(), tokens.tolist(), strict=True
                ):
                    self.held_out[row] = (source, s, int(n))
        self._outputs = None
        if training and self.instruments.spoil is not None:
            step = self.state.global_step + 1
            if return_outputs:
                return self.instruments.spoil(result[0], step), result[1]
            return self.instruments.spoil(result, step)
        return result

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """One micro-batch; its loss is kept as the trainer returns it, NaN included."""
        step = self.step_now
        if not step.losses:
            step.started = time.perf_counter()
        if self.watches:
            step.batches.append(dict(inputs))
            step.rng.append(rng.capture())
            step.num_items = num_items_in_batch
        loss = super().training_step(model, inputs, num_items_in_batch)
        step.losses.append(loss.detach())
        if self.statistics_due and len(step.losses) == 1 and self.current_gradient_accumulation_steps > 1:
            gradients = [p.grad for _, p in self.trainable() if p.grad is not None]
            step.first_square = norms_of(gradients).square().sum() if gradients else None
        return loss

    @property
    def watches(self) -> bool:
        """Whether each step is judged before the optimizer; not under `stability=off`."""
        return self.instruments.stability.telemetry or self.guard.watches

    @property
    def statistics_due(self) -> bool:
        """Whether weight-wide statistics belong to the step in progress."""
        return self.instruments.stability.telemetry and (self.state.global_step + 1) % self.every == 0

    def _clip_grad_norm(self, model: Any) -> Tensor:
        """Unscale (fp16), measure, clip, decide. Returns the norm before clipping."""
        step = self.step_now
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            method = self.instruments.clip.method
            if method not in ("norm", "none"):
                raise ConfigError(
                    [f"clip.method={method} needs whole gradients, which DeepSpeed and FSDP split: set clip=norm"]
                )
            step.grad_norm = super()._clip_grad_norm(model)
            return step.grad_norm
        self.accelerator.unscale_gradients()
        # Names without the prefix of a wrapper: what a method learns has to fit a resumed run.
        named = self.trainable()
        norm, step.clip_coef = self.clipper(named)
        step.grad_norm = norm
        telemetry = self.instruments.stability.telemetry
        if self.watches:
            norms_every = self.instruments.stability.module_norms_every
            if telemetry and norms_every is not None and (self.state.global_step + 1) % norms_every == 0:
                step.tensor_norms = self.clipper.norms
            if self.statistics_due:
                step.weights = weight_statistics(getattr(self.optimizer, "optimizer", self.optimizer))
            self.read_facts()
            self.decider.judge(step)
            if self.probes is not None and not step.vetoed and math.isfinite(step.facts["grad_norm"]):
                self.probes.before_update(self.state.global_step + 1)
        return norm

    def read_facts(self) -> None:
        """Fill `step_now.facts` with everything known before the optimizer's step. Collective."""
        step, instruments = self.step_now, self.instruments
        rows = [row for m in step.micros for row in m.row_ids]
        if instruments.base_of is not None and rows:
            step.base = instruments.base_of(rows)
        numbers, most = None, 0
        if instruments.stability.per_example and rows:
            several = self.accelerator.num_processes > 1
            numbers = [self.numbers[row] for row in rows] if several else list(range(len(rows)))
            most = (
                self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps if several else len(rows)
            )
        facts = read_step(step, instruments.sources, self.world, numbers, most)
        found = facts.pop("row_numbers", None)
        if found is not None:
            names = self.row_names if self.accelerator.num_processes > 1 else rows
            facts["row_ids"] = [names[i] for i in found]
        norms = facts.pop("tensor_norms")
        if norms is not None:
            names = [name for name, p in self.trainable() if p.grad is not None]
            facts["module_grad_norms"] = module_norms(names, norms)
        first = facts.pop("first_square", math.nan)
        if math.isfinite(first) and math.isfinite(facts["grad_norm"]):
            count = self.current_gradient_accumulation_steps * self.accelerator.num_processes
            trace, signal = noise_scale(first, facts["grad_norm"] ** 2, self.args.per_device_train_batch_size, count)
            self.noise_scale.update(trace, signal)
            facts["noise_scale"] = {"s": trace, "g2": signal, "b_simple": self.noise_scale.value}
        step.facts = {"step": self.state.global_step + 1, **facts}

    @cached_property
    def row_names(self) -> list[str]:
        """row_id of every training row, in the order of the data."""
        train: Any = self.train_dataset
        return list(train["row_id"])

    @cached_property
    def numbers(self) -> dict[str, int]:
        """row_id -> position in the training data."""
        return {row: i for i, row in enumerate(self.row_names)}

    def finish_step(self) -> None:
        """Complete the telemetry row and hand it on. Collective: every process calls it."""
        step = self.step_now
        if not step.facts:
            self.read_facts()
        taken = not (step.vetoed or self.accelerator.optimizer_step_was_skipped)
        seconds = time.perf_counter() - step.started
        row = {
            **step.facts,
            # After the facts: those of an unwatched step are read once the step is counted.
            "step": self.state.global_step,
            "epoch": self.state.epoch,
            "time": time.time(),
            "learning_rate": step.learning_rate,
            "loss_scale": step.loss_scale,
            "skipped": step.skipped or (None if taken else "loss_scale_overflow"),
            "seconds": seconds,
            "peak_memory": peak_memory(),
        }
        if "tokens" in row:
            row["tokens_per_second"] = row["tokens"] / max(seconds, 1e-9)
        if not taken:
            row["update_rms"] = None
        self.step_now = Step(loss_scale=self.scale())
        if self.is_world_process_zero():
            self.instruments.on_row(row)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Upstream's. Trainer empties its sum of losses by subtracting it from itself (`_maybe_log_save_evaluate`), and
        NaN - NaN is NaN: without this, every log line after a skipped NaN step would read NaN."""
        if "loss" in logs:
            self._tr_loss.zero_()
        super().log(logs, start_time)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """Upstream's loop, with the loss as token mean over all held-out rows (upstream averages means of batches), and
        the loss of each source beside it."""
        self.held_out = {}
        output = super().evaluation_loop(*args, **kwargs)
        rows = self.all_held_out()
        self.held_out = None
        prefix = kwargs.get("metric_key_prefix", "eval")
        if rows and output.metrics is not None:
            output.metrics[f"{prefix}_loss"] = token_mean(list(rows.values()))
            names = sorted({source for source, _, _ in rows.values()})
            for name in names if len(names) > 1 else ():
                output.metrics[f"{prefix}_loss_{name}"] = token_mean([r for r in rows.values() if r[0] == name])
        return output

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """The snapshot that a resumed run may have to go back to travels with the checkpoint."""
        super()._save_optimizer_and_scheduler(output_dir)
        self.decider.snapshots.save(Path(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.guard.may_roll_back:
            self.decider.snapshots.load(Path(checkpoint))


def token_mean(rows: list[tuple[str, float, int]]) -> float:
    """Sum of losses over sum of tokens; rows are (source, summed loss, tokens)."""
    return sum(s for _, s, _ in rows) / max(sum(n for _, _, n in rows), 1)


def peak_memory() -> int:
    """Bytes: the most that torch held on the GPU, or without one the most that this process held."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
