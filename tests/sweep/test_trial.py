"""A trial's process: success, every kind of death, and the death of its parent."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.config.build import config_from_dict
from runner.config.schema import Config, Dataset, Model, Optim, Source
from runner.sweep.trial import run_trial

ROOT = Path(__file__).parents[2]
FAKE = "tests.sweep.fake_run:run"


def trial(name: str, folder: Path) -> float | None:
    return run_trial(Config(name=name, model=Model("tiny")), folder, target=FAKE, preload=())


def record(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def test_a_trial_returns_its_metric_and_its_words_go_to_its_folder(tmp_path, capfd):
    folder = tmp_path / "学习率=1e-4"
    assert trial("ok", folder) == 2.5
    assert record(folder)["state"] == "finished"
    assert "积极 from the trial" in (folder / "logs/rank_0.txt").read_text(encoding="utf-8")
    shown = capfd.readouterr().out
    assert "from the trial" not in shown
    assert "学习率=1e-4  finished  3 steps  eval_loss 2.5" in shown


def test_the_config_arrives_unchanged_but_for_its_folder(tmp_path):
    config = Config(
        name="ok",
        model=Model("tiny"),
        optim=Optim(learning_rate=0.25),
        dataset=Dataset(sources={"情感": Source("数据/a.jsonl")}),
    )
    config.trainer = {"neftune_noise_alpha": 5.0}
    assert run_trial(config, tmp_path, target=FAKE, preload=()) == 0.25
    config.output_dir = str(tmp_path)
    assert config_from_dict(json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))) == config


@pytest.mark.parametrize(
    ("name", "reason", "code"),
    [
        ("exit", "exit code 7", 7),
        ("kill", "SIGKILL", -9),
        ("raise", "RuntimeError: shape mismatch", 1),
        ("user", "data.jsonl line 3: not JSON", 2),
    ],
)
def test_a_dead_trial_is_recorded_and_raises_nothing(tmp_path, name, reason, code):
    assert trial(name, tmp_path) is None
    left = record(tmp_path)
    assert left["state"] == "failed"
    assert reason in left["reason"]
    assert left["exit_code"] == code
    assert left["end"]


def test_an_unexpected_error_leaves_its_traceback_and_a_users_mistake_does_not(tmp_path):
    trial("raise", tmp_path / "bug")
    trial("user", tmp_path / "mistake")
    assert "Traceback" in (tmp_path / "bug" / "logs/rank_0.txt").read_text(encoding="utf-8")
    said = (tmp_path / "mistake" / "logs/rank_0.txt").read_text(encoding="utf-8")
    assert "Traceback" not in said
    assert "line 3" in said


def test_a_diverged_trial_is_worse_than_any_other_to_a_search(tmp_path):
    assert trial("diverge", tmp_path) == math.inf
    assert record(tmp_path)["state"] == "diverged"


def test_a_doomed_trial_keeps_its_last_metric_but_returns_infinity_on_the_bad_side(tmp_path):
    assert trial("doomed", tmp_path / "loss") == math.inf
    kept = record(tmp_path / "loss")
    assert kept["state"] == "diverged" and kept["metric"] == 0.7 and "on_doomed=stop" in kept["reason"]
    cfg = Config(name="doomed", model=Model("tiny"))
    cfg.checkpoint.metric_for_best_model = "eval_accuracy"
    assert run_trial(cfg, tmp_path / "accuracy", target=FAKE, preload=()) == -math.inf


def test_a_record_of_an_earlier_try_is_not_taken_for_this_one(tmp_path):
    assert trial("ok", tmp_path) == 2.5
    (tmp_path / "config.json").unlink()
    assert trial("nothing", tmp_path) == 1.5
    assert record(tmp_path)["pid"] != os.getpid()
    (tmp_path / "run.json").write_text('{"state": "finished", "pid": 1', encoding="utf-8")
    assert trial("exit", tmp_path) is None
    assert record(tmp_path)["state"] == "failed"


def test_the_trial_has_the_parents_environment_of_now(tmp_path, monkeypatch):
    trial("ok", tmp_path / "first")
    monkeypatch.setenv("RUNNER_TEST", "set after the fork server started")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    trial("environ", tmp_path / "second")
    found = json.loads((tmp_path / "second" / "environ.json").read_text(encoding="utf-8"))
    assert found["test"] == "set after the fork server started"
    assert found["omp"] == "1" or "torch" in sys.modules
    assert Path(found["cwd"]) == tmp_path


def gone(pid: int) -> bool:
    """Whether the process has ended; a zombie that nobody waits for counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize(("name", "state"), [("wait", "stopped"), ("stubborn", "running")])
def test_a_trial_does_not_outlive_its_parent(tmp_path, name, state):
    script = (
        "from pathlib import Path\n"
        "from runner.config.schema import Config, Model\n"
        "from runner.sweep.trial import run_trial\n"
        f"config = Config(name={name!r}, model=Model('tiny'))\n"
        f"run_trial(config, Path({str(tmp_path)!r}), target={FAKE!r}, preload=(), grace=1)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    try:
        wait_until((tmp_path / "pid").exists, 30)
        wait_until(lambda: (tmp_path / "pid").read_text() != "", 5)
        pid = int((tmp_path / "pid").read_text())
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        wait_until(lambda: gone(pid), 10)
    finally:
        parent.kill()
    assert record(tmp_path)["state"] == state
