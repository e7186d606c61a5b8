"""Every experiment runs on the tiny model, and the published settings are what they were published as."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from runner.config.compose import load
from runner.config.share import packaged_conf
from runner.errors import ConfigError
from runner.preflight.examine import examine
from runner.preflight.flow import PreflightError
from runner.run import run
from runner.runfolder import read_telemetry

DRY = {
    "quickstart": [],
    "qwen2_sentiment": ["schedule.warmup_ratio=0.1"],
    "qwen7b_clip": ["dataset.max_samples=20"],
    "qwen14b_lora": ["dataset=demo_mix", "dataset.max_samples=20"],
}


def test_every_exp_has_a_dry_run() -> None:
    assert set(DRY) == {p.stem for p in (packaged_conf() / "exp").glob("*.yaml")}


@pytest.mark.parametrize("exp", sorted(DRY))
def test_the_exp_runs_on_the_tiny_model(exp: str, tmp_path: Path) -> None:
    more = ["model=qwen2_tiny", "schedule.max_steps=2", "dataset.preview=0", f"output_dir={tmp_path / 'run'}"]
    outcome = run(load([f"+exp={exp}", *more, *DRY[exp], "checks.level=off"]).config)
    assert outcome.state == "finished"
    assert len(read_telemetry(outcome.folder)) == 2


def test_the_sentiment_run_as_published_is_refused_with_the_reason(tmp_path: Path) -> None:
    lines = ["+exp=qwen2_sentiment", "model=qwen2_tiny", f"output_dir={tmp_path / 'run'}"]
    with pytest.raises(PreflightError, match=r"(?s)warmup takes 50 steps .* at most 40: .*\.warmup_ratio=0\.05"):
        run(load(lines).config)
    with pytest.raises(ConfigError, match=r"warmup_steps 50 >= 30 steps.*never leaves warmup.*schedule\.warmup_ratio"):
        run(load([*lines, "checks.level=off"]).config)


@pytest.mark.slow
@pytest.mark.parametrize("exp", sorted(DRY))
def test_the_mended_exp_passes_its_preflight_on_the_tiny_model(exp: str, tmp_path: Path) -> None:
    more = ["model=qwen2_tiny", "schedule.max_steps=100", *DRY[exp]]
    pre = examine(load([f"+exp={exp}", *more]).config, "quick", tmp_path)
    assert not [f for f in pre.findings if f.severity != "note"]
    assert not [line for line in pre.lines if line.status == "failed"]


def leaves(config: Any, *keys: str) -> list[Any]:
    tree = dataclasses.asdict(config)
    return [tree[group][name] for group, _, name in (key.partition(".") for key in keys)]


@pytest.mark.parametrize(
    ("exp", "published"),
    [
        (
            "qwen2_sentiment",
            {
                "model.path": "Qwen/Qwen2-0.5B",
                "task.labels": ["积极", "消极", "中立"],
                "batch.per_device_train_batch_size": 64,
                "schedule.num_train_epochs": 10.0,
                "schedule.warmup_steps": 50,
                "schedule.warmup_ratio": None,
                "optim.weight_decay": 0.01,
                "evaluation.eval_strategy": "epoch",
                "checkpoint.save_strategy": "epoch",
                "checkpoint.save_total_limit": 3,
                "dataset.max_samples": 240,
                "lora.method": "none",
            },
        ),
        (
            "qwen7b_clip",
            {
                "model.path": "Qwen/Qwen2.5-7B",
                "batch.per_device_train_batch_size": 4,
                "batch.gradient_accumulation_steps": 8,
                "optim.learning_rate": 2e-5,
                "schedule.lr_scheduler_type": "cosine",
                "schedule.num_train_epochs": 3.0,
                "optim.betas": (0.9, 0.95),
                "optim.eps": 1e-8,
                "optim.weight_decay": 0.01,
                "schedule.warmup_ratio": 0.03,
                "clip.method": "norm",
                "clip.max_grad_norm": 1.0,
                "precision.compute": "bf16",
                "tracking.logging_steps": 10,
                "checkpoint.save_steps": 500,
            },
        ),
        (
            "qwen14b_lora",
            {
                "model.path": "Qwen/Qwen1.5-14B",
                "lora.target_modules": ["q_proj", "v_proj"],
                "batch.per_device_train_batch_size": 4,
                "batch.gradient_accumulation_steps": 2,
                "optim.learning_rate": 1e-5,
                "schedule.lr_scheduler_type": "cosine",
                "schedule.num_train_epochs": 1.0,
                "precision.compute": "fp16",
                "tracking.logging_steps": 5,
                "evaluation.eval_steps": 100,
                "checkpoint.save_steps": 100,
            },
        ),
    ],
)
def test_published_settings(exp: str, published: dict[str, Any]) -> None:
    config = load([f"+exp={exp}"]).config
    assert dict(zip(published, leaves(config, *published), strict=True)) == published
    if exp == "qwen14b_lora":
        assert len(config.dataset.sources) == 4 and config.dataset.validation.fraction == 0.01
    if exp == "qwen2_sentiment":
        assert config.dataset.validation.fraction == 0.2
