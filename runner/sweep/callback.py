"""Hydra tells this callback where a sweep lies and how each trial's task function ended."""

from __future__ import annotations

import math
import os
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from runner.errors import UserError
from runner.sweep.record import one_line, settle


@dataclass
class Sweep:
    """The sweep of this process."""

    folder: Path
    """Where its trials' folders lie."""

    total: int | None
    """How many trials it will have; None when a search decides."""


_current: Sweep | None = None


def current() -> Sweep | None:
    """Return the sweep that Hydra started in this process, None when it started none."""
    return _current


def progress() -> str:
    """Return "trial 3/8" for the job that runs now, with as much of it as is known here."""
    if not HydraConfig.initialized() or OmegaConf.is_missing(HydraConfig.get().job, "num"):
        return "trial"
    position = f"trial {HydraConfig.get().job.num + 1}"
    # A launcher with workers of its own runs the task function where no sweep was started.
    return f"{position}/{_current.total}" if _current and _current.total else position


class SweepCallback(Callback):
    """Remembers the sweep's folder; records a trial whose task function raised, which Hydra passes over in silence."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Fix the sweep's folder. The time in its name is resolved here once; Hydra's trials get the same."""
        global _current
        _current = Sweep(Path(config.hydra.sweep.dir).absolute(), count_trials(config))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Write run.json for a trial that was refused before it had a process, and let the sweep go on."""
        if config.hydra.mode != RunMode.MULTIRUN or job_return.status != JobStatus.FAILED:
            return
        # The property `return_value` would raise it, which is what ends a sweep at its first refused trial.
        error = job_return._return_value
        if not isinstance(error, UserError):
            traceback.print_exception(error)
        folder = Path(config.hydra.runtime.output_dir)
        record = settle(folder, os.getpid(), "failed", str(error) or type(error).__name__, 1)
        print(f"{progress()}  {folder.name}  failed  {one_line(record['reason'])}", flush=True)
        job_return.status, job_return.return_value = JobStatus.COMPLETED, None


def count_trials(config: DictConfig) -> int | None:
    """Return the number of trials of Hydra's own sweeper (all combinations), None for any other sweeper."""
    sweeper = config.hydra.sweeper
    if not str(sweeper.get("_target_", "")).endswith(".BasicSweeper"):
        return None
    params = [f"{key}={value}" for key, value in (sweeper.get("params") or {}).items()]
    overrides = OverridesParser.create().parse_overrides([*params, *config.hydra.overrides.task])
    return math.prod(sum(1 for _ in o.sweep_string_iterator()) for o in overrides if o.is_sweep_override())
