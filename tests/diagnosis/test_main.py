"""`python -m runner diagnose` and `report` as people call them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runner.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


def log(path: Path, losses, norms=None, rate=1e-4, evaluations=()) -> Path:
    """A trainer_state.json with one record per step."""
    records = [
        {"step": i + 1, "epoch": (i + 1) / len(losses), "loss": x, "learning_rate": rate}
        | ({} if norms is None else {"grad_norm": norms[i]})
        for i, x in enumerate(losses)
    ]
    records += [{"step": s, "epoch": s / len(losses), "eval_loss": x} for s, x in evaluations]
    path.write_text(json.dumps({"log_history": records, "max_steps": len(losses)}))
    return path


def falling(n: int, spread: float = 0.05) -> list[float]:
    """A loss from 1.5 to 1.15 that jitters by two alternating patterns: no random numbers."""
    return [1.5 - 0.35 * i / n + spread * ((i * 7919 % 97) / 48 - 1) for i in range(n)]


def verdict(capsys, *arguments: str) -> dict:
    assert main(["diagnose", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_sound_log_is_kept(tmp_path, capsys):
    found = verdict(capsys, str(log(tmp_path / "trainer_state.json", falling(80), [1.0 + i % 3 for i in range(80)])))
    assert (found["stability"], found["learning"], found["action"]) == ("normal", "yes", "keep")
    assert {"en", "zh"} == set(found["headline"])


def test_a_hidden_nan_is_named_with_its_step(tmp_path, capsys):
    losses = [1.5, 1.4, 1.45, 0.0, 0.0, 0.0, 0.0]
    norms = [1.0, 1.1, 0.9, *[float("nan")] * 4]
    path = log(tmp_path / "trainer_state.json", losses, norms)
    found = verdict(capsys, str(path))
    assert (found["stability"], found["action"], found["confidence"]) == ("broken", "stop", "certain")
    first = found["causes"][0]
    assert first["id"] == "log.hidden_nan" and first["evidence"][0]["steps"] == [4, 5, 6, 7]
    assert any("logging_nan_inf_filter=False" in line for line in found["do"])
    assert found["separate"]["en"]


def test_the_same_log_in_chinese_keeps_commands_and_numbers(tmp_path, capsys):
    path = log(tmp_path / "trainer_state.json", [1.5, 0.0, 0.0], [1.0, float("nan"), float("nan")])
    assert main(["diagnose", str(path), "--lang", "zh"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("停止") and "logging_nan_inf_filter=False" in out and len(out.splitlines()) <= 12


def test_two_outcomes_of_one_script_are_memory_that_nobody_wrote(tmp_path, capsys):
    runs = [("0.0", "nan"), ("1.0986", "0.0")]
    lines = [
        f"{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': {i}e-06, 'epoch': {i / 10}}}"
        for loss, norm in runs
        for i in range(1, 9)
    ]
    path = tmp_path / "console.log"
    path.write_text("\n".join(lines))
    found = verdict(capsys, str(path))
    assert found["causes"][0]["id"] == "weights.uninitialised" and found["causes"][0]["code"] == "A1"
    assert "learning rate" in found["not_it"]["en"]


def test_a_control_shows_r_squared_and_variance_ratio(tmp_path, capsys):
    moves = [float(x) for x in 0.12 * np.random.default_rng(1).standard_normal(60)]
    run = log(tmp_path / "run.json", [1.5 - 0.004 * i + m for i, m in enumerate(moves)])
    still = log(tmp_path / "still.json", [1.5 + 1.1 * m for m in moves], rate=0.0)
    found = verdict(capsys, str(run), "--control", str(still))
    assert found["control"]["r_squared"] > 0.95 and found["control"]["learning_rate_zero"]
    assert 0.7 < found["control"]["variance_ratio"] < 1.0  # 1 / 1.1 squared
    assert found["headline"]["en"].startswith("The oscillation is your data")
    assert main(["diagnose", str(run), "--control", str(still)]) == 0
    assert "variance ratio" in capsys.readouterr().out


def test_a_control_without_common_steps_is_refused(tmp_path, capsys):
    run, other = log(tmp_path / "a.json", falling(40)), tmp_path / "b.json"
    other.write_text(json.dumps([{"step": 1000 + i, "loss": 1.0} for i in range(20)]))
    assert main(["diagnose", str(run), "--control", str(other)]) == 2
    assert "shares 0 step(s)" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nowhere.json"], ["--frobnicate", "x"], []])
def test_mistakes_are_sentences(arguments, capsys):
    assert main(["diagnose", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "Traceback" not in error


def test_report_is_written_here_for_a_foreign_log(tmp_path, monkeypatch, capsys):
    path = log(tmp_path / "trainer_state.json", falling(30))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert main(["report", str(path), "--lang", "en"]) == 0
    page = folder / "trainer_state.report.html"
    assert page.exists() and "KEEP" in page.read_text(encoding="utf-8")
    assert not list(tmp_path.glob("*.html"))


def test_a_report_that_cannot_be_written_is_a_sentence(tmp_path, capsys):
    path = log(tmp_path / "trainer_state.json", falling(30))
    assert main(["report", str(path), "-o", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_door_imports_no_torch(tmp_path):
    path = log(tmp_path / "trainer_state.json", falling(50), evaluations=[(25, 1.3), (50, 1.2)])
    code = (
        "import sys; from runner.__main__ import main; main(['diagnose', sys.argv[1], '--report', sys.argv[2]]);"
        "bad = {'torch', 'transformers', 'matplotlib', 'scipy.stats', 'pandas'} & set(sys.modules); assert not bad, bad"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(tmp_path / "r.html")],
        cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_standard_input_is_read(tmp_path):
    lines = "\n".join(f"{{'loss': {x:.4f}, 'epoch': {i / 40:.3f}}}" for i, x in enumerate(falling(40)))
    done = subprocess.run(
        [sys.executable, "-m", "runner", "diagnose", "-", "--json"],
        cwd=ROOT, input=lines, capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["source"]["points"] == 40, done.stderr


def test_a_file_inside_a_run_folder_means_the_run(tmp_path, capsys):
    rows = [{"step": i, "loss": x, "grad_norm": 1.0 + i % 3} for i, x in enumerate(falling(40), 1)]
    (tmp_path / "config.json").write_text(json.dumps({"task": {"name": "sft"}}))
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "state": "finished"}))
    (tmp_path / "telemetry.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert main(["diagnose", str(tmp_path / "telemetry.jsonl")]) == 0
    assert (tmp_path / "verdict.json").exists() and "Traceback" not in capsys.readouterr().err


def test_a_loss_that_collapses_to_exactly_0_is_no_success(tmp_path, capsys):
    losses = [*falling(40), *[0.0] * 20]
    found = verdict(capsys, str(log(tmp_path / "trainer_state.json", losses, [1.0] * 40 + [0.0] * 20)))
    assert (found["stability"], found["action"]) == ("broken", "stop")


def test_a_rate_rounded_to_0_is_refuted_by_a_falling_loss(tmp_path, capsys):
    found = verdict(capsys, str(log(tmp_path / "trainer_state.json", falling(80), rate=0.0)))
    assert (found["learning"], found["action"]) == ("yes", "keep")
