"""A whole multirun of fake trials through Hydra: states, table, sweep.json, exit status, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = """
name: ok
seed: 1
hydra:
  callbacks: {sweep: {_target_: runner.sweep.callback.SweepCallback}}
  sweep: {dir: multirun/x, subdir: "${hydra.job.override_dirname}"}
  mode: MULTIRUN
"""


@pytest.fixture
def start(tmp_path):
    """A function that starts the fake application with the given overrides, in an empty folder."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(CONFIG, encoding="utf-8")

    def popen(*overrides: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "tests/sweep/fake_app.py"), str(tmp_path / "conf"), *overrides]
        pipe = subprocess.PIPE
        environ = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
        return subprocess.Popen(
            command, cwd=tmp_path, env=environ, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    return popen


def test_one_crash_does_not_stop_the_others(start, tmp_path):
    process = start("name=ok,exit,diverge,refused", "seed=1,2")
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 1, said
    sweep = tmp_path / "multirun" / "x"
    report = json.loads((sweep / "sweep.json").read_text(encoding="utf-8"))
    states = {row["folder"]: row["state"] for row in report["trials"]}
    assert states == {
        f"name={name},seed={seed}": state
        for name, state in {"ok": "finished", "exit": "failed", "diverge": "diverged", "refused": "failed"}.items()
        for seed in (1, 2)
    }
    assert [row["changed"] for row in report["trials"]][:2] == [["name=ok", "seed=1"], ["name=ok", "seed=2"]]
    assert report["trials"][4]["train_loss"] == "NaN"
    assert report["exit_code"] == 1
    assert "trial 3/8  name=exit,seed=1  failed" in said
    assert "failed: name=exit,seed=1: the process ended with exit code 7" in said
    assert "failed: name=refused,seed=2: name=refused is not allowed" in said
    assert "2 of 8 trials finished" in said
    assert "Traceback" not in said


def test_joblib_starts_trials_from_its_own_workers(start, tmp_path):
    process = start("name=ok,exit,refused", "seed=1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 1, said
    report = json.loads((tmp_path / "multirun" / "x" / "sweep.json").read_text(encoding="utf-8"))
    assert sorted(row["state"] for row in report["trials"]) == ["failed"] * 4 + ["finished"] * 2
    assert "2 of 6 trials finished" in said


def test_a_clean_sweep_ends_with_status_0(start):
    process = start("seed=1,2")
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 0, said
    assert "2 of 2 trials finished" in said


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_stops_the_running_trial_and_starts_no_other(start, tmp_path, signum, status):
    process = start("name=wait", "seed=1,2,3")
    sweep = tmp_path / "multirun" / "x"
    end = time.monotonic() + 30
    while not list(sweep.glob("*/pid")):
        assert time.monotonic() < end
        time.sleep(0.05)
    # As a terminal does it: the whole process group gets the signal.
    os.killpg(process.pid, signum)
    said = process.communicate(timeout=30)[0]
    assert process.returncode == status, said
    report = json.loads((sweep / "sweep.json").read_text(encoding="utf-8"))
    assert [row["state"] for row in report["trials"]] == ["stopped"]
    assert report["not_started"] == 2
    assert [path.read_text() for path in sweep.glob("*/asked")] == ["1"]
    assert "0 of 3 trials finished, 2 not started" in said
