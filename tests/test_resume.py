"""A run that was interrupted and resumed has exactly the losses of one that was not."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.config.schema import Clip
from runner.errors import ConfigError, UserError
from runner.run import run
from runner.runfolder import newest_checkpoint, read_json, read_telemetry

FACTS = ("step", "epoch", "loss", "grad_norm", "clip_coef", "learning_rate", "tokens", "examples", "sources")
CUT = 3
"""Step of the checkpoint that is resumed from; an epoch has 4 steps."""


def facts(folder: Path) -> list[dict[str, Any]]:
    return [{key: row.get(key) for key in FACTS} for row in read_telemetry(folder)]


def cut_down(folder: Path, to: Path) -> Path:
    """`folder` as a crash after step 5 would have left it: later checkpoints absent, the last line torn."""
    shutil.copytree(folder, to)
    for checkpoint in (to / "checkpoints").glob("checkpoint-*"):
        if int(checkpoint.name.split("-")[1]) > CUT:
            shutil.rmtree(checkpoint)
    # A checkpoint that the crash left half written: newest by name, useless.
    (to / "checkpoints" / "checkpoint-6").mkdir()
    lines = (to / "telemetry.jsonl").read_text().splitlines(keepends=True)
    (to / "telemetry.jsonl").write_text("".join(lines[:5]) + lines[5][:40])
    run_json = read_json(to / "run.json")
    assert run_json is not None
    (to / "run.json").write_text(json.dumps({**run_json, "state": "running"}))
    return to


@pytest.mark.parametrize("sampler", ["random", "stratified", "length_grouped"])
@pytest.mark.parametrize("method", ["lora", "none"])
@pytest.mark.parametrize("task", ["sft", "classification"])
def test_resumed_losses_are_identical(
    make_config: Callable[..., Any], tmp_path: Path, task: str, method: str, sampler: str
) -> None:
    cfg = make_config(
        task,
        rows=26,
        lora__method=method,
        lora__lora_dropout=0.1,
        batch__sampler=sampler,
        schedule__num_train_epochs=2.5,
        optim__learning_rate=3e-3,
        checkpoint__save_strategy="steps",
        checkpoint__save_steps=CUT,
        checkpoint__save_total_limit=None,
    )
    whole = run(cfg)
    assert whole.state == "finished"
    expected = facts(whole.folder)
    assert [row["step"] for row in expected] == list(range(1, 11))
    assert len({row["loss"] for row in expected}) == 10

    folder = cut_down(whole.folder, tmp_path / "cut")
    resumed = run(dataclasses.replace(cfg, checkpoint=dataclasses.replace(cfg.checkpoint, resume=str(folder))))
    assert resumed.folder == folder
    assert facts(folder) == expected
    steps_on_disk = [
        json.loads(x)["step"] for x in (folder / "telemetry.jsonl").read_text().splitlines() if x.endswith("}")
    ]
    assert steps_on_disk == [1, 2, 3, 4, 5, *range(4, 11)]


def test_auto_takes_the_newest_unfinished_run_of_the_same_config(
    make_config: Callable[..., Any], tmp_path: Path
) -> None:
    cfg = make_config(
        "sft",
        out="runs/first",
        schedule__max_steps=6,
        checkpoint__save_strategy="steps",
        checkpoint__save_steps=CUT,
        checkpoint__save_total_limit=None,
    )
    first = run(cfg)
    cut = cut_down(first.folder, tmp_path / "runs" / "second")
    auto = dataclasses.replace(
        cfg,
        output_dir=str(tmp_path / "runs" / "third"),
        checkpoint=dataclasses.replace(cfg.checkpoint, resume="auto"),
    )
    resumed = run(auto)
    assert resumed.folder == cut
    assert facts(cut) == facts(first.folder)
    # Now nothing unfinished is left, and another config would not have matched: a new run begins.
    again = run(dataclasses.replace(auto, seed=1))
    assert again.folder == tmp_path / "runs" / "third"


def test_a_folder_without_checkpoints_is_refused(make_config: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cfg = make_config("sft", checkpoint__resume=str(tmp_path / "empty"))
    with pytest.raises(UserError, match="no usable checkpoint"):
        run(cfg)


def test_the_newest_checkpoint_is_the_newest_that_parses(tmp_path: Path) -> None:
    for step, text in ((2, "{}"), (10, '{"global_step": 10}'), (12, '{"global')):
        folder = tmp_path / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(text)
    found = newest_checkpoint(tmp_path)
    assert found is not None and found.name == "checkpoint-10"


@pytest.mark.parametrize("method", ["zclip", "autoclip", "adagc"])
def test_what_a_clipping_method_has_learnt_survives_a_resume(
    make_config: Callable[..., Any], tmp_path: Path, method: str
) -> None:
    cfg = make_config(
        schedule__max_steps=9,
        optim__learning_rate=3e-3,
        clip=Clip(method=method, warmup_steps=2, percentile=50.0),  # type: ignore[arg-type]
        checkpoint__save_strategy="steps",
        checkpoint__save_steps=CUT,
        checkpoint__save_total_limit=None,
    )
    whole = run(cfg)
    expected = facts(whole.folder)
    assert any(row["clip_coef"] < 1 for row in expected[CUT:])
    folder = cut_down(whole.folder, tmp_path / "cut")
    run(dataclasses.replace(cfg, checkpoint=dataclasses.replace(cfg.checkpoint, resume=str(folder))))
    assert facts(folder) == expected


def resumed_with(cfg: Any, folder: Path, **changes: Any) -> Any:
    for key, value in changes.items():
        group, _, name = key.partition("__")
        cfg = dataclasses.replace(cfg, **{group: dataclasses.replace(getattr(cfg, group), **{name: value})})
    return dataclasses.replace(cfg, checkpoint=dataclasses.replace(cfg.checkpoint, resume=str(folder)))


def test_a_finished_run_is_not_trained_past_its_end_unless_told(make_config: Callable[..., Any]) -> None:
    cfg = make_config(schedule__max_steps=6, checkpoint__save_strategy="steps", checkpoint__save_steps=CUT)
    folder = run(cfg).folder
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != ".lock"}
    with pytest.raises(UserError, match="has finished, at step 6"):
        run(resumed_with(cfg, folder))
    with pytest.raises(ConfigError, match=r"lora\.r was 8, is 4"):
        run(resumed_with(cfg, folder, lora__r=4))
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != ".lock"} == before
    longer = run(resumed_with(cfg, folder, schedule__max_steps=8))
    assert [row["step"] for row in read_telemetry(longer.folder)] == list(range(1, 9))
    assert "Note: schedule.max_steps 6 -> 8" in (folder / "console.log").read_text()
