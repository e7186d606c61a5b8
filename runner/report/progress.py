"""Progress: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from typing import Any

from rich.live import Live
from rich.text import Text

from runner.report.screen import Screen

PLAIN_SECONDS = 5.0
"""Outside a terminal, at least this long between two lines."""


def clock(seconds: float) -> str:
    """75 -> 1:15, 3700 -> 1:01:40."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def step_line(row: dict[str, Any], total: int, speed: str, eta: float | None) -> str:
    """ "step 12/213  loss 3.214  grad norm 1.52  lr 4.10e-04  5,210 tokens/s  ETA 0:48"."""
    parts = [f"step {row['step']}/{total}", f"loss {row['loss']:.4f}"]
    if row.get("grad_norm") is not None:
        parts.append(f"grad norm {row['grad_norm']:.3g}")
    if row.get("learning_rate") is not None:
        parts.append(f"lr {row['learning_rate']:.2e}")
    if speed:
        parts.append(speed)
    if row.get("skipped"):
        parts.append(f"skipped ({row['skipped']})")
    if eta is not None:
        parts.append(f"ETA {clock(eta)}")
    return "  ".join(parts)


class Progress:
    """Shows every row live, or one line each few seconds and the last one. Speed is over the steps of this process."""

    def __init__(self, screen: Screen, total: int):
        self.screen = screen
        self.total = total
        self._live = Live(console=screen.console, refresh_per_second=4, transient=True) if screen.interactive else None
        self._start: float | None = None
        self._steps = 0
        self._tokens = 0
        self._examples = 0
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
        line = step_line(row, self.total, self.speed(spent), left)
        if self._live is not None:
            self._live.update(Text(line))
        elif row["step"] == self.total or now - self._last_line >= PLAIN_SECONDS:
            self._last_line = now
            self.screen.say(line)

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
