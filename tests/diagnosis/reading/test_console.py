"""Console logs: Trainer's dicts among progress bars, colours, warnings and the words of Python's libraries."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest

from runner.diagnosis.reading import read, read_all
from runner.diagnosis.trace import Trace


def console(folder: Path, text: str) -> Trace:
    path = folder / "train.log"
    path.write_text(text, encoding="utf-8")
    return read(path)


def test_dicts_of_every_version_in_the_midst_of_other_text(tmp_path: Path) -> None:
    trace = console(
        tmp_path,
        "INFO {'not': 'a record'} config={'learning_rate': 1e-4}\n"
        "{'loss': 2.0, 'grad_norm': 1.5, 'learning_rate': 1e-04, 'epoch': 0.1}\n"
        " 12%|#2   | 1/8 [00:01<00:07]\x1b[32m"
        "{'loss': '1.5', 'grad_norm': 'nan', 'learning_rate': '9e-05', 'epoch': '0.2'}"
        "\x1b[0m warning: something { unbalanced\n"
        '[rank0] {"loss": 1.25, "grad_norm": NaN, "epoch": 0.3} trailing\r'
        "{'loss': nan, 'grad_norm': inf, 'epoch': 0.4}\n"
        "{'eval_loss': 1.4, 'eval_runtime': 2.0, 'epoch': 0.4}\n"
        "{'loss': tensor(0.75, device='cuda:0'), 'grad_norm': np.float32(-inf), 'epoch': 0.5, 'note': None}\n"
        "{'loss': 0.5, 'grad_norm': Infinity,\n 'epoch': 0.6, 'detail': {'a': True}}\n"
        "{'loss': 0.25, 'who': \"it's\", 'epoch': 0.7}\n"
        "{'train_runtime': 9.0, 'train_loss': 1.0, 'epoch': 0.7}\n",
    )
    assert trace.kind == "console" and trace.steps_counted and trace.step.tolist() == [1, 2, 3, 4, 5, 6, 7]
    np.testing.assert_equal(trace.loss.values, [2.0, 1.5, 1.25, np.nan, 0.75, 0.5, 0.25])
    assert trace.loss.known.all()
    np.testing.assert_equal(trace.grad_norm.values, [1.5, np.nan, np.nan, np.inf, -np.inf, np.inf, np.nan])
    assert trace.grad_norm.known.tolist() == [True] * 6 + [False]
    assert [(e.step.tolist(), e.loss.tolist()) for e in trace.evaluations] == [([4], [1.4])]
    assert trace.unreadable == 0 and trace.ended is True and trace.logging_steps is None


def test_a_torn_dict_is_counted(tmp_path: Path) -> None:
    trace = console(
        tmp_path, "{'loss': 1.0, 'epoch': 0.1}\n{'loss': <object at 0x1>}\n{'loss': 2.0}\n{'loss': 0.5, 'gra"
    )
    assert trace.loss.values.tolist() == [1.0, 2.0] and trace.unreadable == 2


@pytest.mark.parametrize("drawn", ["after", "before", "early"])
def test_progress_bars_give_the_steps(tmp_path: Path, drawn: str) -> None:
    lines = ["Map: 100%|####| 500/500 [00:01<00:00, 400 examples/s]"]
    for i, step in enumerate(range(10, 101, 10)):
        bar = f"\r {step}%|###   | {step - (drawn == 'early')}/120 [00:10<01:00,  1.00s/it]"
        record = f"{{'loss': {2 - i / 10}, 'epoch': {step / 40}}}"
        lines += [record, bar] if drawn == "after" else [bar, record]
        lines += ["\r100%|####| 7/7 [00:01<00:00]", f"{{'eval_loss': {2 - i / 20}, 'epoch': {step / 40}}}"]
    trace = console(tmp_path, "\n".join(lines))
    assert trace.step.tolist() == list(range(10, 101, 10)) and not trace.steps_counted
    assert (trace.max_steps, trace.logging_steps, trace.steps_per_epoch) == (120, 10, pytest.approx(40))
    assert trace.evaluations[0].step.tolist() == trace.step.tolist() and trace.ended is False


def test_bars_of_a_run_that_died_after_a_record(tmp_path: Path) -> None:
    lines = ["  0%|          | 0/4875 [00:00<?, ?it/s]"]
    for step in (10, 20, 30, 40):
        lines += [f"{{'loss': 1.{step}, 'epoch': 0.0{step // 10}}}", f" 1%|#  | {step}/4875 [00:20<2:42:12,  2.00s/it]"]
    lines[-1:] = ["Traceback (most recent call last):"]
    trace = console(tmp_path, "\n".join(lines))
    assert trace.step.tolist() == [10, 20, 30, 40] and trace.max_steps == 4875 and trace.ended is False


def test_bars_that_do_not_fit_are_left_alone(tmp_path: Path) -> None:
    text = "".join(f"{{'loss': {s}.0, 'epoch': 0.{s}}}\n" for s in range(1, 6)) + " 5%|#| 50/100 [00:01<00:01]"
    assert console(tmp_path, text).steps_counted


def test_several_runs_pasted_into_one_log(tmp_path: Path) -> None:
    def run(start: float, interval: float) -> str:
        return "".join(f"{{'loss': {start - i}, 'epoch': {round(interval * (i + 1), 2)}}}\n" for i in range(5))

    path = tmp_path / "a.log"
    path.write_text(run(20.5, 0.02) + run(30.5, 0.05) + "{'train_runtime': 1.0, 'train_loss': 2.0}\n" + run(40.5, 0.01))
    assert [t.loss.values[0] for t in read_all(path)] == [20.5, 30.5, 40.5]
    assert [t.ended for t in read_all(path)] == [None, True, None]
    assert read(path).loss.values.tolist() == [40.5, 39.5, 38.5, 37.5, 36.5] and "3 runs" in read(path).notes[0].en


def test_a_resume_in_a_log_without_steps(tmp_path: Path) -> None:
    first = "".join(f"{{'loss': {20 - i}.0, 'epoch': {(i + 1) / 10}}}\n" for i in range(10))
    again = "".join(f"{{'loss': {20 - i}.5, 'epoch': {(i + 1) / 10}}}\n" for i in range(6, 14))
    trace = console(tmp_path, first + again)
    assert trace.step.tolist() == list(range(1, 15)) and trace.repeated == 4
    assert [(r.before, r.step, r.loss_before, r.loss_after) for r in trace.restarts] == [(10, 7, 14.0, 14.5)]


def test_many_evaluations_and_one_point(tmp_path: Path) -> None:
    lines = [f"{{'eval_loss': {1 - e / 100}, 'eval_accuracy': 0.5, 'epoch': {e}.0}}" for e in range(1, 51)]
    lines.insert(10, "{'loss': 0.7, 'epoch': 10.5}")
    trace = console(tmp_path, "\n".join(lines))
    assert trace.points == 1 and trace.step.tolist() == [11] and trace.family == "classification"
    assert trace.evaluations[0].step.tolist() == [s for s in range(1, 52) if s != 11]


def test_whose_console_it_is(tmp_path: Path) -> None:
    record = "{'loss': 1.0, 'epoch': 0.1}\n"
    assert console(tmp_path, record).tool == "transformers"
    assert console(tmp_path, "[INFO|2025] llamafactory.cli: x\n" + record).tool == "llamafactory"
    assert console(tmp_path, "[INFO:swift] start\n" + record).tool == "ms_swift"


def test_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Piped:
        buffer = io.BytesIO(b"{'loss': 1.0, 'epoch': 0.1}\n")

    monkeypatch.setattr(sys, "stdin", Piped())
    assert read(Path("-")).loss.values.tolist() == [1.0]
