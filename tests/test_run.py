"""What a run leaves behind, how it ends, and what a broken one keeps."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ConfigError, UserError, disk_full
from runner.run import judge, run
from runner.runfolder import RunFolder, read_json, read_telemetry
from runner.training.truth import Truth

ROOT = Path(__file__).resolve().parents[1]


def with_validation(cfg: Any, fraction: float = 0.2) -> Any:
    held_out = dataclasses.replace(cfg.dataset.validation, fraction=fraction)
    return dataclasses.replace(cfg, dataset=dataclasses.replace(cfg.dataset, validation=held_out))


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_a_finished_run_leaves_the_whole_contract(make_config: Callable[..., Any], task: str) -> None:
    cfg = with_validation(make_config(task, rows=40, schedule__num_train_epochs=1.0, evaluation__eval_strategy="epoch"))
    outcome = run(cfg)
    assert (outcome.state, outcome.exit_code) == ("finished", 0)
    there = {p.name for p in outcome.folder.iterdir()}
    assert {"run.json", "telemetry.jsonl", "summary.json", "console.log", "model", "plots"} <= there
    run_json = read_json(outcome.folder / "run.json")
    assert run_json is not None
    assert run_json["state"] == "finished" and run_json["steps"] == 4 and run_json["versions"]["torch"]
    summary = read_json(outcome.folder / "summary.json")
    assert summary is not None
    assert summary["eval"]["eval_loss"] == outcome.metric == run_json["metric"]
    assert summary["curve"]["step"] == [1, 2, 3, 4]
    assert (outcome.folder / "plots" / "loss.png").read_bytes()[:4] == b"\x89PNG"
    log = (outcome.folder / "console.log").read_text()
    assert "global batch = 4 x 2 x 1 = 8" in log
    assert "learning rate 0.00213 (default: LoRA 0.0001 x 21.3333 for a model only 48 wide)" in log
    assert "0 of 4 steps with a non-finite loss" in log
    if task == "classification":
        report = summary["classification"]
        assert report["accuracy"] == summary["eval"]["eval_accuracy"]
        assert sum(map(sum, report["confusion"]["rows_are_truth"])) == 9
        assert "macro-F1" in log


def test_the_held_out_loss_is_a_token_mean_and_does_not_depend_on_its_batch(make_config: Callable[..., Any]) -> None:
    found = []
    for size in (1, 3, 8):
        cfg = with_validation(
            make_config(
                out=f"run{size}", rows=40, schedule__max_steps=1, evaluation__per_device_eval_batch_size=size,
                evaluation__eval_strategy="epoch",
            )
        )  # fmt: skip
        summary = read_json(run(cfg).folder / "summary.json")
        assert summary is not None
        assert {"eval_loss_long", "eval_loss_short"} <= summary["eval"].keys()
        found.append(summary["eval"]["eval_loss"])
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert found[2] == pytest.approx(found[0], rel=1e-5)


def test_observe_and_off_update_bit_for_bit_alike(make_config: Callable[..., Any]) -> None:
    import torch
    from safetensors.torch import load_file

    weights = []
    for telemetry in (True, False):
        cfg = make_config(
            out=f"run{telemetry}", schedule__max_steps=5, stability__telemetry=telemetry, lora__method="none"
        )
        outcome = run(cfg)
        assert (outcome.folder / "telemetry.jsonl").exists() == telemetry
        weights.append(load_file(outcome.folder / "model" / "model.safetensors"))
    assert all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0])


def test_best_model_limit_and_early_stopping(make_config: Callable[..., Any]) -> None:
    cfg = with_validation(
        make_config(
            "classification", rows=60, schedule__max_steps=40,
            evaluation__eval_strategy="steps", evaluation__eval_steps=2,
            checkpoint__save_strategy="steps", checkpoint__save_steps=2, checkpoint__save_total_limit=2,
            checkpoint__load_best_model_at_end=True, checkpoint__metric_for_best_model="eval_macro_f1",
            checkpoint__early_stopping_patience=2, optim__learning_rate=1e-12,
        )
    )  # fmt: skip
    outcome = run(cfg)
    run_json = read_json(outcome.folder / "run.json")
    assert run_json is not None
    # Nothing improves at a learning rate of zero: the first evaluation is the best, two more end the run.
    assert run_json["steps"] == 6 and "Early stopping at step 6 of 40" in run_json["reason"]
    kept = sorted(p.name for p in (outcome.folder / "checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-2", "checkpoint-6"]
    assert "model/ is checkpoint-2, the best by eval_macro_f1" in (outcome.folder / "console.log").read_text()


@pytest.mark.parametrize("kind", ["cosine", "linear", "polynomial", "constant", "wsd"])
def test_the_learning_rate_as_applied_follows_the_schedule(make_config: Callable[..., Any], kind: str) -> None:
    cfg = make_config(
        schedule__lr_scheduler_type=kind, schedule__max_steps=10, schedule__warmup_steps=2, schedule__power=2.0,
        schedule__decay_ratio=0.3, optim__learning_rate=1e-3,
    )  # fmt: skip
    rates = [row["learning_rate"] / 1e-3 for row in read_telemetry(run(cfg).folder)]
    import math

    t = [(s - 2) / 8 for s in range(2, 10)]
    expected = {
        "cosine": [0.5 * (1 + math.cos(math.pi * x)) for x in t],
        "linear": [1 - x for x in t],
        "polynomial": [(1 - x) ** 2 for x in t],
        "constant": [1.0] * 8,
        "wsd": [1.0] * 6 + [0.5 * (1 + math.cos(math.pi * x)) for x in (1 / 3, 2 / 3)],
    }[kind]
    assert rates == pytest.approx([0.0, 0.5, *expected], abs=1e-6)


@pytest.mark.parametrize("name", ["adamw_torch_fused", "stable_adamw", "sgd", "adafactor"])
def test_optimizers_train(make_config: Callable[..., Any], name: str) -> None:
    outcome = run(make_config(optim__name=name, schedule__max_steps=2))
    assert outcome.state == "finished"


@pytest.mark.parametrize("method", ["lora", "none"])
@pytest.mark.parametrize("task", ["sft", "classification"])
def test_gradient_checkpointing_and_eager_attention_change_no_loss(
    make_config: Callable[..., Any], task: str, method: str
) -> None:
    import torch

    from tests.training.kit import trainer_for

    losses = []
    for changes in ({}, {"model__gradient_checkpointing": True}, {"model__attn_implementation": "eager"}):
        trainer, rows = trainer_for(make_config(task, schedule__max_steps=3, lora__method=method, **changes))
        for module in trainer.model.modules():
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0
        trainer.train()
        checkpointed = [getattr(m, "gradient_checkpointing", False) for m in trainer.model.modules()]
        assert any(checkpointed) == ("model__gradient_checkpointing" in changes)
        losses.append([row["loss"] for row in rows])
        assert all(torch.isfinite(torch.tensor(row["grad_norm"])) and row["grad_norm"] > 0 for row in rows)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-4)


def test_tensorboard_files_land_in_the_run_folder(make_config: Callable[..., Any]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    outcome = run(make_config(schedule__max_steps=3, tracking__report_to="tensorboard"))
    events = EventAccumulator(str(outcome.folder / "tensorboard"))
    events.Reload()
    shown = [event.value for event in events.Scalars("train/loss")]
    assert shown == pytest.approx([row["loss"] for row in read_telemetry(outcome.folder)], rel=1e-5)


def test_trainer_passthrough_reaches_the_trainer(make_config: Callable[..., Any]) -> None:
    from tests.training.kit import trainer_for

    trainer, _ = trainer_for(make_config(trainer={"neftune_noise_alpha": 5.0}))
    assert trainer.args.neftune_noise_alpha == 5.0
    assert trainer.args.logging_nan_inf_filter is False
    assert isinstance(trainer, Truth)


def test_a_warmup_beyond_the_end_is_refused_and_can_be_allowed(make_config: Callable[..., Any]) -> None:
    cfg = make_config(schedule__num_train_epochs=1.0, schedule__warmup_steps=50)
    with pytest.raises(ConfigError, match=r"warmup_steps 50 >= 4 steps.*schedule.warmup_ratio"):
        run(cfg)
    run_json = read_json(Path(cfg.output_dir) / "run.json")
    assert run_json is not None and run_json["state"] == "failed" and "warmup" in run_json["reason"]
    allowed = dataclasses.replace(cfg, checks=dataclasses.replace(cfg.checks, allow="schedule.warmup_beyond_end"))
    assert run(allowed).state == "finished"


def test_a_nan_loss_is_shown_as_nan_and_ends_as_diverged(
    make_config: Callable[..., Any], micro_model: Path, tmp_path: Path
) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(micro_model, broken)
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    outcome = run(make_config(model__path=str(broken), schedule__max_steps=3))
    assert (outcome.state, outcome.exit_code) == ("diverged", 1)
    lines = (outcome.folder / "telemetry.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["loss"] == "NaN"
    log = (outcome.folder / "console.log").read_text()
    assert "loss nan" in log and "3 of 3 steps with a non-finite loss (first at step 1)" in log


def test_a_step_so_large_that_the_weights_break_is_no_finished_run(make_config: Callable[..., Any]) -> None:
    cfg = with_validation(make_config(rows=40, schedule__max_steps=3, optim__learning_rate=1e30, lora__method="none"))
    outcome = run(dataclasses.replace(cfg, evaluation=dataclasses.replace(cfg.evaluation, eval_strategy="epoch")))
    assert (outcome.state, outcome.exit_code) == ("diverged", 1)


def test_a_reader_that_goes_away_does_not_end_the_run(micro_model: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RUNNER_CACHE": str(tmp_path / "cache")}
    command = [*overrides(micro_model, tmp_path / "run"), "schedule.max_steps=3"]
    command.remove("schedule.max_steps=24")
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    run_json = read_json(tmp_path / "run" / "run.json")
    assert run_json is not None and run_json["state"] == "finished"


def test_a_folder_in_use_and_one_that_cannot_be_written(make_config: Callable[..., Any], tmp_path: Path) -> None:
    held = RunFolder(tmp_path / "run")
    with pytest.raises(UserError, match="in use by another run"):
        run(make_config())
    held.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        RunFolder(tmp_path / "file" / "run")


def test_a_second_run_does_not_write_into_the_first(make_config: Callable[..., Any]) -> None:
    cfg = make_config(schedule__max_steps=2)
    first = run(cfg)
    before = (first.folder / "telemetry.jsonl").read_text(), (first.folder / "run.json").read_text()
    with pytest.raises(UserError, match=r"already holds a run.*checkpoint\.resume="):
        run(cfg)
    assert ((first.folder / "telemetry.jsonl").read_text(), (first.folder / "run.json").read_text()) == before


def test_a_full_disk_is_one_sentence_and_other_errors_are_not(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert "is full" in str(disk_full(full, tmp_path))
    assert "is full" in str(disk_full(RuntimeError("safetensors: I/O error: No space left on device"), tmp_path))
    assert disk_full(OSError(errno.EACCES, "Permission denied"), tmp_path) is None


def test_judge() -> None:
    good = {
        "eval": {},
        "train_loss": {"last": 1.0},
        "counts": {"first_broken_step": None, "last_step_skipped": False},
    }
    assert judge(good, None, 10, 10, False) == ("finished", None)
    assert judge(good, "SIGTERM", 4, 10, True) == ("stopped", "SIGTERM at step 4 of 10; checkpoint-4 was saved.")
    bad = {
        "eval": {},
        "train_loss": {"last": float("nan")},
        "counts": {"first_broken_step": 3, "last_step_skipped": False},
    }
    assert judge(bad, None, 10, 10, False)[0] == "diverged"
    unheld = {**good, "eval": {"eval_loss": float("nan")}}
    assert judge(unheld, None, 10, 10, False)[0] == "diverged"
    skipped = {**bad, "counts": {"first_broken_step": 10, "last_step_skipped": True}}
    assert judge(skipped, None, 10, 10, False)[0] == "finished"
    ended = judge(bad, None, 5, 10, False, guard="three in a row.", broken="lm_head.weight")
    assert ended[0] == "diverged" and "three in a row" in str(ended[1]) and "lm_head.weight" in str(ended[1])


def overrides(model: Path, folder: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "runner", f"model.path={model}", "dataset.max_samples=60", "dataset.preview=0",
        "schedule.max_steps=24", "precision=fp32", "lora.lora_dropout=0.1", "checkpoint.save_strategy=steps",
        "checkpoint.save_steps=5", "checkpoint.save_total_limit=null", f"output_dir={folder}", *more,
    ]  # fmt: skip


def wait_for_step(process: subprocess.Popen[str], folder: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if len(read_telemetry(folder)) >= step:
            return
        time.sleep(0.02)
    raise AssertionError(f"step {step} was not reached: {process.communicate()}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_interrupt_and_resume_on_the_command_line(micro_model: Path, tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RUNNER_CACHE": str(tmp_path / "cache")}

    def launch(folder: Path, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            overrides(micro_model, folder, *more), cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    whole = launch(tmp_path / "whole")
    out, err = whole.communicate(timeout=300)
    assert whole.returncode == 0, err
    expected = [(r["step"], r["loss"], r["grad_norm"]) for r in read_telemetry(tmp_path / "whole")]
    assert len(expected) == 24

    cut = launch(tmp_path / "cut")
    wait_for_step(cut, tmp_path / "cut", 8)
    cut.send_signal(number)
    out, err = cut.communicate(timeout=120)
    run_json = read_json(tmp_path / "cut" / "run.json")
    assert run_json is not None
    if number == signal.SIGKILL:
        assert run_json["state"] == "running"
    else:
        assert cut.returncode == 130, err
        assert run_json["state"] == "stopped" and "was saved" in run_json["reason"]
        assert "Traceback" not in out + err
    assert len(read_telemetry(tmp_path / "cut")) < 24

    resumed = launch(tmp_path / "ignored", f"checkpoint.resume={tmp_path / 'cut'}")
    out, err = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, err
    assert [(r["step"], r["loss"], r["grad_norm"]) for r in read_telemetry(tmp_path / "cut")] == expected
    run_json = read_json(tmp_path / "cut" / "run.json")
    assert run_json is not None and run_json["state"] == "finished" and len(run_json["resumed"]) == 1
