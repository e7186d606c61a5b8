"""`stability`: what is measured while the run trains, and what happens to a step that is broken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass
class Guard:
    """What happens when the loss or the gradient of a step is NaN or infinite."""

    on_nonfinite: Literal["warn", "skip", "stop", "ignore"] = "warn"
    """warn = take and count the step; skip = no update, the schedule waits; stop = end the run; ignore = bare."""

    max_consecutive: int = 3
    """This many non-finite steps in a row end the run (warn, skip): nothing is learnt from NaN weights."""


@dataclass
class Stability:
    """observe writes every fact to the run folder; guarded also skips broken steps; off measures nothing beyond HF's
    own log."""

    telemetry: bool = True
    """Write `telemetry.jsonl`, one row per optimizer step, flushed at once."""

    guard: Guard = field(default_factory=Guard)
    """What happens to a broken step."""

    deterministic: bool = False
    """Ask torch for deterministic kernels (slower on a GPU)."""
