"""Real sweeps through the front door: every trial trains the tiny model in its own process and folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORT = ("schedule.max_steps=3", "dataset.max_samples=40")

pytestmark = pytest.mark.slow


def sweep(folder: Path, *overrides: str) -> tuple[int, str, dict]:
    """Run a sweep in `folder`; returns exit status, output and sweep.json."""
    done = subprocess.run(
        [sys.executable, "-m", "runner", "-m", *overrides, f"hydra.sweep.dir={folder}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    path = folder / "sweep.json"
    assert path.exists(), done.stdout
    return done.returncode, done.stdout, json.loads(path.read_text(encoding="utf-8"))


def test_eight_runs_in_eight_folders_named_by_their_overrides(tmp_path):
    axes = ("optim.learning_rate=1e-4,1e-3", "precision=fp32,bf16", "clip=norm,none")
    status, said, report = sweep(tmp_path / "s", *axes, *SHORT)
    assert status == 0, said
    rows = report["trials"]
    assert [row["state"] for row in rows] == ["finished"] * 8
    assert all(row["steps"] == 3 and row["train_loss"] > 0 for row in rows)
    folders = sorted(path.parent for path in (tmp_path / "s").glob("*/run.json"))
    assert len(folders) == 8
    for folder in folders:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        assert run["state"] == "finished"
        # Hydra writes 1e-4 as 0.0001.
        for part in ("optim.learning_rate=0.00", "precision=", "clip="):
            assert part in folder.name
    assert len({json.loads((folder / "run.json").read_text())["pid"] for folder in folders}) == 8
    assert "8 of 8 trials finished" in said


def test_one_trial_that_cannot_load_its_model_stops_no_other(tmp_path):
    empty = tmp_path / "no_model"
    empty.mkdir()
    (empty / "config.json").write_text("{", encoding="utf-8")
    tiny = ROOT / "data" / "models" / "qwen2_tiny"
    status, said, report = sweep(tmp_path / "s", f"model.path={tiny},{empty}", "optim.learning_rate=1e-4,1e-3", *SHORT)
    assert status == 1, said
    states = {(row["changed"][0].rpartition("/")[2], row["changed"][1]): row["state"] for row in report["trials"]}
    assert states == {
        (model, rate): state
        for model, state in (("qwen2_tiny", "finished"), ("no_model", "failed"))
        for rate in ("optim.learning_rate=0.0001", "optim.learning_rate=0.001")
    }
    assert all(row["reason"] for row in report["trials"] if row["state"] == "failed")
    assert "2 of 4 trials finished" in said
    assert "failed: " in said


def test_eight_trials_of_which_one_crashes(tmp_path):
    # A sitecustomize makes one trial's process die in C, as a segmentation fault would.
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'runner.training.build' and 'precision=bf16,seed=3' in os.readlink('/proc/self/fd/1'):\n"
        "            os.abort()\n"
        "sys.meta_path.insert(0, Finder())\n",
        encoding="utf-8",
    )
    folder = tmp_path / "s"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "runner",
            "-m",
            "precision=fp32,bf16",
            "seed=1,2,3,4",
            *SHORT,
            f"hydra.sweep.dir={folder}",
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONUTF8": "1", "PYTHONPATH": str(hook)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 1, done.stdout
    rows = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["trials"]
    assert len(rows) == 8
    (dead,) = [row for row in rows if row["state"] != "finished"]
    assert dead["changed"] == ["precision=bf16", "seed=3"]
    assert (dead["state"], dead["exit_code"]) == ("failed", -6)
    assert "SIGABRT" in dead["reason"]
    assert "7 of 8 trials finished" in done.stdout
