"""Run folders of this project: with telemetry, while they run, and under stability=off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.diagnosis.reading import read, read_all
from runner.errors import UserError

CONFIG: dict[str, Any] = {
    "task": {"name": "sft", "labels": None},
    "schedule": {"max_steps": None, "num_train_epochs": 2.0},
    "clip": {"method": "norm", "max_grad_norm": 0.5},
    "tracking": {"logging_steps": 5},
}


def row(step: int, **more: Any) -> dict[str, Any]:
    base = {
        "step": step, "epoch": step / 10, "time": 1.0, "loss": 3.0 - step / 10, "grad_norm": 1.0, "clip_coef": 0.5,
        "learning_rate": 1e-4, "loss_scale": None, "skipped": None, "tokens": 30, "examples": 4, "seconds": 0.5,
        "sources": {"en": [20.0, 10, 1], "zh": [0.0, 0, 0]}, "micro_losses": [1.0], "base_loss": None,
    }  # fmt: skip
    return {**base, **more}


def write(folder: Path, name: str, content: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(map(json.dumps, content)) + "\n" if name.endswith(".jsonl") else json.dumps(content)
    path.write_text(lines, encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with one resume, one fault of every kind, evaluations and probes."""
    folder = tmp_path / "run"
    rows = [row(s) for s in range(1, 9)]
    rows += [row(s, loss=2.5 - s / 10) for s in range(7, 21)]
    rows[2] = row(3, loss="NaN", grad_norm="Infinity", skipped="non_finite", action="skip", incident="incident-3")
    rows[3] = row(4, skipped="loss_scale_overflow", loss_scale=65536.0, grad_norm="Infinity")
    rows[4] = row(
        5, spike={"loss_z": 9.0, "norm_z": 8.5}, action="rollback", rolled_back_to=2, noise_scale={"b_simple": 7.5}
    )
    write(folder, "telemetry.jsonl", rows)
    with (folder / "telemetry.jsonl").open("a") as file:
        file.write('{"step": 21, "lo')
    write(folder, "config.json", CONFIG)
    write(folder, "run.json", {"state": "finished", "steps": 20})
    write(folder, "base_loss.json", {"noise": {"mean": 2.0, "sd_step": 0.1}})
    write(folder, "probes.jsonl", [{"step": 5, "probe": "replay", "before": 1.0, "after": 0.9}])
    write(folder, "incident-3/incident.json", {"step": 3, "reason": "non_finite"})
    evaluations = [{"step": s, "epoch": s / 10, "eval_loss": 3 - s / 10, "eval_loss_en": 2.0} for s in (10, 20)]
    write(folder, "summary.json", {"evaluations": evaluations, "curve": {}})
    return folder


def test_telemetry(run: Path) -> None:
    trace = read(run)
    assert (trace.kind, trace.tool, trace.family, trace.logging_steps) == ("run", "runner", "sft", 1)
    assert trace.step.tolist() == list(range(1, 21)) and trace.repeated == 2 and trace.unreadable == 1
    assert trace.loss.values[7] == pytest.approx(1.7), "the last value of a step counts"
    assert trace.loss.broken.tolist() == [s == 3 for s in range(1, 21)]
    assert np.isinf(trace.grad_norm.values[[2, 3]]).all()
    (restart,) = trace.restarts
    assert (restart.before, restart.step) == (8, 7)
    assert (restart.loss_before, restart.loss_after) == pytest.approx((2.3, 1.8))
    assert trace.marks == {
        "skipped": [3, 4], "loss_scale_overflow": [4], "rollbacks": [5], "spikes": [5], "incidents": [3],
    }  # fmt: skip


def test_columns_only_where_the_log_has_them(run: Path) -> None:
    trace = read(run)
    assert set(trace.extra) == {"clip_coef", "loss_scale", "b_simple", "tokens", "seconds"}
    assert trace.extra["loss_scale"].known.tolist() == [s == 4 for s in range(1, 21)]
    assert trace.extra["b_simple"].values[4] == 7.5
    assert trace.sources["en"].values.tolist() == [2.0] * 20 and not trace.sources["zh"].any
    assert set(trace.source_tokens) == set(trace.sources) and trace.source_tokens["zh"].values.tolist() == [0.0] * 20


def test_the_plan_and_the_facts(run: Path) -> None:
    trace = read(run)
    assert (trace.max_steps, trace.max_grad_norm, trace.ended) == (20, 0.5, True)
    assert trace.steps_per_epoch == pytest.approx(10) and trace.epochs_planned == pytest.approx(2)
    assert [(e.name, e.step.tolist()) for e in trace.evaluations] == [("", [10, 20]), ("en", [10, 20])]
    assert trace.facts is not None and trace.facts.noise == {"mean": 2.0, "sd_step": 0.1}
    assert trace.facts.probes[0]["probe"] == "replay" and trace.facts.incidents[0]["reason"] == "non_finite"
    assert trace.facts.config["clip"]["method"] == "norm" and trace.facts.run["state"] == "finished"
    for name in ("telemetry.jsonl", "summary.json", "run.json"):
        assert read(run / name).step.tolist() == trace.step.tolist()


def test_a_run_that_goes_on_takes_evaluations_from_its_checkpoint(run: Path) -> None:
    (run / "summary.json").unlink()
    write(run, "run.json", {"state": "running"})
    history = [{"step": 10, "epoch": 1.0, "loss": 2.0}, {"step": 10, "epoch": 1.0, "eval_loss": 2.25}]
    write(
        run,
        "checkpoints/checkpoint-10/trainer_state.json",
        {"log_history": history, "max_steps": 20, "global_step": 10},
    )
    write(run, "checkpoints/checkpoint-9/trainer_state.json", {"log_history": [], "max_steps": 20})
    trace = read(run)
    assert trace.ended is False and trace.evaluations[0].loss.tolist() == [2.25]
    inner = read(run / "checkpoints" / "checkpoint-10" / "trainer_state.json")
    assert inner.tool == "runner" and inner.kind == "trainer_state"


def test_without_clipping_by_norm_there_is_no_limit(run: Path) -> None:
    write(
        run, "config.json", {**CONFIG, "clip": {"method": "agc", "max_grad_norm": 1.0}, "schedule": {"max_steps": 15}}
    )
    trace = read(run)
    assert trace.max_grad_norm is None and trace.max_steps == 15 and trace.epochs_planned == pytest.approx(1.5)


@pytest.mark.parametrize("longer", ["curve", "checkpoint"])
def test_without_telemetry_the_longer_of_summary_and_checkpoint_counts(run: Path, longer: str) -> None:
    (run / "telemetry.jsonl").unlink()
    history = [{"step": s, "epoch": s / 10, "loss": 3.0, "grad_norm": 1.0} for s in (5, 10)]
    state = {"log_history": history, "max_steps": 20, "global_step": 10, "epoch": 1.0}
    write(run, "checkpoints/checkpoint-10/trainer_state.json", state)
    steps = [5, 10, 15, 20] if longer == "curve" else [5]
    curve = {
        "step": steps,
        "loss": [2.0] * len(steps),
        "grad_norm": ["NaN"] * len(steps),
        "base_loss": [None] * len(steps),
    }
    write(run, "summary.json", {"telemetry": False, "curve": curve, "evaluations": []})
    trace = read(run)
    assert trace.kind == "run" and trace.logging_steps == 5 and trace.max_steps == 20 and trace.extra == {}
    assert trace.step.tolist() == (steps if longer == "curve" else [5, 10])
    assert trace.steps_per_epoch == pytest.approx(10)


def test_a_run_that_died_at_the_start_is_a_trace_without_points(tmp_path: Path) -> None:
    write(tmp_path, "config.json", CONFIG)
    write(tmp_path, "run.json", {"state": "failed", "reason": "out of memory"})
    trace = read(tmp_path)
    assert trace.points == 0 and trace.ended is False and trace.facts is not None


def test_classes_of_a_classifier(run: Path) -> None:
    write(run, "config.json", {**CONFIG, "task": {"name": "classification", "labels": ["a", "b", "c"]}})
    assert (read(run).family, read(run).labels) == ("classification", 3)
    write(run, "config.json", {**CONFIG, "task": {"name": "classification", "labels": None}})
    assert read(run).labels is None
    write(run, "model/config.json", {"id2label": {"0": "a", "1": "b"}})
    assert read(run).labels == 2


def test_a_folder_of_runs_asks_for_one(run: Path) -> None:
    with pytest.raises(UserError, match="1 run folders"):
        read_all(run.parent)
