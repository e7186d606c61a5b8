"""What a log says, whoever wrote it: the one thing that signals, verdict and report read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runner.text import Text

Kind = Literal["run", "trainer_state", "trainer_log", "console", "tensorboard", "csv", "records"]
Tool = Literal["runner", "transformers", "llamafactory", "ms_swift"]
"""Whose words a remedy is put in."""

Family = Literal["sft", "classification", "preference", "reinforcement"]


class Column(NamedTuple):
    """One quantity at every point of a trace, shape (n,)."""

    values: NDArray[np.float64]
    """NaN where the log says NaN, and where it says nothing."""

    known: NDArray[np.bool_]
    """Whether the log has a value here, be it NaN or infinite."""

    @property
    def any(self) -> bool:
        """Whether the log has a value anywhere."""
        return bool(self.known.any())

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Where the value is a finite number, shape (n,)."""
        return self.known & np.isfinite(self.values)

    @property
    def broken(self) -> NDArray[np.bool_]:
        """Where the log says NaN or infinite, shape (n,)."""
        return self.known & ~np.isfinite(self.values)


def column(values: list[float | None]) -> Column:
    """A `Column` of values, None = the log says nothing."""
    known = np.array([v is not None for v in values], dtype=bool)
    return Column(np.array([np.nan if v is None else v for v in values], dtype=np.float64), known)


class Evaluations(NamedTuple):
    """One held-out loss over the run, arrays of shape (m,), in the order of the steps."""

    name: str
    """"" for eval_loss; g0 for eval_g0_loss."""

    step: NDArray[np.int64]
    epoch: NDArray[np.float64]
    """NaN where unknown."""

    loss: NDArray[np.float64]
    """May be NaN or infinite, as the log says."""


class Restart(NamedTuple):
    """A place where the log goes back: the run was resumed from an older checkpoint."""

    before: int
    """Last step before the log goes back."""

    step: int
    """First step after it."""

    loss_before: float | None
    """Loss at (or next to) `step` as it was first logged; None where it was not."""

    loss_after: float | None
    """Loss at `step` when it was made again."""


@dataclass
class RunFacts:
    """What only a run folder of this project knows."""

    config: dict[str, Any]
    run: dict[str, Any]
    """run.json."""

    summary: dict[str, Any]
    probes: list[dict[str, Any]]
    noise: dict[str, Any]
    """`noise` of base_loss.json: mean, sd_step, sd_log, sd_independent, between_share, ..."""

    incidents: list[dict[str, Any]]
    """incident.json of each incident, by step."""


@dataclass
class Trace:
    """Points of the training loss in the order of the steps; a step that was made twice counts once, its last value."""

    path: Path
    kind: Kind
    tool: Tool
    step: NDArray[np.int64]
    """Shape (n,), increasing."""

    epoch: NDArray[np.float64]
    """Shape (n,); NaN where the log does not say."""

    loss: Column
    grad_norm: Column
    """Before clipping."""

    learning_rate: Column
    evaluations: list[Evaluations] = field(default_factory=list)
    extra: dict[str, Column] = field(default_factory=dict)
    """Further columns by their name in telemetry: clip_coef, base_loss, loss_scale, update_rms, weight_rms, rms_t,
    b_simple, tokens, seconds; absent where the log has none of them."""

    sources: dict[str, Column] = field(default_factory=dict)
    """Mean loss per source."""

    source_tokens: dict[str, Column] = field(default_factory=dict)
    """Supervised tokens per source; the same keys as `sources`."""

    marks: dict[str, list[int]] = field(default_factory=dict)
    """Steps by name: skipped (no update, for whatever reason), loss_scale_overflow, rollbacks, spikes, incidents."""

    restarts: list[Restart] = field(default_factory=list)
    repeated: int = 0
    """Points that a later one of the same step replaced."""

    unreadable: int = 0
    """Lines that could not be read."""

    steps_counted: bool = False
    """The log has no steps: they were counted from 1."""

    max_steps: int | None = None
    epochs_planned: float | None = None
    steps_per_epoch: float | None = None
    """From the log's own epochs, or from the plan."""

    logging_steps: int | None = None
    """Optimizer steps that one point is the mean of, where the tool averages; 1 for telemetry."""

    max_grad_norm: float | None = None
    """The clip, where the log or its neighbours say it; 0 or None = none known."""

    family: Family | None = None
    labels: int | None = None
    """Classes of a classifier, where known."""

    ended: bool | None = None
    """The run reached its last step; None where the log cannot tell."""

    notes: list[Text] = field(default_factory=list)
    """What the reader did that a person should know."""

    facts: RunFacts | None = None
    """Run folders only."""

    @property
    def points(self) -> int:
        """Points with a value of the loss."""
        return int(self.loss.known.sum())
