"""CSV and other tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.diagnosis.reading import read, read_all
from runner.errors import UserError


def table(folder: Path, text: str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("between", [",", ";", "\t", "|"])
def test_plain_columns(tmp_path: Path, between: str) -> None:
    rows = [["Step", "Epoch", "loss", "grad_norm"], ["10", "0.5", "1.5", ""], ["20", "1.0", "NaN", "2"], ["30", "1.5"]]
    trace = read(table(tmp_path, "\n".join(between.join(r) for r in rows) + "\n"))
    assert trace.kind == "csv" and trace.step.tolist() == [10, 20] and trace.epoch.tolist() == [0.5, 1.0]
    assert trace.loss.values[0] == 1.5 and trace.loss.broken.tolist() == [False, True]
    assert trace.grad_norm.known.tolist() == [False, True] and trace.unreadable == 1


def test_a_chart_export_of_wandb_with_two_runs(tmp_path: Path) -> None:
    text = (
        '"Step","warm-sun-1 - train/loss","warm-sun-1 - train/loss__MIN","warm-sun-1 - train/loss__MAX",'
        '"cold-sea-2 - train/loss","cold-sea-2 - train/loss__MIN","cold-sea-2 - train/loss__MAX"\n'
        '"1","2.5","1","9","",  "",""\n"2","2.25","1","9","3.5","1","9"\n"3","","","","Infinity","1","9"\n'
    )
    path = table(tmp_path, text)
    one, two = read_all(path)
    assert (one.step.tolist(), one.loss.values.tolist()) == ([1, 2], [2.5, 2.25])
    assert (two.step.tolist(), two.loss.values.tolist()) == ([2, 3], [3.5, float("inf")])
    assert "2 runs" in read(path).notes[0].en


def test_a_history_export_of_wandb(tmp_path: Path) -> None:
    text = (
        "_step,_runtime,train/global_step,train/loss,train/grad_norm,train/learning_rate,train/epoch,eval/loss\n"
        "0,1.0,10,2.0,1.0,1e-4,0.1,\n1,2.0,20,1.5,0.5,5e-5,0.2,\n2,3.0,20,,,,0.2,1.6\n3,4.0,30,1.25,0.25,1e-5,0.3,\n"
    )
    trace = read(table(tmp_path, text))
    assert trace.step.tolist() == [10, 20, 30] and trace.loss.values.tolist() == [2.0, 1.5, 1.25]
    assert trace.grad_norm.values.tolist() == [1.0, 0.5, 0.25] and trace.learning_rate.values[2] == 1e-5
    assert [(e.step.tolist(), e.loss.tolist()) for e in trace.evaluations] == [([20], [1.6])]


def test_the_table_of_a_notebook_and_decimal_commas(tmp_path: Path) -> None:
    trace = read(table(tmp_path, "Step\tTraining Loss\tValidation Loss\n10\t1.5\tNo log\n20\t1.25\t1.4\n", "a.txt"))
    assert trace.loss.values.tolist() == [1.5, 1.25]
    assert [(e.step.tolist(), e.loss.tolist()) for e in trace.evaluations] == [([20], [1.4])]
    assert read(table(tmp_path, "step;loss\n1;1,5\n2;2,5e-1\n")).loss.values.tolist() == [1.5, 0.25]
    assert read(table(tmp_path, "Wall time,Step,Value\n1.0,1,2.5\n2.0,2,2.25\n")).loss.values.tolist() == [2.5, 2.25]
    only = read(table(tmp_path, "Wall time,Step,Value\n1.0,1,2.5\n", "run_eval_loss.csv"))
    assert only.points == 0 and only.evaluations[0].loss.tolist() == [2.5]


def test_a_table_of_something_else(tmp_path: Path) -> None:
    for text in ("a,b\n1,2\n", "step,accuracy\n1,0.5\n", "one line"):
        with pytest.raises(UserError, match="nothing that looks like the log"):
            read(table(tmp_path, text))
