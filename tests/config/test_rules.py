"""Each cross-field rule: one configuration that breaks it, with its id in the message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runner.config.compose import Session
from runner.config.rules import RULES, broken_rules, warmup_beyond_end
from runner.config.schema import Config
from runner.errors import ConfigError

SESSION = Session()
CLASSES = ["task=classification", "dataset=sentiment_zh"]
BEST = "checkpoint.load_best_model_at_end=true"

BREAKERS: dict[str, list[str]] = {
    "schedule.warmup_twice": ["schedule.warmup_ratio=0.1", "schedule.warmup_steps=3"],
    "schedule.warmup_beyond_end": ["schedule.warmup_steps=50", "schedule.max_steps=30"],
    "config.out_of_range": ["schedule.warmup_ratio=3", "batch.per_device_train_batch_size=0", "optim.betas=[0.9,1.0]"],
    "optim.learning_rate": ["optim.learning_rate=0"],
    "optim.unknown_name": ["optim.name=adamwx"],
    "evaluation.no_steps": ["evaluation.eval_strategy=steps"],
    "checkpoint.no_steps": ["checkpoint.save_strategy=steps"],
    "checkpoint.best_without_evaluation": [BEST, "evaluation.eval_strategy=no"],
    "checkpoint.early_stopping": ["checkpoint.early_stopping_patience=2"],
    "checkpoint.unknown_metric": [BEST, "checkpoint.metric_for_best_model=eval_accuracy"],
    "dataset.validation_twice": ["dataset.validation.source=demo_en"],
    "dataset.validation_source": ["dataset.validation={source: nosuch, fraction: 0}"],
    "evaluation.nothing_held_out": ["dataset.validation.fraction=0"],
    "dataset.no_source": ["~dataset.sources"],
    "dataset.weights": ["dataset.mix=interleave", "dataset.weights={demo_en: 1, x: 2}"],
    "dataset.max_samples": ["dataset.max_samples={x: 2}"],
    "task.labels": [*CLASSES, "task.labels=[a,a]"],
    "task.class_weights": [*CLASSES, "task.labels=[a,b]", "task.class_weights={a: 1, c: 2}"],
    "task.needs_labels": ["task=classification"],
    "task.needs_answers": ["dataset=sentiment_zh"],
    "model.quantized_training": ["model.quantization=4bit", "lora=none"],
    "model.quantized_gguf": ["model.quantization=4bit", "model.gguf_file=a.gguf"],
    "batch.not_divisible": ["batch.global_batch_size=6"],
    "precision.fp16_weights": ["precision=fp32", "precision.trainable_weights=fp16"],
    "precision.scaler_meets_fp16_weights": ["precision=fp16", "precision.trainable_weights=fp16"],
    "precision.lost_updates": ["precision=fp16", "precision.trainable_weights=bf16"],
    "lora.pattern": ["lora.target_modules='(a'"],
    "lora.nothing_trains": ["lora.target_modules=[]"],
    "batch.stratified_interleave": ["batch.sampler=stratified", "dataset.mix=interleave"],
    "planted.beyond_end": ["+fault=nan_loss", "planted.step=999"],
    "stability.spike_window": ["stability.guard.spike_window=8"],
    "model.path_missing": ["model=path", "model.path=/no/such/model"],
    "model.template": ["model.template=llama3"],
    "lora.adapter_missing": ["lora.adapter=/no/such"],
    "dataset.path_missing": ["dataset=file", "dataset.path=/no/such.jsonl"],
    "dataset.no_dataset_info": ["dataset=llamafactory", "dataset.dir=/no/such", "dataset.names=[a]"],
    "checkpoint.resume_missing": ["checkpoint.resume=/no/such"],
    "config.output_dir": ["output_dir=/dev/null/x"],
}
ELSEWHERE = {
    "clip.split_gradients",
    "stability.split_steps",
    "engine.local_under_launcher",
    "tracking.not_installed",
    "model.quantizer_missing",
    "model.gguf_missing",
    "optim.not_installed",
}


def problems(*lines: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        SESSION.load(list(lines), files=True)
    return error.value.problems


def test_every_rule_is_tested() -> None:
    assert {rule.id for rule in RULES} == set(BREAKERS) | ELSEWHERE


@pytest.mark.parametrize("rule", sorted(BREAKERS))
def test_rule(rule: str) -> None:
    assert any(f"[{rule}]" in p for p in problems(*BREAKERS[rule]))


@pytest.mark.parametrize("rule", [r.id for r in RULES if r.allowable])
def test_allowable_rules_say_so_and_pass(rule: str) -> None:
    assert any(f"checks.allow={rule}" in p for p in problems(*BREAKERS[rule]))
    assert SESSION.load([*BREAKERS[rule], f"checks.allow={rule}"]).config.checks.allow == rule
    assert SESSION.load([*BREAKERS[rule], f"checks.allow=[{rule}]"])


def test_unknown_and_unallowable_ids() -> None:
    assert "did you mean schedule.warmup_beyond_end" in problems("checks.allow=schedule.warmup_beyond")[0]
    assert "cannot be allowed" in problems("checks.allow=task.labels")[0]


def test_warmup_sentence() -> None:
    assert warmup_beyond_end(50, 30) == (
        "warmup_steps 50 >= 30 steps: the rate never leaves warmup; set schedule.warmup_ratio=0.05"
    )
    assert warmup_beyond_end(29, 30) is None and warmup_beyond_end(None, 30) is None
    assert warmup_beyond_end(30, 30) is not None


def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert any("engine.local_under_launcher" in p for p in problems("engine=local"))
    assert any("batch.not_divisible" in p for p in problems("batch.global_batch_size=8"))


def test_packages_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.config.rules_files.installed", lambda package: False)
    ids = set()
    for lines in (["tracking=wandb"], ["model.quantization=4bit"], ["model.gguf_file=a.gguf"], ["optim=stable_adamw"]):
        ids |= {name for p in problems(*lines) for name in re.findall(r"\[(\w+\.\w+)\]", p)}
    elsewhere = {"engine.local_under_launcher", "clip.split_gradients", "stability.split_steps"}
    assert ELSEWHERE - elsewhere <= ids


def test_a_hub_id_is_not_looked_for_on_disk() -> None:
    config = Config()
    config.model.path = "Qwen/Qwen2.5-0.5B"
    config.checkpoint.resume = "auto"
    config.output_dir = "outputs"
    assert not {b.rule.id for b in broken_rules(config)} & {"model.path_missing", "checkpoint.resume_missing"}


def test_the_origin_of_the_keys_is_shown(tmp_path: Path) -> None:
    assert "(command line: schedule.warmup_steps=50)" in problems(*BREAKERS["schedule.warmup_beyond_end"])[0]


@pytest.mark.parametrize(
    ("launcher", "flag"), [("DeepSpeed", "ACCELERATE_USE_DEEPSPEED"), ("FSDP", "ACCELERATE_USE_FSDP")]
)
def test_what_split_gradients_do_not_allow_names_both_keys(
    launcher: str, flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(flag, "true")
    for clip in ("value", "agc", "adagc"):
        (sentence,) = problems(f"clip={clip}")
        assert f"clip.method={clip}" in sentence and "engine.name=auto" in sentence and launcher in sentence
    (sentence,) = problems("stability=guarded")
    assert "stability.guard.on_nonfinite=skip" in sentence and "engine.name=auto" in sentence
    SESSION.load(["clip=norm", "stability=observe"])


def test_numbers_of_stability_are_checked() -> None:
    (sentence,) = problems(
        "stability.probes.line=0", "stability.guard.spike_z=-1", "stability.rollback.max_rollbacks=-1"
    )
    for key in ("stability.probes.line=0", "stability.guard.spike_z=-1", "stability.rollback.max_rollbacks=-1"):
        assert key in sentence
