"""The guard in real training: broken steps without end, and a resume in the middle of them."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.config.compose import Session
from runner.config.schema import Stability
from runner.lab.faults import FAULTS
from runner.run import run
from runner.runfolder import read_json, read_telemetry

STEP = 3


@pytest.fixture(scope="session")
def guarded() -> Stability:
    """conf/stability/guarded.yaml."""
    return Session().load(["stability=guarded"]).config.stability


def from_step(first: int, last: int = 10**9) -> Callable[[Any, Any], str]:
    """A fault: NaN in the loss of every step from `first` to `last`."""

    def fault(cfg: Any, trainer: Any) -> str:
        trainer.instruments.spoil = lambda loss, now: loss * math.nan if first <= now <= last else loss
        return f"planted: NaN in the loss of steps {first} to {last}"

    return fault


@pytest.mark.parametrize(
    ("kind", "method", "steps"),
    [("skip", "lora", 6), ("rollback", "lora", 4), ("rollback", "none", 4), ("stop", "lora", 1), ("warn", "lora", 3)],
)
def test_broken_steps_without_end_end_the_run(
    make_config: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    guarded: Stability,
    kind: str,
    method: str,
    steps: int,
) -> None:
    monkeypatch.setitem(FAULTS, "nan_loss", from_step(STEP))
    guard = dataclasses.replace(guarded.guard, on_nonfinite=kind)  # type: ignore[arg-type]
    cfg = make_config(
        schedule__max_steps=40,
        lora__method=method,
        stability=dataclasses.replace(guarded, guard=guard),
        planted__fault="nan_loss",
    )
    outcome = run(cfg)
    rows = read_telemetry(outcome.folder)
    actions = [row.get("action") for row in rows]
    assert outcome.state == "diverged" and len(rows) == STEP - 1 + steps, "never a loop"
    assert actions[: STEP - 1] == [None] * (STEP - 1)
    assert (
        actions[STEP - 1 :]
        == {
            "skip": ["skip", "skip", "rollback", "skip", "skip", "skip"],
            "rollback": ["rollback", "skip", "skip", "skip"],
            "stop": ["stop"],
            "warn": ["warn"] * 3,
        }[kind]
    )
    assert len(list(outcome.folder.glob("incident-*"))) == 1
    assert (outcome.folder / "model").exists() == (kind != "warn"), "the weights are sound unless a step was taken"


DECIDED = ("step", "loss", "grad_norm", "skipped", "action", "rolled_back_to", "incident", "learning_rate", "spike")


def decided(folder: Path) -> list[dict[str, Any]]:
    return [{key: row.get(key) for key in DECIDED} for row in read_telemetry(folder)]


@pytest.mark.parametrize(
    ("method", "cut", "last"),
    [
        ("lora", 5, 8),
        ("none", 6, 10**9),
        *(
            pytest.param(method, cut, last, marks=pytest.mark.slow)
            for method, cut, last in [("lora", 7, 8), ("none", 6, 8), ("lora", 5, 10**9), ("lora", 7, 10**9)]
        ),
    ],
)
def test_a_resume_in_a_bad_stretch_decides_as_an_uninterrupted_run(
    make_config: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    guarded: Stability,
    method: str,
    cut: int,
    last: int,
) -> None:
    monkeypatch.setitem(FAULTS, "nan_loss", from_step(5, last))
    cfg = make_config(
        schedule__max_steps=13,
        optim__learning_rate=1e-3,
        lora__method=method,
        stability=guarded,
        planted__fault="nan_loss",
        checkpoint__save_strategy="steps",
        checkpoint__save_steps=1,
        checkpoint__save_total_limit=None,
    )
    whole = run(cfg)
    expected = decided(whole.folder)
    actions = [row["action"] for row in expected]
    assert actions[4:8] == ["skip", "skip", "rollback", "skip"]
    assert (len(expected), whole.state) == ((13, "finished") if last == 8 else (10, "diverged"))

    folder = tmp_path / "cut"
    shutil.copytree(whole.folder, folder)
    for checkpoint in (folder / "checkpoints").glob("checkpoint-*"):
        if int(checkpoint.name.split("-")[1]) > cut:
            shutil.rmtree(checkpoint)
    for incident in folder.glob("incident-*"):
        if int(incident.name.split("-")[1]) > cut:
            shutil.rmtree(incident)
    lines = (folder / "telemetry.jsonl").read_text().splitlines(keepends=True)
    (folder / "telemetry.jsonl").write_text("".join(lines[:cut]))
    run_json = read_json(folder / "run.json")
    assert run_json is not None
    (folder / "run.json").write_text(json.dumps({**run_json, "state": "running"}))
    resumed = run(dataclasses.replace(cfg, checkpoint=dataclasses.replace(cfg.checkpoint, resume=str(folder))))
    assert resumed.state == whole.state
    assert decided(folder) == expected
