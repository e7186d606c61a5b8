"""`tracking`: where the log lines go besides the run folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Tracking:
    """`telemetry.jsonl` keeps every step whatever is set here."""

    report_to: Literal["none", "tensorboard", "wandb"] = "none"
    """Tracker; its package is installed by hand (pip install tensorboard, pip install wandb)."""

    logging_steps: int = 1
    """Optimizer steps per log line; a line shows the mean over them."""

    project: str | None = None
    """wandb: project name; null = runner."""
