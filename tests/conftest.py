"""Fixtures that many rooms need: a model small enough for hundreds of steps, data, and configs made by hand."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples in every run: what fails was changed. HYPOTHESIS_PROFILE=search draws new ones.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: each worker has a core

FAST_VARIANTS: dict[str, set[str]] = {
    "test_resumed_losses_are_identical": {
        "sft-lora-random",
        "sft-none-length_grouped",
        "classification-lora-stratified",
    },
    "test_what_a_clipping_method_has_learnt_survives_a_resume": {"adagc"},
    "test_a_finite_step_is_repeated_to_the_last_bit": {
        "sft-lora-fp32-1",
        "sft-none-fp16-2",
        "classification-none-bf16-2",
    },
    "test_a_planted_fault_is_planted_again": {
        "nan_loss-sft-lora",
        "nan_weight-classification-none",
        "fp16_forward_overflow-classification-none",
    },
    "test_no_writer_shows_a_finite_loss_for_a_step_whose_loss_was_not": {"sft-skip-3", "classification-skip-1"},
    "test_split_changes_neither_loss_nor_gradient": {"sft-None-lora", "classification-balanced-none"},
    "test_observe_and_off_give_the_same_weights_bit_for_bit": {"fp32-lora-sft", "bf16-none-classification"},
    "test_gradient_checkpointing_and_eager_attention_change_no_loss": {"sft-lora", "classification-none"},
    "test_the_learning_rate_as_applied_follows_the_schedule": {"cosine", "wsd"},
    "test_optimizers_train": {"stable_adamw", "adafactor"},
    "test_broken_steps_without_end_end_the_run": {"skip-lora-6", "rollback-none-4"},
    "test_seen_at_its_step_named_and_without_effect": {
        "nan_loss-sft-2-fp32",
        "nan_gradient-classification-2-bf16",
        "nan_weight-sft-1-bf16",
        "nan_embedding_row-classification-1-fp32",
    },
}
"""Tests over a whole matrix of settings: these variants run in the fast suite, all others carry the mark slow."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the variants that the fast suite leaves out, before pytest selects by marks."""
    for item in items:
        fast = FAST_VARIANTS.get(getattr(item, "originalname", ""))
        if fast is not None and item.name.partition("[")[2].rstrip("]") not in fast:
            item.add_marker(pytest.mark.slow)


ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokenised rows of tests never land in the user's cache."""
    monkeypatch.setenv("RUNNER_CACHE", str(tmp_path_factory.getbasetemp() / "runner-cache"))


@pytest.fixture(scope="session")
def micro_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 of 2 layers, 48 wide, with the shipped tokenizer and dropout: about 10 ms a step."""
    import torch
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    path = tmp_path_factory.mktemp("micro") / "model"
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "data" / "models" / "qwen2_tiny")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        attention_dropout=0.1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


WORDS = "red blue green small large fast slow old new warm cold round flat soft hard".split()


def write_sft(path: Path, rows: int, words: int, seed: int) -> Path:
    """Alpaca rows whose answers have 1 to `words` words."""
    rng = random.Random(seed)
    data = [
        {
            "instruction": f"Say {rng.choice(WORDS)} number {i}",
            "input": "",
            "output": " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, words))),
        }
        for i in range(rows)
    ]
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def write_labelled(path: Path, rows: int, seed: int) -> Path:
    """Rows of a learnable three-class task with texts of unequal length."""
    rng = random.Random(seed)
    lines = []
    for i in range(rows):
        label = ("neg", "neu", "pos")[i % 3]
        word = {"neg": "cold", "neu": "flat", "pos": "warm"}[label]
        text = " ".join([*(rng.choice(WORDS[:8]) for _ in range(rng.randint(1, 12))), word, str(i)])
        lines.append(json.dumps({"text": text, "label": label}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def make_config(tmp_path: Path, micro_model: Path) -> Callable[..., Any]:
    """make_config("sft" | "classification", rows=..., out=..., group__field=value) -> Config on the micro model."""
    from runner.config.schema import Config, Dataset, Source, Task, Validation

    def make(task: str = "sft", rows: int = 26, out: str = "run", **changes: Any) -> Config:
        data = tmp_path / "data"
        data.mkdir(exist_ok=True)
        if task == "sft":
            sources = {
                "short": Source(path=str(write_sft(data / "short.json", rows // 2, 4, 1)), format="alpaca"),
                "long": Source(path=str(write_sft(data / "long.json", rows - rows // 2, 30, 2)), format="alpaca"),
            }
        else:
            sources = {
                "texts": Source(path=str(write_labelled(data / "texts.jsonl", rows, 3)), format="classification")
            }
        cfg = Config(
            task=Task(name=task),  # type: ignore[arg-type]
            dataset=Dataset(sources=sources, max_length=256, validation=Validation(fraction=0.0), preview=0),
            output_dir=str(tmp_path / out),
        )
        cfg.model.path = str(micro_model)
        cfg.precision.compute = "fp32"
        cfg.evaluation.eval_strategy = "no"
        cfg.checkpoint.save_strategy = "no"
        cfg.checks.level = "off"  # tests/preflight asks for the checks; elsewhere they would only cost time
        for key, value in changes.items():
            group, _, name = key.replace("__", ".").partition(".")
            if name:
                cfg = dataclasses.replace(cfg, **{group: dataclasses.replace(getattr(cfg, group), **{name: value})})
            else:
                cfg = dataclasses.replace(cfg, **{group: value})
        return cfg

    return make
