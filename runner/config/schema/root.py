"""The whole configuration of one run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from runner.config.schema.batch import Batch
from runner.config.schema.checkpoint import Checkpoint
from runner.config.schema.clip import Clip
from runner.config.schema.dataset import Dataset
from runner.config.schema.engine import Engine
from runner.config.schema.evaluation import Evaluation
from runner.config.schema.lora import Lora
from runner.config.schema.model import Model
from runner.config.schema.optim import Optim
from runner.config.schema.precision import Precision
from runner.config.schema.schedule import Schedule
from runner.config.schema.stability import Stability
from runner.config.schema.task import Task
from runner.config.schema.tracking import Tracking


@dataclass
class Checks:
    """How much is checked before the first step, and which findings may be ignored."""

    level: Literal["quick", "deep", "off"] | None = None
    """quick = every check that takes seconds (at most 60 s beyond loading); deep = also loads the weights twice,
    compares with fp32 and with eager attention, saves and reloads; off = none. null = quick in training, deep in
    `check`."""

    allow: str | list[str] = field(default_factory=list)
    """Finding ids to run in spite of, one or a list: checks.allow=schedule.warmup_beyond_end."""


@dataclass
class Planted:
    """A fault put into the run on purpose by `+fault=...`, to see what an incident looks like."""

    fault: Literal[
        "none",
        "nan_loss",
        "nan_gradient",
        "nan_weight",
        "nan_optimizer_state",
        "nan_embedding_row",
        "fp16_forward_overflow",
        "fp16_backward_overflow",
    ] = "none"
    """Which one; none in every real run."""

    step: int = 5
    """Optimizer step at which it happens, counted from 1; faults of the weights' scale are there from the start."""

    layer: int | None = None
    """Layer that is hit; null = the middle one."""


@dataclass
class Config:
    """Fourteen groups, and what belongs to none of them."""

    task: Task = field(default_factory=Task)
    """What is trained on."""

    model: Model = field(default_factory=Model)
    """Which weights."""

    dataset: Dataset = field(default_factory=Dataset)
    """On what."""

    lora: Lora = field(default_factory=Lora)
    """Which weights move."""

    optim: Optim = field(default_factory=Optim)
    """The update."""

    schedule: Schedule = field(default_factory=Schedule)
    """The rate over time, and how long."""

    batch: Batch = field(default_factory=Batch)
    """How many rows at once."""

    precision: Precision = field(default_factory=Precision)
    """Number formats."""

    clip: Clip = field(default_factory=Clip)
    """Changes the gradient."""

    stability: Stability = field(default_factory=Stability)
    """Watches the run."""

    evaluation: Evaluation = field(default_factory=Evaluation)
    """When held-out rows are measured."""

    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    """What is kept."""

    engine: Engine = field(default_factory=Engine)
    """Processes."""

    tracking: Tracking = field(default_factory=Tracking)
    """Trackers."""

    name: str = "quickstart"
    """Folder name of the run; an exp sets it."""

    output_dir: str = "outputs"
    """The run folder; composed from name and time unless set."""

    seed: int = 42
    """Seed of weights, data order, splits and dropout."""

    hub: Literal["auto", "offline"] = "auto"
    """auto = local path, then cache, then the hub (HF_ENDPOINT honoured); offline = never ask a hub."""

    checks: Checks = field(default_factory=Checks)
    """Findings to ignore."""

    planted: Planted = field(default_factory=Planted)
    """A fault on purpose."""

    trainer: dict[str, Any] = field(default_factory=dict)
    """Any other SFTConfig (sft) or TrainingArguments (classification) field by its own name; a field that a group
    owns is refused with the group's key."""
