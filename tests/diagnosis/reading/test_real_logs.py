"""Real public logs: every one of them is read, and gives the points that a person counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.diagnosis.reading import read, read_all

LOGS = Path(__file__).resolve().parents[4] / "shared" / "data" / "logs"
pytestmark = pytest.mark.skipif(not (LOGS / "index.jsonl").is_file(), reason="the shared real logs are not here")


def index() -> list[dict[str, Any]]:
    if not (LOGS / "index.jsonl").is_file():
        return []
    return [json.loads(line) for line in (LOGS / "index.jsonl").read_text().splitlines()]


def test_every_log_gives_its_points_and_its_plan() -> None:
    for entry in index():
        (trace,) = read_all(LOGS / entry["file"])
        assert trace.points + trace.repeated == entry["points"], entry["file"]
        assert bool(trace.repeated) == entry["file"].startswith("rameyjm7"), entry["file"]
        assert bool(trace.evaluations) == bool(entry["eval_points"]), entry["file"]
        assert trace.unreadable == 0 and (np.diff(trace.step) > 0).all(), entry["file"]
        if entry["kind"] == "trainer_state":
            assert trace.max_steps == entry["max_steps"], entry["file"]
        if "grad_norm" in entry["keys"]:
            assert trace.grad_norm.any, entry["file"]


def test_the_natural_resume() -> None:
    trace = read(next(LOGS.glob("rameyjm7*")))
    assert [(r.before, r.step) for r in trace.restarts] == [(5220, 5010)]
    assert trace.step.tolist() == list(range(10, 6561, 10)) and trace.repeated == 702 and trace.ended is True


def test_two_files_of_one_run_agree() -> None:
    compared = 0
    for entry in index():
        if "same_run_as" not in entry:
            continue
        one, two = read(LOGS / entry["file"]), read(LOGS / entry["same_run_as"])
        shared, at_one, at_two = np.intersect1d(one.step, two.step, return_indices=True)
        assert shared.size == min(one.points, two.points) > 30, entry["file"]
        np.testing.assert_array_equal(one.loss.values[at_one], two.loss.values[at_two])
        if one.learning_rate.any and two.learning_rate.any:
            np.testing.assert_array_equal(one.learning_rate.values[at_one], two.learning_rate.values[at_two])
        assert one.logging_steps == two.logging_steps, entry["file"]
        if entry["kind"] == "trainer_state":
            assert one.max_steps == two.max_steps, entry["file"]
            assert one.steps_per_epoch == pytest.approx(two.steps_per_epoch, rel=0.01), entry["file"]
        compared += 1
    assert compared >= 9


def test_the_labelled_runs_of_two_seeds() -> None:
    paths = sorted(LOGS.glob("qwen2.5-3b_qlora/*/*.json"))
    assert len(paths) == 12
    for path in paths:
        trace = read(path)
        assert trace.points >= 10 and trace.logging_steps == 5 and trace.steps_per_epoch, path
