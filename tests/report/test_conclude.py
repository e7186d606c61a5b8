"""The end of a run, without a run."""

import json

import pytest

from runner.report import conclude as module
from runner.report.conclude import conclude
from runner.report.screen import Screen


@pytest.fixture
def folder(tmp_path):
    """A finished run folder as training leaves it, before it is diagnosed."""
    path = tmp_path / "run"
    path.mkdir()
    (path / "run.json").write_text(json.dumps({"schema": 1, "state": "finished"}))
    (path / "config.json").write_text(json.dumps({"task": {"name": "sft"}, "clip": {"method": "none"}}))
    rows = [
        {"step": i, "epoch": i / 40, "loss": 1.5 - 0.01 * i + 0.05 * (i * 37 % 11) / 11, "grad_norm": 1.0 + i % 3 / 10}
        for i in range(1, 41)
    ]
    (path / "telemetry.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_verdict_page_and_pictures_are_left_and_at_most_twelve_lines_are_said(folder, capsys, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    screen = Screen(folder / "console.log")
    conclude(folder, screen)
    screen.close()
    out = capsys.readouterr().out.strip().splitlines()
    assert out[0].startswith("KEEP") and len(out) <= 12 and "report.html" in out[-1]
    verdict = json.loads((folder / "verdict.json").read_text())
    assert (verdict["stability"], verdict["learning"], verdict["tool"]) == ("normal", "yes", "runner")
    assert "KEEP" in (folder / "report.html").read_text(encoding="utf-8")
    assert (folder / "plots" / "grad_norm.png").read_bytes().startswith(b"\x89PNG")


def test_the_language_follows_the_locale(folder, capsys, monkeypatch):
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    conclude(folder, Screen())
    assert capsys.readouterr().out.strip().startswith("继续")


def test_a_diagnosis_that_fails_is_told_and_costs_nothing(folder, capsys, monkeypatch):
    def broken(trace):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(module, "diagnose", broken)
    conclude(folder, Screen())
    out = capsys.readouterr().out
    assert "The run is complete, but its diagnosis failed" in out and "ZeroDivisionError: planted" in out
    assert not (folder / "verdict.json").exists()
