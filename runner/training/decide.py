"""One place decides what becomes of a step, for every engine: guard, health, snapshot, roll-back, incident."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.signals.health import Health, Monitor
from runner.stability.guard import Decision, Seen, StepGuard
from runner.stability.snapshot import Snapshots, choose_place, free_memory
from runner.training.step import Step

if TYPE_CHECKING:
    from runner.training.truth import Truth


class Decider:
    """Asks the guard about each step before the optimizer sees the gradient, and does what it says.

    The numbers it decides on are equal on every process, so all decide alike.
    """

    def __init__(self, trainer: Truth):
        self.trainer = trainer
        stability = trainer.instruments.stability
        self.stability = stability
        self.guard = StepGuard(stability.guard, stability.rollback)
        where = stability.rollback.snapshot
        # Weights, and two moments of the same size.
        self.snapshot_bytes = 3 * sum(p.numel() * p.element_size() for _, p in trainer.trainable())
        if where == "auto":
            where = choose_place(self.snapshot_bytes * trainer.accelerator.num_processes, free_memory())
        self.snapshot_every = stability.rollback.every or {"memory": 25, "disk": 200}[where]
        self.snapshots = Snapshots(where, trainer.instruments.folder, trainer.accelerator.is_local_main_process)
        self.in_stretch = False
        """Whether the step before was broken too."""

        self.sound_scale = 0.0
        """fp16: the largest loss scale at which a gradient was finite."""

        self.monitor = Monitor()
        self.told: Health | None = None
        """Health as telemetry knows it; None before the first row of this process."""

        self.answered = False
        """Whether the guard has acted on the light that is red now."""

        self.incidents = 0
        """Folders written so far. Counted, not looked up: processes need not share a disk."""

    def judge(self, step: Step) -> None:
        """Decide about the step whose `facts` have just been read; a veto takes the gradient away."""
        facts = step.facts
        health = self._look(step)
        seen = Seen(facts["loss"], facts["grad_norm"], facts.get("update_rms"), step.loss_scale)
        if seen.loss_scale is not None and math.isfinite(seen.grad_norm):
            self.sound_scale = max(self.sound_scale, seen.loss_scale)
        elif self._no_scale_would_help(step, seen):
            seen = replace(seen, loss_scale=None)
        windows = self.guard.losses, self.guard.log_norms
        decision = self.guard.judge(seen, self.snapshots.step is not None)
        # A step that the guard itself calls broken is answered by its own settings.
        if decision.reason is None and health.light == "red" and not self.answered:
            doomed = self._answer(health)
            if doomed.vetoes:
                decision = doomed
                self.guard.losses, self.guard.log_norms = windows
        if decision.reason is None or decision.action == "take":
            self.in_stretch = False
            if decision.reason is None and math.isfinite(seen.grad_norm) and self._may_keep(health):
                self.keep_snapshot()
            return
        if decision.action == "skip" and decision.reason == "non_finite" and self._weights_are_broken():
            decision = self.guard.instead(decision)
        facts["action"] = decision.action
        if decision.reason == "spike":
            facts["spike"] = {"loss_z": decision.loss_z, "norm_z": decision.norm_z}
        if decision.reason != "doomed":
            self._record(step, decision)
        if decision.vetoes:
            self.trainer.optimizer.zero_grad(set_to_none=True)
            step.vetoed, step.skipped = True, decision.reason
        if decision.action == "rollback":
            self.roll_back(facts)

    def _look(self, step: Step) -> Health:
        """The light at this step; `facts` gets it where it has changed or is not green."""
        if self.stability.guard.on_doomed == "ignore":
            return Health()
        # Trainer's getter; the row gets the rate only once the step is over.
        rate = float(self.trainer._get_learning_rate())
        health = self.monitor.observe({**step.facts, "learning_rate": rate, "loss_scale": step.loss_scale})
        if health.light != "green" or self.told is None or self.told.light != "green":
            step.facts["health"] = health.as_json()
        self.told = health
        self.answered = self.answered and health.light == "red"
        return health

    def _answer(self, health: Health) -> Decision:
        """What the guard does about a light that is red, once for as long as it stays red."""
        decision = self.guard.doomed(health.sentence.en, self.snapshots.step is not None)
        self.answered = decision.action != "rollback"
        if decision.action == "rollback":
            self.monitor.after_roll_back()
        return decision

    def _may_keep(self, health: Health) -> bool:
        """A state to go back to when a run is doomed comes from before its first warning."""
        return health.light == "green" or self.guard.guard.on_doomed != "rollback" or self.snapshots.step is None

    def keep_snapshot(self) -> None:
        """Where roll-backs are possible: the first sound state, and a new one every `stability.rollback.every` steps.

        The weights are sound because this step's loss was finite, and no spike, with them.
        """
        trainer, taken = self.trainer, self.snapshots.step
        now = trainer.state.global_step
        if self.guard.may_roll_back and (taken is None or now - taken >= self.snapshot_every):
            self.snapshots.keep(
                now,
                trainer.trainable(),
                trainer.optimizer,
                trainer.lr_scheduler,
                trainer.accelerator.scaler,
                self.factor,
            )

    def line(self) -> str:
        """For the header, where steps may be rolled back: what that costs; else ""."""
        if not self.guard.may_roll_back:
            return ""
        where = "in memory" if self.snapshots.where == "memory" else "on disk"
        size = self.snapshot_bytes / 2**20
        return f"{'guard':<10} a snapshot every {self.snapshot_every} steps {where} (about {size:,.0f} MiB)"

    @property
    def factor(self) -> float:
        """What roll-backs have made of the learning rate."""
        return float(self.stability.rollback.lr_backoff**self.guard.rollbacks)

    def roll_back(self, facts: dict[str, Any]) -> None:
        """Weights, optimizer, scheduler and loss scale of the snapshot; the learning rate backs off."""
        trainer = self.trainer
        trainer.accelerator.wait_for_everyone()  # another process's file
        facts["rolled_back_to"] = self.snapshots.restore(
            trainer.trainable(), trainer.optimizer, trainer.lr_scheduler, trainer.accelerator.scaler, self.factor
        )

    def _no_scale_would_help(self, step: Step, seen: Seen) -> bool:
        """fp16: whether a gradient that is not finite, at a loss scale that has worked before, is not its overflow.

        The search upwards and at the start never asks; elsewhere an overflow is rare, and one more pass over the batch
        at the smallest scale tells it from a NaN, which looks the same and would be skipped without a word.
        """
        lowest = self.stability.guard.min_loss_scale
        if self.stability.guard.on_nonfinite == "ignore" or not step.batches or not math.isfinite(seen.loss):
            return False
        if seen.loss_scale is None or not lowest < seen.loss_scale <= self.sound_scale:
            return False
        return not self.trainer.finite_at_scale(lowest)

    def _weights_are_broken(self) -> bool:
        """Whether skipping cannot help, and going back can."""
        return self.snapshots.step is not None and self.snapshots.helps(
            self.trainer.trainable(), self.trainer.optimizer
        )

    def _record(self, step: Step, decision: Decision) -> None:
        """The incident's folder, for the first step of a broken stretch."""
        repeated, self.in_stretch = self.in_stretch, True
        wanted, folder = self.stability.incident, self.trainer.instruments.folder
        if repeated or not wanted.save or not step.batches or self.incidents >= wanted.max_incidents:
            return
        self.incidents += 1
        from runner.training.investigate import investigate

        found = investigate(self.trainer, str(decision.reason), folder, dict(step.facts))
        step.facts["why"] = found["sentence"]
        if found["incident"] is not None:
            step.facts["incident"] = found["incident"]

    def state(self) -> dict[str, Any]:
        """What a resumed run has to know."""
        own = {"in_stretch": self.in_stretch, "sound_scale": self.sound_scale, "incidents": self.incidents}
        health = {"monitor": self.monitor.state(), "answered": self.answered}
        return {**self.guard.state(), **own, "health": health}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.guard.load(state)
        self.in_stretch = bool(state.get("in_stretch", False))
        self.sound_scale = float(state.get("sound_scale", 0.0))
        self.incidents = int(state.get("incidents", 0))
        if "health" in state:
            self.monitor.load(state["health"]["monitor"])
            self.answered = bool(state["health"]["answered"])
