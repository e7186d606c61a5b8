"""`schedule`: the learning rate over time, and how long a run is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Schedule:
    """Scheduler, warmup, epochs or steps."""

    lr_scheduler_type: Literal["cosine", "linear", "polynomial", "constant", "wsd"] = "cosine"
    """Shape after warmup. wsd = warmup, stable, decay."""

    power: float = 1.0
    """polynomial: exponent of the decay."""

    decay_ratio: float = 0.2
    """wsd: share of all steps spent in the final decay."""

    min_lr_ratio: float = 0.0
    """wsd: final learning rate as a share of the peak."""

    warmup_ratio: float | None = None
    """Share of all optimizer steps in which the rate climbs from 0, e.g. 0.03. Exclusive with `warmup_steps`."""

    warmup_steps: int | None = None
    """The same as a count of optimizer steps."""

    num_train_epochs: float = 3.0
    """Passes over the training rows."""

    max_steps: int | None = None
    """Optimizer steps; when set it wins over epochs."""
