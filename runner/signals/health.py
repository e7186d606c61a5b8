"""A light for a run that goes on: green, yellow (at risk), red (doomed), with the reason. Pure, constant memory.

Red means "lost with high probability unless something changes", so it needs either one sign that is conclusive, or
evidence of two kinds that agree for a few steps: the loss has left its band *and* the steps are too large. Yellow
needs one warning. The light goes down only after a stretch without the signs, so that it does not flicker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from runner.signals.loss_watch import LossWatch
from runner.signals.sign_words import Facts, Sign
from runner.signals.warning_signs import NumberWatch, StepWatch
from runner.text import Text

Light = Literal["green", "yellow", "red"]

HOLD = 3
"""Steps in a row for which two kinds of evidence have to agree before the light turns red."""

EARLY = 16
"""Steps at whose start the loss needs a warning, no mere hint: warm-up makes norms jump that have hardly a past."""

CLEAN = {"yellow": 10, "red": 32}
"""Steps without its signs after which a light goes down."""


SILENT = Text("", "")


@dataclass(frozen=True)
class Health:
    """The light after a step, and why it is not green."""

    light: Light = "green"
    reason: str | None = None
    """Slug of the strongest sign; None on green."""

    short: Text = SILENT
    sentence: Text = SILENT

    def as_json(self) -> dict[str, Any]:
        """{"light", "reason"} as it stands in a telemetry row; where not green also "short", "sentence", in English."""
        found: dict[str, Any] = {"light": self.light, "reason": self.reason}
        return found if self.reason is None else {**found, "short": self.short.en, "sentence": self.sentence.en}


class Monitor:
    """Takes each step's facts and each probe's line; `health` is the light now."""

    def __init__(self) -> None:
        self.loss, self.steps, self.numbers = LossWatch(), StepWatch(), NumberWatch()
        self.health = Health()
        self.seen = 0
        self._agreeing = 0
        self._clean = 0

    def expect(self, noise: dict[str, Any]) -> None:
        """`noise` of `base_loss.json`: the band that the loss of an untrained model lies in."""
        if noise.get("mean") is not None and noise.get("sd_step") is not None:
            rows = float(noise.get("examples") or 0) / max(float(noise.get("batch") or 1), 1.0)
            self.loss.expect(float(noise["mean"]), float(noise["sd_step"]), rows)

    def probe(self, line: Facts) -> None:
        """Take a line of `probes.jsonl`."""
        self.steps.probe(line)
        self.numbers.probe(line)

    def observe(self, facts: Facts) -> Health:
        """The light at a step, of which `facts` holds what is known before its update is made.

        Used are loss, base_loss, grad_norm, learning_rate, update_rms, weight_rms, rms_t and loss_scale, each where
        it is known.
        """
        self.seen += 1
        loss, steps, numbers = self.loss.update(facts), self.steps.update(facts), self.numbers.update(facts)
        signs = sorted([*numbers, *loss, *steps], key=lambda sign: -sign.points)
        now = self._light(_points(loss), _points(steps), _points(numbers))
        self._turn(now, signs)
        return self.health

    def after_roll_back(self) -> None:
        """The weights are those of earlier steps again: begin anew, but for what the start was like."""
        before, self.loss, self.steps = self.loss, LossWatch(), StepWatch()
        for name in ("mean", "sd", "offset", "first"):
            setattr(self.loss, name, getattr(before, name))
        self.seen = self._agreeing = self._clean = 0
        self.health = Health()

    def _light(self, loss: int, steps: int, numbers: int) -> Light:
        enough = loss >= 2 if self.seen <= EARLY else loss >= 1
        agree = enough and steps >= 1 and loss + steps >= 3
        self._agreeing = self._agreeing + 1 if agree else 0
        if max(loss, steps, numbers) >= 3 or self._agreeing >= HOLD:
            return "red"
        return "yellow" if max(loss, steps, numbers) >= 2 or (loss and steps) else "green"

    def _turn(self, now: Light, signs: list[Sign]) -> None:
        """Up at once, down one light after a clean stretch."""
        rank = ("green", "yellow", "red")
        held = self.health.light
        if rank.index(now) >= rank.index(held):
            self._clean = 0
            if now != "green":
                self.health = _health(now, signs)
            return
        self._clean += 1
        if self._clean >= CLEAN[held]:
            self._clean = 0
            self.health = _health(now, signs) if now != "green" else Health()

    def state(self) -> dict[str, Any]:
        """For a checkpoint: valid JSON."""
        health = self.health
        return {
            "loss": self.loss.state(),
            "steps": self.steps.state(),
            "numbers": self.numbers.state(),
            "seen": self.seen,
            "agreeing": self._agreeing,
            "clean": self._clean,
            "health": [health.light, health.reason, list(health.short), list(health.sentence)],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`; what `expect` set stays."""
        self.loss.load(state["loss"])
        self.steps.load(state["steps"])
        self.numbers.load(state["numbers"])
        self.seen, self._agreeing, self._clean = int(state["seen"]), int(state["agreeing"]), int(state["clean"])
        light, reason, short, sentence = state["health"]
        self.health = Health(light, reason, Text(*short), Text(*sentence))


def _points(signs: list[Sign]) -> int:
    return max((sign.points for sign in signs), default=0)


def _health(light: Light, signs: list[Sign]) -> Health:
    """Said is the strongest sign; where red needs two kinds to agree, both."""
    first, sentence = signs[0], signs[0].sentence
    if light == "red" and first.points < 3:
        other = next((sign for sign in signs if sign.kind != first.kind), None)
        if other is not None:
            sentence = Text(f"{sentence.en}; {other.sentence.en}", f"{sentence.zh}；{other.sentence.zh}")
    return Health(light, first.slug, first.short, sentence)
