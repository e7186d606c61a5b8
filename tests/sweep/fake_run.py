"""Stands in for `runner.run`: what a trial does is decided by the config's name."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import DataError


@dataclass
class Outcome:
    """What `runner.run.run` returns."""

    state: str = "finished"
    exit_code: int = 0
    metric: float | None = None


def write(cfg: Any, state: str, metric: Any = None, loss: Any = 1.5, reason: str | None = None) -> None:
    """Leave the files that a run leaves."""
    folder = Path(cfg.output_dir)
    record = {"schema": 1, "state": state, "reason": reason, "pid": os.getpid(), "exit_code": 0, "seed": cfg.seed}
    record |= {"steps": 3, "metric": metric, "metric_name": "eval_loss" if metric is not None else None}
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    summary = {"schema": 1, "steps": 3, "train_loss": {"last": loss}, "eval": {"eval_loss": metric}, "seconds": 0.5}
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")


def run(cfg: Any, dropped: list[str]) -> Outcome:
    """Behave as `cfg.name` says."""
    print("积极 from the trial")
    folder = Path(cfg.output_dir)
    write(cfg, "running")
    match cfg.name:
        case "ok":
            write(cfg, "finished", metric=cfg.optim.learning_rate or 2.5)
            return Outcome(metric=2.5)
        case "diverge":
            write(cfg, "diverged", metric="NaN", loss="NaN")
            return Outcome("diverged", 3, float("nan"))
        case "doomed":
            write(cfg, "diverged", metric=0.7, reason="stability.guard.on_doomed=stop: the loss is rising.")
            return Outcome("diverged", 1, 0.7)
        case "exit":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise RuntimeError("shape mismatch")
        case "user":
            raise DataError("data.jsonl line 3: not JSON")
        case "nothing":
            (folder / "run.json").unlink()
            return Outcome()
        case "environ":
            found = {"omp": os.environ.get("OMP_NUM_THREADS"), "test": os.environ.get("RUNNER_TEST")}
            found["cwd"] = os.getcwd()
            (folder / "environ.json").write_text(json.dumps(found), encoding="utf-8")
            write(cfg, "finished")
            return Outcome()
        case "wait" | "stubborn":
            return wait(cfg, folder)
    raise AssertionError(cfg.name)


def wait(cfg: Any, folder: Path) -> Outcome:
    """Train for a minute; on SIGTERM save and stop, unless stubborn."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    (folder / "pid").write_text(str(os.getpid()), encoding="utf-8")
    for _ in range(600):
        time.sleep(0.1)
        if asked and cfg.name == "wait":
            write(cfg, "stopped")
            (folder / "asked").write_text(str(len(asked)), encoding="utf-8")
            sys.stdout.flush()
            return Outcome("stopped", 130)
    return Outcome()
