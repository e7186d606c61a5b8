"""Output folders of other tools, and what lies beside a log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.diagnosis.reading import read
from runner.errors import UserError


def state(folder: Path, steps: int, max_steps: int = 100) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = [{"step": s, "loss": 2.0, "grad_norm": 1.0} for s in range(10, steps + 1, 10)]
    content = {"log_history": records, "global_step": steps, "max_steps": max_steps}
    (folder / "trainer_state.json").write_text(json.dumps(content))


def trainer_log(folder: Path, steps: int) -> None:
    rows = [{"current_steps": s, "total_steps": 100, "loss": 2.0, "lr": 1e-4} for s in range(10, steps + 1, 10)]
    (folder / "trainer_log.jsonl").write_text("\n".join(map(json.dumps, rows)))


def test_the_longest_state_wins(tmp_path: Path) -> None:
    for steps in (20, 40, 100, 60):
        state(tmp_path / f"checkpoint-{steps}", steps)
    trace = read(tmp_path)
    assert trace.step[-1] == 100 and trace.path.parent.name == "checkpoint-100" and trace.tool == "transformers"
    (tmp_path / "checkpoint-100" / "trainer_state.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert read(tmp_path).step[-1] == 60


@pytest.mark.parametrize(("logged", "kind"), [(60, "trainer_state"), (100, "trainer_log")])
def test_beside_trainer_log_the_state_is_read_unless_it_is_older(tmp_path: Path, logged: int, kind: str) -> None:
    state(tmp_path / "checkpoint-60", 60)
    trainer_log(tmp_path, logged)
    trace = read(tmp_path)
    assert trace.kind == kind and trace.tool == "llamafactory" and trace.step[-1] == logged
    state(tmp_path, 60)
    assert read(tmp_path / "trainer_state.json").tool == "llamafactory"


def test_settings_beside_the_log_tell_the_clip(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-60", 60)
    path = tmp_path / "checkpoint-60" / "trainer_state.json"
    assert read(path).max_grad_norm is None
    (tmp_path / "training_args.yaml").write_text("learning_rate: 1e-4\nmax_grad_norm: 0.3\n")
    assert read(path).max_grad_norm == 0.3
    (tmp_path / "checkpoint-60" / "args.json").write_text('{"max_grad_norm": 2.0}')
    assert read(path).max_grad_norm == 2.0


def test_the_model_beside_the_log_tells_the_classes(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-60", 60)
    config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}}
    (tmp_path / "checkpoint-60" / "config.json").write_text(json.dumps(config))
    trace = read(tmp_path)
    assert (trace.family, trace.labels) == ("classification", 3)


def test_several_runs_below_a_folder(tmp_path: Path) -> None:
    state(tmp_path / "a" / "checkpoint-20", 20)
    state(tmp_path / "b" / "checkpoint-90", 90)
    trace = read(tmp_path)
    assert trace.step[-1] == 90 and "2 logs in this folder" in trace.notes[0].en and "2 份" in trace.notes[0].zh


def test_a_console_log_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    (tmp_path / "train.log").write_text("{'loss': 1.0, 'epoch': 0.5}\n")
    assert read(tmp_path).kind == "console"


def test_a_folder_without_a_log(tmp_path: Path) -> None:
    (tmp_path / "training_args.bin").write_bytes(b"\x80\x02pickle")
    with pytest.raises(UserError, match="holds no log"):
        read(tmp_path)
