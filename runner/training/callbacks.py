"""The trainer's events that the truth about a step depends on, and what of it is kept in a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

if TYPE_CHECKING:
    from runner.training.truth import Truth


class StepFacts(TrainerCallback):
    """Reads the learning rate as applied, sets the epoch of the data order, runs the probes, and closes each step."""

    def __init__(self, trainer: Truth):
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What has to be measured with the model as it is before the first step."""
        if self.trainer.probes is not None:
            self.trainer.probes.listen = self.trainer.decider.monitor.probe
        self.trainer.begin_training()

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
        trainer = self.trainer
        step, scaled = trainer.step_now, trainer.accelerator.scaler is not None
        overflow = scaled and step.grad_norm is not None and not bool(torch.isfinite(step.grad_norm))
        if step.vetoed or overflow:
            optimizer._is_overflow = True
        elif not scaled and hasattr(optimizer, "_is_overflow"):
            optimizer._is_overflow = False
        if trainer.probes is not None:
            taken = not trainer.accelerator.optimizer_step_was_skipped
            trainer.probes.after_update(state.global_step + 1) if taken else trainer.probes.cancel()

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

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last measurement of the probe set; the snapshot has served."""
        self.trainer.decider.snapshots.discard()
        if self.trainer.probes is not None and self.trainer.guard.ends_run is None:
            self.trainer.probes.finish(state.global_step)


class StabilityState(TrainerCallback, ExportableState):
    """Carries what clipping, guard and probes have learnt through a checkpoint, in `trainer_state.json`."""

    def __init__(self, trainer: Truth):
        self.trainer = trainer

    def state(self) -> dict[str, Any]:
        """Trainer's shape: no constructor arguments, and what is remembered."""
        trainer = self.trainer
        kept = {
            "clip": trainer.clipper.state(),
            "guard": trainer.decider.state(),
            "noise_scale": trainer.noise_scale.state(),
            "probes": trainer.probes.state() if trainer.probes is not None else {},
        }
        return {"args": {}, "attributes": kept}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After a resume, Trainer's state holds what the checkpoint held."""
        saved = state.stateful_callbacks.get("StabilityState", {})
        learnt = saved.get("attributes", {}) if isinstance(saved, dict) else {}
        if learnt.get("clip"):
            self.trainer.clipper.load(learnt["clip"])
        if learnt.get("guard"):
            self.trainer.decider.load(learnt["guard"])
        if learnt.get("noise_scale"):
            self.trainer.noise_scale.load(learnt["noise_scale"])
        if learnt.get("probes") and self.trainer.probes is not None:
            self.trainer.probes.load(learnt["probes"])
