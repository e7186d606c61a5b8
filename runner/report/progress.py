"""Progress: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from typing import Any

from rich.live import Live
from rich.text import Text

from runner.report.broken import broken, what_happened
from runner.report.screen import Screen
from runner.report.summary import DIFFICULTY_POINTS

PLAIN_SECONDS = 5.0
"""Outside a terminal, at least this long between two lines."""

HEALTH_LINES = 8
"""Changes of the health light of one run that each get a line; telemetry has all of them."""

COLOURS = {"green": "green", "yellow": "yellow", "red": "bold red"}

BROKEN_LINES = 20
"""Broken steps of one run that each get a line at once."""

BROKEN_EVERY = 100
"""After those, one broken step in so many gets one."""


def clock(seconds: float) -> str:
    """75 -> 1:15, 3700 -> 1:01:40."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def health_words(health: dict[str, Any]) -> str:
    """ "health ok", "at risk: gradient norm growing", "doomed: loss above its start" of a row's `health`."""
    if health["light"] == "green":
        return "health ok"
    return f"{'doomed' if health['light'] == 'red' else 'at risk'}: {health['short']}"


def step_line(
    row: dict[str, Any],
    total: int,
    speed: str = "",
    eta: float | None = None,
    adjusted: float | None = None,
    health: str = "",
) -> str:
    """ "step 12/213  loss 3.214  adjusted 3.19  grad norm 1.52  lr 4.10e-04  5,210 tokens/s  health ok  ETA 0:48"."""
    parts = [f"step {row['step']}/{total}", f"loss {row['loss']:.4f}"]
    if adjusted is not None:
        parts.append(f"adjusted {adjusted:.4f}")
    if row.get("grad_norm") is not None:
        parts.append(f"grad norm {row['grad_norm']:.3g}")
    if row.get("learning_rate") is not None:
        parts.append(f"lr {row['learning_rate']:.2e}")
    if speed:
        parts.append(speed)
    parts += what_happened(row)
    if health:
        parts.append(health)
    if eta is not None:
        parts.append(f"ETA {clock(eta)}")
    return "  ".join(parts)


class Adjustment:
    """The difficulty-adjusted loss while the run goes on: `runner.signals.difficulty` over the steps so far."""

    def __init__(self, mean: float | None = None):
        self.mean = mean
        """Start model's loss over all rows; None = over the steps so far."""

        self._before: tuple[float, float] | None = None
        self._points = 0
        self._total = 0.0
        self._product = 0.0
        self._square = 0.0

    def __call__(self, loss: float, base: float | None) -> float | None:
        """Loss of this step at equal difficulty; None where the start model's is unknown or known too rarely."""
        if base is None or not (math.isfinite(loss) and math.isfinite(base)):
            return None
        if self._before is not None:
            change, base_change = loss - self._before[0], base - self._before[1]
            self._product += change * base_change
            self._square += base_change**2
        self._before = loss, base
        self._points += 1
        self._total += base
        if self._points < DIFFICULTY_POINTS or self._square == 0:
            return None
        centre = self._total / self._points if self.mean is None else self.mean
        return loss - self._product / self._square * (base - centre)


class Progress:
    """Shows every row live, or one line each few seconds and the last one; broken steps always, each with its own line.

    Speed is over the steps of this process. `base_mean` is the start model's loss over all rows, where it is known.
    """

    def __init__(self, screen: Screen, total: int, base_mean: float | None = None):
        self.screen = screen
        self.total = total
        self.adjustment = Adjustment(base_mean)
        self._live = Live(console=screen.console, refresh_per_second=4, transient=True) if screen.interactive else None
        self._start: float | None = None
        self._steps = 0
        self._tokens = 0
        self._examples = 0
        self._broken = 0
        self._health: dict[str, Any] | None = None
        self._turns = 0
        self._last_line = -math.inf

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self, row: dict[str, Any]) -> None:
        """Show one finished step."""
        now = time.perf_counter()
        if self._start is None:
            self._start = now - row.get("seconds", 0.0)
        self._steps += 1
        self._tokens += row.get("tokens", 0)
        self._examples += row.get("examples", 0)
        spent = max(now - self._start, 1e-9)
        left = (self.total - row["step"]) * spent / self._steps
        adjusted = self.adjustment(row["loss"], row.get("base_loss"))
        self._turn(row)
        words = health_words(self._health) if self._health is not None else ""
        line = step_line(row, self.total, self.speed(spent), left, adjusted, words)
        told = broken(row) and self.tell_broken(row)
        if self._live is not None:
            text = Text(line)
            if self._health is not None:
                text.highlight_words([words], COLOURS[self._health["light"]])
            self._live.update(text)
        elif not told and (row["step"] == self.total or now - self._last_line >= PLAIN_SECONDS):
            self._last_line = now
            self.screen.say(line)

    def _turn(self, row: dict[str, Any]) -> None:
        """One line that stays where the health light changes; a light is known from the first row that has one."""
        before = self._health
        self._health = row.get("health") or (None if before is None else {"light": "green"})
        if self._health is None or self._health["light"] == (before or {"light": "green"})["light"]:
            return
        self._turns += 1
        if self._turns > HEALTH_LINES:
            return
        light = self._health["light"]
        if light == "green":
            words = "health ok again"
        else:
            words = f"{'doomed' if light == 'red' else 'at risk'}: {self._health['sentence']}"
        self.screen.say(f"step {row['step']}/{self.total}  {words}", style=COLOURS[light])
        if self._turns == HEALTH_LINES:
            self.screen.say("further changes of the health light are in telemetry.jsonl only")

    def tell_broken(self, row: dict[str, Any]) -> bool:
        """One line that stays, for a broken step; False where there were so many that this one is left to telemetry."""
        self._broken += 1
        if self._broken > BROKEN_LINES and self._broken % BROKEN_EVERY:
            return False
        self.screen.say(step_line(row, self.total), style="bold red")
        if row.get("why"):
            self.screen.say(f"  {row['why']}", style="red")
        if self._broken == BROKEN_LINES:
            self.screen.say(
                f"{BROKEN_LINES} broken steps so far; from here on one in {BROKEN_EVERY} is shown, and all are in "
                "telemetry.jsonl"
            )
        return True

    def speed(self, seconds: float) -> str:
        """Trained tokens per second; rows per second where a row has one label."""
        if self._tokens > self._examples:
            return f"{self._tokens / seconds:,.0f} tokens/s"
        return f"{self._examples / seconds:,.1f} rows/s" if self._examples else ""

    def evaluation(self, step: int, metrics: dict[str, float]) -> None:
        """One line for an evaluation; losses and scores only."""
        skipped = ("runtime", "per_second", "num_tokens", "entropy", "epoch", "mean_token_accuracy")
        shown = {k: v for k, v in metrics.items() if k.startswith("eval_") and not any(s in k for s in skipped)}
        text = "  ".join(f"{k.removeprefix('eval_')} {v:.4f}" for k, v in shown.items())
        self.screen.say(f"eval at step {step}  {text}", style="cyan")
