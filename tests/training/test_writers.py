"""Every place that shows a loss shows a step whose loss was NaN as NaN, and no other step."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.config.schema import Guard
from runner.report import progress
from runner.run import run
from runner.runfolder import number, read_json, read_telemetry
from tests.training import test_guarded

poisoned = test_guarded.poisoned
STEPS = 10


def tracked(folder: Path) -> dict[str, dict[int, float]]:
    """{writer: {step: loss}} of Trainer's log in the newest checkpoint and of tensorboard, as far as they hold one."""
    newest = max((folder / "checkpoints").glob("checkpoint-*"), key=lambda p: int(p.name.rpartition("-")[2]))
    state = read_json(newest / "trainer_state.json")
    assert state is not None
    found = {"trainer_state.json": {r["step"]: float(r["loss"]) for r in state["log_history"] if "loss" in r}}
    if importlib.util.find_spec("tensorboard") is not None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
        events.Reload()
        found["tensorboard"] = {e.step: e.value for e in events.Scalars("train/loss")}
    return found


def shown_steps(console: str) -> dict[int, list[str]]:
    """{step: losses} of the progress lines in `console.log`, as they are written there."""
    found: dict[int, list[str]] = {}
    for step, loss in re.findall(r"^step (\d+)/\d+  loss (\S+)", console, re.MULTILINE):
        found.setdefault(int(step), []).append(loss)
    return found


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(("task", "on_nonfinite"), [("sft", "warn"), ("sft", "skip"), ("classification", "skip")])
def test_no_writer_shows_a_finite_loss_for_a_step_whose_loss_was_not(
    make_config: Callable[..., Any],
    poisoned: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    on_nonfinite: str,
    every: int,
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    has_tensorboard = importlib.util.find_spec("tensorboard") is not None
    cfg = make_config(
        task,
        rows=40,
        model__path=str(poisoned),
        schedule__max_steps=STEPS,
        seed=1,
        stability__guard=Guard(on_nonfinite=on_nonfinite, max_consecutive=4),
        tracking__logging_steps=every,
        tracking__report_to="tensorboard" if has_tensorboard else "none",
        checkpoint__save_strategy="steps",
        checkpoint__save_steps=1,
    )
    test_guarded.poison_one_row(cfg, task)
    folder = run(cfg).folder
    truth = {row["step"]: float(number(row["loss"]) or 0.0) for row in read_telemetry(folder)}
    bad = [step for step, loss in truth.items() if not math.isfinite(loss)]
    assert bad and len(bad) < len(truth), "a run with both kinds of steps"

    # Trainer's writers: one value per window of `every` steps, the mean of its steps; finite again after the window.
    for writer, logged in tracked(folder).items():
        assert logged, writer
        for step, loss in logged.items():
            window = [truth[s] for s in range(step - every + 1, step + 1)]
            assert loss == pytest.approx(sum(window) / every, rel=1e-4, nan_ok=True), f"{writer}, step {step}"

    # The terminal and its log: one line per step.
    console = (folder / "console.log").read_text()
    shown = shown_steps(console)
    assert sorted(shown) == sorted(truth)
    for step, losses in shown.items():
        assert losses == [f"{truth[step]:.4f}"], f"console.log, step {step}"
    assert f"{len(bad)} of {len(truth)} steps with a non-finite loss (first at step {bad[0]})" in console

    summary = read_json(folder / "summary.json")
    assert summary is not None
    curve = dict(zip(summary["curve"]["step"], summary["curve"]["loss"], strict=True))
    assert {step: number(x) for step, x in curve.items()} == pytest.approx(truth, nan_ok=True)
    assert summary["counts"]["non_finite_steps_at"] == bad
    adjusted = dict(zip(summary["curve"]["step"], summary["curve"]["adjusted"], strict=True))
    assert all(adjusted[step] is None for step in bad)
    ended_broken = on_nonfinite == "warn"
    assert math.isnan(float(summary["train_loss"]["smoothed_last"])) == ended_broken
    assert (", nan at the end\n" in console) == ended_broken

    # The curve in characters: nothing above the marks on its axis.
    lines = console.splitlines()
    ground = next((i for i, line in enumerate(lines) if line.startswith(" " * 10 + "└")), None)
    if ground is not None:
        width = len(lines[ground]) - 11
        for step in bad:
            cell = 11 + round((step - 1) / (max(truth) - 1) * (2 * width - 1)) // 2
            assert lines[ground][cell] == "x", f"step {step}"
            assert all(line[cell] == chr(0x2800) for line in lines[ground - 8 : ground]), f"step {step}"


def test_a_broken_step_is_in_the_log_at_once_whatever_the_pace(make_config: Callable[..., Any], poisoned: Path) -> None:
    cfg = make_config(
        rows=40,
        model__path=str(poisoned),
        schedule__max_steps=STEPS,
        seed=1,
        stability__guard=Guard(on_nonfinite="skip"),
    )
    test_guarded.poison_one_row(cfg, "sft")
    folder = run(cfg).folder
    bad = [row["step"] for row in read_telemetry(folder) if row["loss"] == "NaN"]
    shown = shown_steps((folder / "console.log").read_text())
    assert len(bad) == 2 and all(shown[step] == ["nan"] for step in bad)
    assert set(shown) == {1, STEPS, *bad}, "ten quick steps: the first, the last, and the broken ones"


def wandb_records(data: bytes) -> Iterator[bytes]:
    """Records of a .wandb file: LevelDB's log format (blocks of 32 KiB; crc, length and type before each part) behind
    a header of 7 bytes."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole record, or its last part
            yield parts
            parts = b""


def wandb_losses(folder: Path) -> dict[int, float]:
    """{step: loss} in the file of an offline wandb run."""
    from wandb.proto import wandb_internal_pb2

    (path,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    found = {}
    for record in map(wandb_internal_pb2.Record.FromString, wandb_records(path.read_bytes())):
        row = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if "train/loss" in row:
            found[int(json.loads(row["train/global_step"]))] = float(json.loads(row["train/loss"]))
    return found


def test_wandb_is_told_the_same(
    make_config: Callable[..., Any], poisoned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("wandb") is None:
        pytest.skip("needs pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    cfg = make_config(
        rows=40,
        model__path=str(poisoned),
        schedule__max_steps=STEPS,
        seed=1,
        stability__guard=Guard(on_nonfinite="skip"),
        tracking__report_to="wandb",
    )
    test_guarded.poison_one_row(cfg, "sft")
    folder = run(cfg).folder
    import wandb

    wandb.finish()
    wandb.teardown()  # the service writes behind; it ends when the file is whole
    truth = {row["step"]: float(number(row["loss"]) or 0.0) for row in read_telemetry(folder)}
    assert sum(math.isnan(loss) for loss in truth.values()) == 2
    assert wandb_losses(folder) == pytest.approx(truth, rel=1e-4, nan_ok=True)
