"""JSON logs: Trainer's state in its shapes, LLaMA-Factory's and ms-swift's lines, files that were cut short."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.diagnosis.reading import read, read_all
from runner.diagnosis.trace import Trace
from runner.errors import UserError

POINTS = [
    {"epoch": 0.1, "grad_norm": 1.5, "learning_rate": 1e-4, "loss": 2.0, "step": 10},
    {"epoch": 0.2, "grad_norm": float("nan"), "learning_rate": 9e-5, "loss": 1.5, "step": 20},
    {"epoch": 0.2, "eval_loss": 1.6, "eval_runtime": 3.0, "step": 20},
    {"epoch": 0.3, "grad_norm": float("inf"), "learning_rate": 8e-5, "loss": 0.0, "step": 30},
    {"epoch": 0.4, "eval_loss": 1.4, "eval_g0_loss": 1.1, "step": 40},
    {"epoch": 0.4, "train_loss": 1.17, "train_runtime": 60.0, "total_flos": 1e15, "step": 40},
]


def state(records: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    facts = {"epoch": 0.4, "global_step": 40, "max_steps": 40, "num_train_epochs": 1, "logging_steps": 10}
    return {**facts, "log_history": records, **more}


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def values(trace: Trace) -> tuple[list[int], list[float]]:
    return trace.step.tolist(), trace.loss.values.tolist()


def test_trainer_state_gives_points_evaluations_and_plan(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "trainer_state.json", state(POINTS)))
    assert (trace.kind, trace.tool, trace.family) == ("trainer_state", "transformers", None)
    assert values(trace) == ([10, 20, 30], [2.0, 1.5, 0.0])
    assert trace.epoch.tolist() == [0.1, 0.2, 0.3]
    assert trace.grad_norm.broken.tolist() == [False, True, True]
    assert np.isnan(trace.grad_norm.values[1]) and np.isinf(trace.grad_norm.values[2])
    assert trace.learning_rate.values.tolist() == [1e-4, 9e-5, 8e-5]
    assert [(e.name, e.step.tolist(), e.loss.tolist()) for e in trace.evaluations] == [
        ("", [20, 40], [1.6, 1.4]),
        ("g0", [40], [1.1]),
    ]
    assert trace.steps_per_epoch == pytest.approx(100) and trace.epochs_planned == pytest.approx(0.4)
    assert (trace.max_steps, trace.logging_steps, trace.ended) == (40, 10, True)
    assert (trace.repeated, trace.restarts, trace.unreadable, trace.steps_counted) == (0, [], 0, False)


def test_the_same_records_in_other_shapes_and_under_other_names(tmp_path: Path) -> None:
    expected = values(read(write(tmp_path / "trainer_state.json", state(POINTS))))
    shapes = {
        "__init__.py": state(POINTS),
        "wrapped.json": {"project": "x", "trainer_state": POINTS},
        "nested.json": {"trainer_state": state(POINTS)},
        "list.json": POINTS,
        "columns.json": {"step": [10, 20, 30], "loss": [2.0, 1.5, 0.0], "name": "x"},
    }
    for name, content in shapes.items():
        assert values(read(write(tmp_path / name, content))) == expected, name
    lines = tmp_path / "lines.jsonl"
    lines.write_text("\n".join(json.dumps(r) for r in POINTS))
    assert values(read(lines)) == expected
    packed = tmp_path / "no_suffix"
    packed.write_bytes(gzip.compress(json.dumps(state(POINTS)).encode()))
    assert values(read(packed)) == expected
    windows = tmp_path / "windows.json"
    windows.write_text(json.dumps(state(POINTS)), encoding="utf-16")
    assert values(read(windows)) == expected


def test_an_unfinished_run_has_not_ended_and_absurd_epochs_are_no_plan(tmp_path: Path) -> None:
    content = state(POINTS[:4], max_steps=4000, num_train_epochs=2**63 - 1, global_step=30)
    for record in content["log_history"]:
        record = record.pop("epoch", None)
    content.pop("epoch")
    trace = read(write(tmp_path / "trainer_state.json", content))
    assert trace.ended is False and trace.epochs_planned is None and trace.steps_per_epoch is None


def test_epochs_of_two_decimals_do_not_spoil_the_length_of_an_epoch(tmp_path: Path) -> None:
    records = [{"loss": 1.0, "step": s, "epoch": round(s / 3750, 2)} for s in range(1, 51)]
    content = state(records, epoch=50 / 3750, global_step=50, max_steps=50)
    assert read(write(tmp_path / "a.json", content)).steps_per_epoch == pytest.approx(3750)
    assert read(write(tmp_path / "b.json", records)).steps_per_epoch is None, "two decimals alone do not tell"


def test_an_empty_history_is_a_trace_without_points(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "trainer_state.json", state([], max_steps=17)))
    assert trace.points == 0 and trace.max_steps == 17 and trace.kind == "trainer_state" and trace.ended is True


def test_a_summary_is_never_a_point_wherever_it_stands(tmp_path: Path) -> None:
    summary = POINTS[-1]
    assert values(read(write(tmp_path / "a.json", [summary, *POINTS[:-1]]))) == ([10, 20, 30], [2.0, 1.5, 0.0])
    only = read(write(tmp_path / "b.json", state([summary])))
    assert only.points == 0


def test_llamafactory_lines(tmp_path: Path) -> None:
    rows = [
        {"current_steps": 5, "total_steps": 15, "loss": 2.0, "lr": 1e-4, "epoch": 0.5, "elapsed_time": "0:00:10"},
        {"current_steps": 10, "total_steps": 15, "eval_loss": 1.9, "epoch": 1.0},
        {"current_steps": 10, "total_steps": 15, "loss": 1.8, "eval_loss": None, "reward": None, "learning_rate": 5e-5},
        {"current_steps": 15, "total_steps": 15, "loss": None, "epoch": 1.5, "percentage": 100.0},
        {"current_steps": 7, "total_steps": 7, "eval_loss": 1.7, "epoch": 1.5},
    ]
    path = tmp_path / "trainer_log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    trace = read(path)
    assert (trace.kind, trace.tool, trace.family, trace.max_steps, trace.ended) == (
        "trainer_log", "llamafactory", None, 15, True,
    )  # fmt: skip
    assert values(trace) == ([5, 10], [2.0, 1.8])
    assert trace.learning_rate.values.tolist() == [1e-4, 5e-5] and not trace.grad_norm.any
    assert [(e.step.tolist(), e.loss.tolist()) for e in trace.evaluations] == [([10], [1.9])], "7 counts batches"


def test_ms_swift_lines(tmp_path: Path) -> None:
    rows = [
        {"loss": "1.5", "token_acc": 0.6, "epoch": 0.01 * s, "global_step/max_steps": f"{s}/94"} for s in (1, 5, 10)
    ]
    path = tmp_path / "logging.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    trace = read(path)
    assert (trace.tool, trace.family, trace.max_steps, trace.ended) == ("ms_swift", "sft", 94, False)
    assert values(trace) == ([1, 5, 10], [1.5, 1.5, 1.5])


def test_a_file_cut_short_keeps_the_records_that_are_whole(tmp_path: Path) -> None:
    text = json.dumps(state(POINTS), indent=2)
    path = tmp_path / "trainer_state.json"
    for end in range(text.index('"loss": 1.5'), len(text) - 2, 7):
        path.write_text(text[:end])
        trace = read(path)
        assert trace.unreadable == 1 and trace.points >= 1, end
        assert values(trace)[1] == [2.0, 1.5, 0.0][: trace.points]
    lines = tmp_path / "a.jsonl"
    lines.write_text("\n".join(map(json.dumps, POINTS[:4]))[:-5])
    assert read(lines).unreadable == 1 and values(read(lines)) == ([10, 20], [2.0, 1.5])
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(text.encode() * 1)[:-12])
    assert read(packed).points >= 1


def test_two_ranks_in_one_file_are_repeats_and_no_restart(tmp_path: Path) -> None:
    rows = [
        {"current_steps": s, "total_steps": 50, "loss": 2 - s / 100 + rank * 1e-4, "elapsed_time": f"0:00:{s}"}
        for s in (10, 20, 30, 40, 50)
        for rank in (0, 1)
    ]
    rows[3], rows[4] = rows[4], rows[3]
    path = tmp_path / "trainer_log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    trace = read(path)
    assert trace.step.tolist() == [10, 20, 30, 40, 50] and trace.repeated == 5 and trace.restarts == []
    assert len(read_all(path)) == 1


def test_a_resume_that_goes_back_is_a_restart_and_the_last_value_wins(tmp_path: Path) -> None:
    first = [{"step": s, "loss": 3.0 - s / 100} for s in range(10, 110, 10)]
    again = [{"step": s, "loss": 2.9 - s / 100} for s in range(60, 160, 10)]
    trace = read(write(tmp_path / "a.json", first + again))
    assert trace.step.tolist() == list(range(10, 160, 10)) and trace.repeated == 5
    assert trace.loss.values[5:].tolist() == [r["loss"] for r in again]
    (restart,) = trace.restarts
    assert (restart.before, restart.step, restart.loss_before, restart.loss_after) == (100, 60, 2.4, 2.3)


@pytest.mark.parametrize("second_interval", [10, 20])
def test_two_runs_in_one_file_are_two_traces(tmp_path: Path, second_interval: int) -> None:
    first = [{"step": s, "loss": 3.0 - s / 100} for s in range(10, 110, 10)]
    second = [{"step": s, "loss": 7.0 - s / 100} for s in range(second_interval, 90, second_interval)]
    path = write(tmp_path / "a.json", first + second)
    one, two = read_all(path)
    assert values(one) == ([r["step"] for r in first], [r["loss"] for r in first])
    assert values(two) == ([r["step"] for r in second], [r["loss"] for r in second])
    assert values(read(path)) == values(two) and "2 runs" in read(path).notes[-1].en
    assert "2 次" in read(path).notes[-1].zh and not one.restarts and not two.restarts


def test_the_same_run_pasted_twice_is_one_run(tmp_path: Path) -> None:
    run = [{"step": s, "loss": 3.0 - s / 100} for s in range(10, 110, 10)]
    (trace,) = read_all(write(tmp_path / "a.json", run + run))
    assert trace.points == 10 and trace.repeated == 10 and not trace.restarts


def test_families(tmp_path: Path) -> None:
    def family(**keys: Any) -> str | None:
        return read(write(tmp_path / "a.json", [{"step": s, "loss": 1.0, **keys} for s in (1, 2)])).family

    assert family(reward=1.0, kl=0.1) == "reinforcement"
    assert family(**{"completions/mean_length": 3.0}) == "reinforcement"
    assert family(**{"rewards/chosen": 0.1, "kl": 0.1}) == "preference"
    assert family(**{"logps/chosen": -3.0}) == "preference"
    assert family(eval_accuracy=0.5) == "classification"
    assert family(eval_f1_macro=0.5) == "classification"
    assert family(eval_accuracy=0.5, mean_token_accuracy=0.5) == "sft"
    assert family(reward=None) is None
    assert family(eval_rouge1=0.4, eval_accuracy=0.4) is None


def test_an_evaluation_after_the_end_does_not_replace_the_last_one(tmp_path: Path) -> None:
    records = [*POINTS, {"epoch": 0.4, "eval_loss": 1.0, "step": 40}]
    trace = read(write(tmp_path / "a.json", records))
    assert trace.evaluations[0].loss.tolist() == [1.6, 1.4], "the weights of the best checkpoint were loaded"


def test_what_cannot_be_read_says_what_can(tmp_path: Path) -> None:
    pointer = tmp_path / "trainer_state.json"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 130\n")
    with pytest.raises(UserError, match="git lfs pull"):
        read(pointer)
    for name, content in {
        "a.json": b'{"a": 1}',
        "b": b"",
        "c.txt": b"hello\nworld\n",
        "d.bin": bytes(range(256)),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=r"trainer_state\.json; trainer_log\.jsonl"):
            read(tmp_path / name)
    with pytest.raises(UserError, match="does not exist"):
        read(tmp_path / "absent")
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b" + bytes(30))
    with pytest.raises(UserError, match="broken"):
        read(tmp_path / "broken.gz")
