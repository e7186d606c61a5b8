"""`stability.guard`: what becomes of a step, decided before the optimizer sees it. Pure; the trainer obeys.

Broken are a loss or gradient that is not finite, and a spike. The windows that a spike is measured against hold
accepted values only, so neither a NaN nor a rejected spike widens them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from runner.config.schema import Guard, Rollback
from runner.signals.robust import robust_z

Reason = Literal["non_finite", "spike", "doomed"]
SMALLEST = 1e-12
"""Norm whose logarithm stands in for that of 0."""


LOSS_FLOOR = 0.01
"""Least scale of a loss, in nats: where all losses are near 0, one of 0.05 is no spike."""

LOG_FLOOR = 0.05
"""Least scale of a log norm: a norm that hardly varies makes no spike of one that is 5 % larger."""


@dataclass(frozen=True)
class Seen:
    """What is known of a step before the optimizer: the global batch's loss, the norm before clipping."""

    loss: float
    grad_norm: float
    update_rms: float | None = None
    """Size of the update that the optimizer is about to make, where it is known."""

    loss_scale: float | None = None
    """fp16's scale at this step; None without one."""


@dataclass(frozen=True)
class Decision:
    """`action` is take for a sound step; otherwise what `reason` brings about. A spike carries its z-scores."""

    action: Literal["take", "warn", "skip", "rollback", "stop"]
    reason: Reason | None = None
    loss_z: float = 0.0
    norm_z: float = 0.0

    @property
    def vetoes(self) -> bool:
        """Whether the optimizer must not see this gradient."""
        return self.action in ("skip", "rollback", "stop")


class StepGuard:
    """Judges each step; `state` and `load` carry what it knows through a checkpoint.

    An fp16 step whose scaled gradient overflowed while its loss was finite is the loss scale's search, which skips it
    itself: it neither counts nor ends a row of broken steps, unless the scale has fallen to `min_loss_scale`.
    """

    def __init__(self, guard: Guard, rollback: Rollback):
        self.guard = guard
        self.rollback = rollback
        self.losses: list[float] = []
        self.log_norms: list[float] = []
        self.consecutive = 0
        self.rollbacks = 0
        self.rolled_back_since_good = False
        self.ends_run: str | None = None
        """Why the run has to end after this step; None while it may go on."""

    @property
    def acts(self) -> bool:
        """Whether any step can be vetoed."""
        found = {self.guard.on_nonfinite, self.guard.on_spike, self.guard.on_doomed}
        return bool(found & {"skip", "rollback", "stop"})

    @property
    def watches(self) -> bool:
        """Whether a broken step has any consequence."""
        return {self.guard.on_nonfinite, self.guard.on_spike} != {"ignore"}

    @property
    def may_roll_back(self) -> bool:
        """Whether snapshots are needed."""
        found = {self.guard.on_nonfinite, self.guard.on_spike} & {"skip", "rollback"}
        return bool(found) or self.guard.on_doomed == "rollback"

    def judge(self, seen: Seen, can_roll_back: bool) -> Decision:
        """The decision about one step. `can_roll_back` says whether there is a snapshot."""
        finite = math.isfinite(seen.loss) and math.isfinite(seen.grad_norm)
        if finite and seen.update_rms is not None and not math.isfinite(seen.update_rms):
            finite = False
        elif self._is_scale_search(seen):
            return Decision("take")
        if not finite:
            return self._broken(Decision("take", "non_finite"), self.guard.on_nonfinite, can_roll_back)
        loss_z, norm_z = self._z(seen)
        if max(loss_z, norm_z) > self.guard.spike_z:
            spike = Decision("take", "spike", loss_z, norm_z)
            decision = self._broken(spike, self.guard.on_spike, can_roll_back)
        else:
            decision = Decision("take")
            self.consecutive = 0
            self.rolled_back_since_good = False
        if not decision.vetoes:
            self._accept(seen)
        return decision

    def instead(self, decision: Decision) -> Decision:
        """Roll back where the step was only to be skipped: the weights are broken and the snapshot's are not.

        Where no roll-back is left, the run ends.
        """
        if self.rollbacks >= self.rollback.max_rollbacks:
            self.ends_run = f"stability.rollback: {self.rollbacks} roll-backs did not help."
            return replace(decision, action="stop")
        self._count_roll_back()
        return replace(decision, action="rollback")

    def doomed(self, sentence: str, can_roll_back: bool) -> Decision:
        """The decision about a step at which the health light has turned red; `sentence` says why.

        Where no roll-back is possible or left, `rollback` ends the run.
        """
        found = Decision("take", "doomed")
        wanted = self.guard.on_doomed
        if wanted in ("warn", "ignore"):
            return found
        if wanted == "rollback" and can_roll_back and self.rollbacks < self.rollback.max_rollbacks:
            self._count_roll_back()
            return replace(found, action="rollback")
        tried = ""
        if wanted == "rollback":
            tried = f"; {self.rollbacks} roll-backs did not help" if self.rollbacks else "; nothing to roll back to"
        self.ends_run = f"stability.guard.on_doomed={wanted}: {sentence}{tried}."
        return replace(found, action="stop")

    def _is_scale_search(self, seen: Seen) -> bool:
        overflow = math.isfinite(seen.loss) and not math.isfinite(seen.grad_norm)
        return overflow and seen.loss_scale is not None and seen.loss_scale > self.guard.min_loss_scale

    def _z(self, seen: Seen) -> tuple[float, float]:
        """Robust z-scores of loss and log norm against the accepted steps before; 0 while those are too few."""
        if self.guard.on_spike == "ignore" or len(self.losses) < self.guard.spike_min_steps:
            return 0.0, 0.0
        return robust_z(seen.loss, self.losses, LOSS_FLOOR), robust_z(_log(seen.grad_norm), self.log_norms, LOG_FLOOR)

    def _accept(self, seen: Seen) -> None:
        self.losses = [*self.losses, seen.loss][-self.guard.spike_window :]
        self.log_norms = [*self.log_norms, _log(seen.grad_norm)][-self.guard.spike_window :]

    def _broken(self, found: Decision, wanted: str, can_roll_back: bool) -> Decision:
        what = "a loss, gradient or update that is not finite" if found.reason == "non_finite" else "a spike"
        key = "on_nonfinite" if found.reason == "non_finite" else "on_spike"
        if wanted == "ignore":
            return found
        if wanted == "stop":
            self.ends_run = f"stability.guard.{key}=stop: this step has {what}."
            return replace(found, action="stop")
        if wanted == "warn" and found.reason == "spike":
            return replace(found, action="warn")
        self.consecutive += 1
        row = f"stability.guard: {self.consecutive} steps in a row with {what}."
        enough = self.consecutive >= self.guard.max_consecutive
        if wanted == "warn":
            self.ends_run = row if enough else None
            return replace(found, action="warn")
        left = can_roll_back and self.rollbacks < self.rollback.max_rollbacks and not self.rolled_back_since_good
        if left and (wanted == "rollback" or enough):
            self._count_roll_back()
            return replace(found, action="rollback")
        if enough:
            helpless = "" if can_roll_back else " No step was sound before, so there is nothing to roll back to."
            self.ends_run = row + (f" {self.rollbacks} roll-backs did not help." if self.rollbacks else helpless)
        return replace(found, action="skip")

    def _count_roll_back(self) -> None:
        self.rollbacks += 1
        self.rolled_back_since_good = True
        self.consecutive = 0

    def state(self) -> dict[str, Any]:
        """What a resumed run has to know."""
        return {
            "losses": list(self.losses),
            "log_norms": list(self.log_norms),
            "consecutive": self.consecutive,
            "rollbacks": self.rollbacks,
            "rolled_back_since_good": self.rolled_back_since_good,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`; a checkpoint of an older version knows less."""
        self.losses, self.log_norms = list(state.get("losses", [])), list(state.get("log_norms", []))
        self.consecutive, self.rollbacks = int(state["consecutive"]), int(state.get("rollbacks", 0))
        self.rolled_back_since_good = bool(state.get("rolled_back_since_good", False))


def _log(norm: float) -> float:
    """Norms vary by factors, so their logarithms are compared."""
    return math.log(max(norm, SMALLEST))
