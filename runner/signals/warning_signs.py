"""Signs that the steps are too large, or that the number format no longer carries the training.

Step by step, in constant memory. A sign weighs 1 to 3: 1 = a hint, said to nobody by itself; 2 = a warning; 3 = the run
is lost unless something changes. Three watchers (`runner.signals.loss_watch` has the third), one for each kind of
evidence, so that `runner.signals.health` can ask for two kinds that agree before it calls a run doomed. Thresholds
stand beside them, with what they rest on; they were set on simulated benign noise (falling 1.5 to 1.15, coefficient of
variation 0.1 to 0.25), on public healthy logs, and on runs of a tiny model at 100 times its rate.
"""

from __future__ import annotations

import math
from typing import Any

from runner.signals import sign_words as words
from runner.signals.online import Growth, Ring
from runner.signals.sign_words import LAGS, Facts, Sign, known

JUMP, FAR_JUMP = 5.0, 10.0
"""Factors above the median of calm steps. Norms of single healthy steps reach the first one now and then."""

NORM_GROWN, NORM_GROWING, NORM_ABOVE_LOWEST = 2.5, 2.0, 3.0
"""Factors of the median of 8 steps, warning and hint: above that of the 64 before; and above the lowest slow average.
The first two have to be 4 and 3.5 standard errors as well: norms of healthy steps scatter by 0.3 to 0.5 (log)."""

REPLACED = 0.5
"""Update over weights, both RMS: such a step replaces the weights instead of improving them. Healthy: 0.001 to 0.1."""


class StepWatch:
    """Whether the steps are too large: gradient norms, update size, second moment, probes along the update."""

    def __init__(self) -> None:
        self.growth = Growth()
        self.calm = Ring(32)
        self.rejected = 0
        self.grown = False
        self.far = Ring(4)
        self.ratios = Ring(2)
        self.moments = Ring(3)
        self.lines = Ring(2)
        """Relative length of the last updates; 10 stands for one that did not lead down."""

        self.increases = Ring(8)
        self.rate = 0.0
        """Learning rate of the step before."""

        self.warming = False

    def update(self, facts: Facts) -> list[Sign]:
        """Signs at this step, before its update is made."""
        rate = known(facts.get("learning_rate"))
        if math.isfinite(rate):
            self.warming, self.rate = rate > self.rate > 0, rate
        norm = known(facts.get("grad_norm"))
        factor = self._jump(norm)
        signs = [*self._norms(factor), *self._weights(facts, factor), *self._moment(facts), *self._probed()]
        return signs

    def probe(self, line: Facts) -> None:
        """Take a line of `probes.jsonl`; changes smaller than the rounding of a loss say nothing."""
        if line["probe"] == "line":
            l0, half, l1, s = (known(line.get(k)) for k in ("l0", "l_half", "l1", "s"))
            if max(abs(half - l0), abs(l1 - l0)) > 1e-4 * abs(l0):
                self.lines.update(s if math.isfinite(s) else 10.0)
        elif line["probe"] == "replay":
            change = known(line.get("after")) - known(line.get("before"))
            if abs(change) > 1e-4 * abs(known(line.get("before"))):
                self.increases.update(float(change > 0))

    def _jump(self, norm: float) -> float:
        """The norm as a multiple of calm ones; NaN where unknown. Jumps do not count as calm unless they stay."""
        if not (math.isfinite(norm) and norm > 0):
            return math.nan
        self.growth.update(norm)
        factor = norm / self.calm.median if len(self.calm) else math.nan
        if len(self.calm) < 2 and factor < FAR_JUMP:
            factor = math.nan  # hardly a past to compare with
        if factor > JUMP and self.rejected < 24:
            self.rejected += 1
        else:
            if self.rejected >= 24:
                self.calm.load([])
            self.rejected = 0
            self.calm.update(norm)
        self.far.update(float(factor > FAR_JUMP))
        return factor

    def _norms(self, factor: float) -> list[Sign]:
        ratio, lowest, sure = self.growth.ratio, self.growth.above_lowest, self.growth.z
        growing = ratio >= NORM_GROWING and sure >= 3.5
        signs = []
        if sum(self.far.values) >= 3:
            signs.append(words.norm_jumped(2, factor))
        # Once grown it counts as grown until it has come down: its own values widen the scatter it is judged by.
        self.grown = (ratio >= NORM_GROWN and sure >= 4) or (self.grown and ratio >= NORM_GROWING)
        if self.grown:
            signs.append(words.norm_grown(2, ratio))
        elif growing or lowest >= NORM_ABOVE_LOWEST:
            signs.append(words.norm_grown(1, ratio if growing else lowest))
        if factor > JUMP:
            signs.append(words.norm_jumped(1, factor))
        return signs

    def _weights(self, facts: Facts, factor: float) -> list[Sign]:
        update, weight = known(facts.get("update_rms")), known(facts.get("weight_rms"))
        if math.isfinite(update) and weight > 0:
            self.ratios.update(update / weight)
        if len(self.ratios) < 2 or min(self.ratios.values) < REPLACED:
            return []
        # Weights that begin at 0 have such steps too, but their gradient does not grow.
        return [words.weights_replaced(3 if factor > JUMP else 2, self.ratios.values[-1], factor)]

    def _moment(self, facts: Facts) -> list[Sign]:
        self.moments.update(known(facts.get("rms_t")))
        lagging = [x for x in self.moments.values if x > LAGS]
        return [words.moment_lags(1 if self.warming else 2, max(lagging))] if len(lagging) >= 2 else []

    def _probed(self) -> list[Sign]:
        signs = []
        if self.lines.values:
            over = sum(s > 2 for s in self.lines.values)
            beyond = sum(s > 1 for s in self.lines.values)
            if over or beyond == 2:
                signs.append(words.overshoots(2 if over == 2 else 1, self.lines.values[-1]))
        share = self.increases.mean
        if len(self.increases) >= 4 and share >= 0.3:
            signs.append(words.raises_own_loss(2 if share >= 0.5 else 1, share))
        return signs

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        parts = {name: getattr(self, name).state() for name in _STEP_PARTS}
        return {**parts, **{name: getattr(self, name) for name in _STEP_PLAIN}}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        for name in _STEP_PARTS:
            getattr(self, name).load(state[name])
        for name in _STEP_PLAIN:
            setattr(self, name, state[name])


_STEP_PLAIN = ("rejected", "grown", "rate", "warming")
_STEP_PARTS = ("growth", "calm", "far", "ratios", "moments", "lines", "increases")


class NumberWatch:
    """Whether the number format still carries the training: values that are not finite, skipped steps, lost updates."""

    def __init__(self) -> None:
        self.bad_losses = 0
        self.overflows = 0
        """Steps in a row whose gradient was not finite though the loss was: fp16's scale gives way."""

        self.share = Ring(32)
        self.sound = False
        self.highest_rate = self.rate = 0.0
        self.lost = 0.0

    def update(self, facts: Facts) -> list[Sign]:
        """Signs at this step."""
        loss, norm, rate = (known(facts.get(k)) for k in ("loss", "grad_norm", "learning_rate"))
        if math.isfinite(rate):
            self.rate, self.highest_rate = rate, max(rate, self.highest_rate)
        broken_gradient = facts.get("grad_norm") is not None and not math.isfinite(norm)
        # A loss of exactly 0 beside a broken gradient is a NaN that another tool's log hides.
        fine = math.isfinite(loss) and not (loss == 0 and broken_gradient)
        self.bad_losses = 0 if fine else self.bad_losses + 1
        overflow = fine and broken_gradient
        self.overflows = self.overflows + 1 if overflow else 0
        self.sound = self.sound or math.isfinite(norm)
        if self.sound:
            self.share.update(float(overflow))
        signs = []
        if self.bad_losses:
            signs.append(words.not_finite(min(self.bad_losses, 3), self.bad_losses))  # single ones are the guard's
        points = self._overflow_points()
        if points:
            signs.append(words.overflows(points, self.overflows, facts.get("loss_scale")))
        # A rate on its way to 0 loses updates in any format.
        if self.lost > 0.2 and self.rate > 0.05 * self.highest_rate:
            signs.append(words.updates_lost(2, self.lost))
        return signs

    def _overflow_points(self) -> int:
        if not self.sound:  # the scale's search at the start
            return 2 if self.overflows >= 20 else 0
        often = self.share.mean if len(self.share) >= 16 else 0.0
        if self.overflows >= 8 or (often >= 0.5 and self.overflows):
            return 3
        return 2 if self.overflows >= 3 or (often >= 0.25 and self.overflows) else 0

    def probe(self, line: Facts) -> None:
        """Take a line of `probes.jsonl`."""
        if line["probe"] == "lost_updates" and math.isfinite(known(line.get("share"))):
            self.lost = float(line["share"])

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        plain = {name: getattr(self, name) for name in _NUMBER_PARTS}
        return {**plain, "share": self.share.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        for name in _NUMBER_PARTS:
            setattr(self, name, state[name])
        self.share.load(state["share"])


_NUMBER_PARTS = ("bad_losses", "overflows", "sound", "highest_rate", "rate", "lost")
