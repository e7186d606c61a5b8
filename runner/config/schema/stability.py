"""`stability`: what is measured while the run trains, and what happens to a step that is broken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Action = Literal["warn", "skip", "rollback", "stop", "ignore"]
Doomed = Literal["warn", "rollback", "stop", "ignore"]


@dataclass
class Guard:
    """What happens to a step whose loss or gradient is not finite, or far above the steps before it."""

    on_nonfinite: Action = "warn"
    """warn = take and count the step; skip = no update, the schedule waits; rollback = skip, and go back to the last
    good snapshot; stop = end the run; ignore = bare."""

    on_spike: Action = "warn"
    """The same for a spike: a loss or gradient norm far above those of the accepted steps before it."""

    on_doomed: Doomed = "warn"
    """What happens when the health light turns red: the run is lost unless something changes. warn = say so; rollback =
    go back to the last good snapshot with a smaller rate, end the run where that is impossible; stop = end the run;
    ignore = no light. The light needs `telemetry`, or a guard that acts."""

    spike_z: float = 8.0
    """Robust z-score (distance to the median over 1.4826 MAD) above which a loss or log gradient norm is a spike."""

    spike_window: int = 128
    """Accepted steps that a spike is measured against."""

    spike_min_steps: int = 32
    """Accepted steps before the first spike can be called."""

    max_consecutive: int = 3
    """Broken steps in a row: after so many, skip rolls back once and then ends the run; warn ends it."""

    min_loss_scale: float = 128.0
    """fp16: an overflow at this loss scale or below is a broken step; above it, it is the scale's own search."""


@dataclass
class Rollback:
    """The snapshot of weights, optimizer, scheduler and loss scale that a roll-back returns to."""

    snapshot: Literal["auto", "memory", "disk"] = "auto"
    """Where it is kept. auto = in memory where that takes at most a quarter of what is free, else on disk."""

    every: int | None = None
    """Steps between two snapshots; null = 25 in memory, 200 on disk. Only states that were sound are kept."""

    lr_backoff: float = 0.5
    """The learning rate is multiplied by this at each roll-back; 1 leaves it."""

    max_rollbacks: int = 3
    """Roll-backs of one run; the next one ends it."""


@dataclass
class Probes:
    """Measurements that cost extra forward passes. Each is an interval in optimizer steps; null switches it off."""

    line: int | None = 100
    """Loss along the update just made, same batch, dropout off: does the step overshoot?"""

    replay: int | None = 100
    """Loss of the same batch before and after its own update."""

    lost_updates: int | None = 100
    """Share of weights that the update did not change, because their number format has no value in between."""

    probe_set: int | None = 500
    """Loss of the same fixed examples, also at the start and at the end: is anything learnt?"""

    probe_set_size: int = 64
    """Examples of the probe set; held-out ones where there are enough."""


@dataclass
class Incident:
    """The folder `incident-<step>/` that a broken step leaves."""

    save: bool = True
    """Write it; `python -m runner replay FOLDER` repeats the step."""

    save_text: bool = True
    """Put the text of the rows in; false keeps row ids, token ids and lengths."""

    save_weights: bool | None = None
    """Put the trainable weights in, which a replay needs; null = where they take at most 2 GiB."""

    max_incidents: int = 5
    """Folders of one run; later incidents are counted only."""


@dataclass
class Stability:
    """observe writes every fact and changes no number; guarded skips broken steps and rolls back; strict ends at the
    first incident; off measures nothing beyond HF's own log."""

    telemetry: bool = True
    """Write `telemetry.jsonl`, one row per optimizer step, flushed at once."""

    per_example: bool = True
    """Put each example's loss into the row."""

    weight_statistics_every: int | None = None
    """Steps between two measurements of update size, weight size and RMS_t; null = 1 with LoRA, 10 otherwise."""

    module_norms_every: int | None = 10
    """Steps between two rows with the gradient norm of every module; null = never."""

    base_loss: Literal["off", "sampled", "all"] = "sampled"
    """Loss of the start model on the training rows: off, of up to 200 planned steps (about 2 % of the run), of all."""

    probes: Probes = field(default_factory=Probes)
    """Extra measurements."""

    guard: Guard = field(default_factory=Guard)
    """What happens to a broken step."""

    rollback: Rollback = field(default_factory=Rollback)
    """What a roll-back returns to."""

    incident: Incident = field(default_factory=Incident)
    """What a broken step leaves behind."""

    deterministic: bool = False
    """Ask torch for deterministic kernels (slower on a GPU)."""
