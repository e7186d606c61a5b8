"""The table reads whatever lies in a sweep folder."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from runner.runfolder import number
from runner.sweep import callback
from runner.sweep.table import finish_sweep, print_table, read_rows


def make(folder: Path, overrides: list[str], run: object = None, summary: object = None) -> None:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text("\n".join(f"- {o}" for o in overrides), encoding="utf-8")
    for name, content in (("run", run), ("summary", summary)):
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / f"{name}.json").write_text(text, encoding="utf-8")


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep folder that Hydra is said to have used."""
    monkeypatch.setattr(callback, "_current", callback.Sweep(tmp_path, None))
    return tmp_path


def test_a_whole_record_fills_a_row(sweep):
    run = {"state": "finished", "exit_code": 0, "metric": 0.5, "metric_name": "macro_f1", "new_field": 1}
    summary = {"steps": 7, "train_loss": {"last": 1.25}, "eval": {"eval_loss": 1.5}, "seconds": 3.5}
    make(sweep / "a", ["seed=1", "clip=norm"], run, summary)
    make(sweep / "b", ["seed=1", "clip=none"], run, summary)
    row = read_rows(sweep)[0]
    assert (row.changed, row.overrides) == (["clip=norm"], ["seed=1", "clip=norm"])
    assert (row.steps, row.train_loss, row.eval_loss, row.seconds) == (7, 1.25, 1.5, 3.5)
    assert (row.metric_name, row.metric) == ("macro_f1", 0.5)
    assert finish_sweep() == 0


@pytest.mark.parametrize("run", [None, "", '{"state": "fin', "[]", "null", {}, {"state": "running"}])
@pytest.mark.parametrize("summary", [None, '{"steps', [], {"train_loss": 3, "eval": None, "steps": "many"}])
def test_missing_and_torn_files_are_a_row_and_status_1(sweep, run, summary, capsys):
    make(sweep / "a", ["seed=1"], run, summary)
    assert finish_sweep() == 1
    assert "0 of 1 trials finished" in capsys.readouterr().out


def test_nan_is_shown_and_stays_valid_json(sweep, capsys):
    make(sweep / "a", [], {"state": "diverged", "metric": "NaN"}, {"train_loss": {"last": "Infinity"}})
    assert finish_sweep() == 1
    text = (sweep / "sweep.json").read_text(encoding="utf-8")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    row = json.loads(text, parse_constant=refuse)["trials"][0]
    assert (row["metric"], row["train_loss"]) == ("NaN", "Infinity")
    assert "inf" in capsys.readouterr().out


def test_other_files_in_the_folder_are_no_trials_and_no_trial_is_a_failure(sweep):
    (sweep / "multirun.yaml").write_text("a: 1", encoding="utf-8")
    (sweep / "notes").mkdir()
    assert read_rows(sweep) == []
    assert finish_sweep() == 1


def test_brackets_in_values_are_not_markup(sweep, capsys):
    make(sweep / "a", ["'task.labels=[积极,消极]'"], {"state": "failed", "reason": "no [bold]row[/bold]"})
    print_table(sweep, read_rows(sweep))
    shown = capsys.readouterr().out
    assert "task.labels=[积极,消极]" in shown
    assert "no [bold]row[/bold]" in shown


def test_without_a_sweep_there_is_no_table(monkeypatch, capsys):
    monkeypatch.setattr(callback, "_current", None)
    assert finish_sweep() == 0
    assert finish_sweep(2) == 130
    assert capsys.readouterr().out == ""


def test_numbers_are_read_as_they_are_written():
    assert number("-Infinity") == -math.inf
    assert number("1e-4") == 1e-4
    assert number(True) is None
    assert number("many") is None
