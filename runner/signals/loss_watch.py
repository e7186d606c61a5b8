"""Signs that the loss has left the band it should be in; `runner.signals.warning_signs` has the other kinds."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from runner.signals import sign_words as words
from runner.signals.online import Cusum, DifferenceNoise, Level, Ring
from runner.signals.sign_words import Facts, Sign, known

RELATIVE_FLOOR = 0.01
ABSOLUTE_FLOOR = 0.01
"""Least noise of a loss: 1 % of its level, 0.01 nats. In a converged run nothing that small matters."""

UNKNOWN_NOISE, MOST_NOISE = 0.25, 0.5
"""Noise assumed before any is known, and most that is believed, as shares of the level: batches of one row vary by a
quarter; what varies by more than half of its start is the fault itself."""


class LossWatch:
    """Whether the loss has left the band it should be in: above the start model's, or up from its own lowest level."""

    def __init__(self) -> None:
        self.mean = self.sd = math.nan
        """Loss of the start model, and how far one step's loss moves around it, where they are known."""

        self.offset = 0.0
        self.first: list[float] = []
        self.noise = DifferenceNoise()
        self.level = Level(10)
        self.last = Ring(8)
        self.above = Cusum(drift=1.5, cap=6.0)
        # 0.65 sd is what the least of a thousand averages lies below the truth, 1.35 what has to be exceeded.
        self.risen = Cusum(drift=2.0, cap=4.0)
        self.excess_noise = DifferenceNoise(16, 6)
        self.excess_level = Level(5, settled=2)
        self.excess = Cusum(drift=1.5, cap=4.0)
        self.excesses = Ring(3)

    def expect(self, mean: float, sd: float, rows: float) -> None:
        """Loss of the start model; the deviation of one step's; on how many steps' worth of rows both rest."""
        if math.isfinite(mean) and math.isfinite(sd) and sd > 0 and rows > 0:
            self.mean, self.sd, self.offset = mean, sd, min(1.0 / math.sqrt(rows), 1.0)

    def update(self, facts: Facts) -> list[Sign]:
        """Signs at this step. A loss that is not finite is left to `NumberWatch`."""
        loss, base = known(facts.get("loss")), known(facts.get("base_loss"))
        if not math.isfinite(loss):
            return []
        signs = [*self._against_base(loss, base), *self._above_start(loss, base), *self._risen(loss)]
        if len(self.first) < 16:
            self.first.append(loss)
        self.noise.update(loss)
        self.level.update(loss)
        return signs

    def _floor(self, level: float) -> float:
        return max(RELATIVE_FLOOR * abs(level), ABSOLUTE_FLOOR)

    def own_sd(self, level: float) -> float:
        """Noise of this run's loss. Where that of the start model is known, at most 1.5 times it: more is no sampling.
        Elsewhere with a margin for what few values tell."""
        own = self.noise.sd
        if math.isfinite(self.sd):
            return max(min(own, 1.5 * self.sd) if math.isfinite(own) else self.sd, self._floor(level))
        own = own * (1 + 2 / math.sqrt(len(self.noise.ring))) if math.isfinite(own) else UNKNOWN_NOISE * abs(self.start)
        return max(min(own, MOST_NOISE * abs(self.start)), self._floor(level))

    @property
    def start(self) -> float:
        """Level that the run began at; NaN before the first loss.

        The median of the first 3 losses, or of the first 16 where that is higher, but not where it is so much higher
        that the run has broken within these.
        """
        if math.isfinite(self.mean) or not self.first:
            return self.mean
        few, more = median(self.first[:3]), median(self.first)
        return more if few < more < 1.5 * few else few

    def _above_start(self, loss: float, base: float) -> list[Sign]:
        start = self.start
        if not math.isfinite(start):
            return []
        # One and a half standard errors of a median.
        sd, offset = self.own_sd(start), 1.9 / math.sqrt(max(len(self.first), 1))
        if math.isfinite(self.mean):
            sd, offset = max(sd, self.sd), self.offset
        elif len(self.noise.ring) < 32:
            sd = max(sd, UNKNOWN_NOISE * abs(start))
        same_rows = loss if not (math.isfinite(base) and math.isfinite(self.mean)) else loss - base + self.mean
        z = (same_rows - start) / sd
        total = self.above.update(z - offset)
        points = 3 if total >= 11 else 2 if total >= 6 else 1 if total >= 4 else 0
        return [words.above_start(points, loss, start, sd)] if points and z > 0 else []

    def _risen(self, loss: float) -> list[Sign]:
        self.last.update(loss)
        lowest = self.level.lowest
        if not math.isfinite(lowest):
            return []
        sd, start, now = self.own_sd(lowest), self.start, self.last.median
        total = self.risen.update((loss - lowest) / sd)
        points = 2 if total >= 8 else 0
        if self.excess_level.count >= 3:
            if self.excess.value < self._lifted:
                return []  # harder rows: on the same ones the model is as much better than the start model as before
            points = points or int(self.last.mean - lowest > sd)
        learnt = start - lowest
        if points == 2 and learnt > 4 * sd and now >= start - 0.1 * learnt:
            return [words.lost_all(now, start, lowest)]
        return [words.loss_risen(points, now, lowest, sd)] if points else []

    @property
    def _lifted(self) -> float:
        """Sum from which the adjusted loss counts as lifted. Of many values chance makes one high now and then."""
        return 0.25 if self.excess_level.count < 12 else 2.0

    def _against_base(self, loss: float, base: float) -> list[Sign]:
        if math.isfinite(base):
            excess, lowest = loss - base, self.excess_level.lowest
            # The start model's loss explains 0.65 to 0.98 of the variance of an adapter's (DESIGN 7.3).
            floor = 0.35 * self.sd if math.isfinite(self.sd) else 0.35 * UNKNOWN_NOISE * abs(base)
            own = self.excess_noise.sd
            sd = max(floor, own if math.isfinite(own) else 0.0, ABSOLUTE_FLOOR)
            if math.isfinite(lowest):
                self.excess.update((excess - lowest) / sd)
            self.excess_noise.update(excess)
            self.excess_level.update(excess)
            self.excesses.update(excess)
        worse = min(self.excesses.values) if len(self.excesses) == 3 else -math.inf
        if worse > self.sd:
            return [words.worse_than_start(3 if worse > 1.5 * self.sd else 2, worse)]
        total = self.excess.value
        points = 2 if total >= self._lifted + 8 else 1 if total >= self._lifted else 0
        return [words.worse_on_same_rows(points, self.excess_level.value)] if points else []

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        parts = {name: getattr(self, name).state() for name in _LOSS_PARTS}
        return {**parts, "first": list(self.first)}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`; what `expect` set stays."""
        for name in _LOSS_PARTS:
            getattr(self, name).load(state[name])
        self.first = [float(x) for x in state["first"]]


_LOSS_PARTS = ("noise", "level", "last", "above", "risen", "excess_noise", "excess_level", "excess", "excesses")
