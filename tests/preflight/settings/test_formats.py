"""Number formats that do not go together."""

from __future__ import annotations

import copy
import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runner.config.compose import Session
from runner.config.schema import Config
from runner.preflight.context import Context
from runner.preflight.settings.formats import compute_format, first_lost, formats, overflow, share_lost, trained_format
from runner.preflight.settings.rules import rules

SESSION = Session()


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"):
        monkeypatch.delenv(name, raising=False)


@functools.cache
def loaded(*lines: str) -> Config:
    return SESSION.load(list(lines), findings=True).config


def look(*lines: str) -> Context:
    return Context(copy.deepcopy(loaded(*lines)), "deep", Path("nowhere"))


def grave(c: Context) -> list[Any]:
    return [f for f in formats(c).findings if f.severity != "note"]


def test_fp16_on_the_published_model() -> None:
    result = formats(look("+exp=qwen14b_lora"))
    assert [(f.id, f.severity) for f in result.findings] == [
        ("precision.fp16_overflow", "warning"),
        ("evaluation.not_finite", "note"),
    ]
    assert result.findings[0].where == ("precision.compute",) and "65,504" in result.findings[0].sentence
    assert not formats(look("+exp=qwen14b_lora", *result.findings[0].overrides)).findings
    assert result.summary == "compute fp16, trainable fp32, pretrained in bf16"


@pytest.mark.parametrize(
    "lines", [[], ["task=classification", "dataset=sentiment_zh"], ["lora=none"], ["+exp=qwen7b_clip"]]
)
def test_sound_settings_have_no_finding(lines: list[str]) -> None:
    assert not formats(look(*lines)).findings


def test_a_local_config_decides(tmp_path: Path) -> None:
    def stored(dtype: str) -> Any:
        folder = tmp_path / dtype
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", "hidden_size": 48, "dtype": dtype}))
        c = look("evaluation.eval_strategy=no")
        c.cfg.model.path, c.cfg.precision.compute = str(folder), "fp16"
        return formats(c)

    assert [f.id for f in stored("bfloat16").findings] == ["precision.fp16_overflow"]
    assert not stored("float32").findings and not stored("float16").findings


@pytest.mark.parametrize(
    ("path", "config", "trained"),
    [
        ("Qwen/Qwen2.5-7B", {}, "bf16"),
        ("Qwen/Qwen1.5-14B", {}, "bf16"),
        ("Qwen/Qwen-7B", {}, "bf16"),
        ("Qwen/Qwen3-8B", {}, "bf16"),
        ("meta-llama/Meta-Llama-3-8B", {}, "bf16"),
        ("meta-llama/Llama-3.1-8B", {}, "bf16"),
        ("meta-llama/Llama-2-7b-hf", {}, None),
        ("google/gemma-2-9b", {}, "bf16"),
        ("mistralai/Mistral-7B-v0.1", {}, "bf16"),
        ("openai-community/gpt2", {}, None),
        ("bert-base-chinese", {}, None),
        ("/models/mine", {"model_type": "qwen2"}, "bf16"),
        ("/models/mine", {"model_type": "qwen2", "dtype": "float32"}, "fp32"),
        ("/models/mine", {"torch_dtype": "torch.bfloat16"}, "bf16"),
        ("Qwen/Qwen2-0.5B", {"torch_dtype": "float16"}, "fp16"),
    ],
)
def test_what_a_model_was_trained_in(path: str, config: dict[str, Any], trained: str | None) -> None:
    assert trained_format(path, config)[0] == trained


def test_every_pair_of_formats() -> None:
    for compute in ("auto", "fp32", "bf16", "fp16"):
        for trained in ("fp32", "bf16", "fp16", None):
            found = overflow(compute, "precision.compute", trained, "x")
            assert bool(found) == (compute == "fp16" and trained == "bf16")


def test_the_launcher_decides_where_the_configuration_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' TrainingArguments reads ACCELERATE_MIXED_PRECISION where neither bf16 nor fp16 is set."""
    cfg = look("model=qwen2_0_5b", "precision=fp32").cfg
    assert compute_format(cfg, {"ACCELERATE_MIXED_PRECISION": "fp16"}) == ("fp16", "ACCELERATE_MIXED_PRECISION")
    assert compute_format(cfg, {"ACCELERATE_MIXED_PRECISION": "no"}) == ("fp32", "precision.compute")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    (finding,) = grave(look("model=qwen2_0_5b", "precision=fp32"))
    assert (finding.id, finding.where) == ("precision.fp16_overflow", ("ACCELERATE_MIXED_PRECISION",))
    assert not grave(look("model=qwen2_0_5b", *finding.overrides))


def test_bf16_weights_at_a_low_rate() -> None:
    planted = look("precision=bf16", "precision.trainable_weights=bf16", "optim.learning_rate=2e-5")
    (finding,) = grave(planted)
    assert (finding.id, finding.severity) == ("precision.lost_updates", "warning")
    assert finding.where == ("precision.trainable_weights", "optim.learning_rate")
    assert finding.overrides == ("precision.trainable_weights=fp32",)
    for weights, rate, method, said in (
        ("fp32", 2e-5, "lora", 0),
        ("bf16", 1e-4, "lora", 0),
        ("bf16", None, "lora", 0),  # the default at this width is 8e-4
        ("bf16", None, "none", 1),  # and 8e-5 in full fine-tuning
    ):
        planted.cfg.precision.trainable_weights, planted.cfg.optim.learning_rate = weights, rate
        planted.cfg.lora.method = method
        assert len(grave(planted)) == said


def test_what_a_rule_says_is_not_said_twice() -> None:
    for lines, id in (
        (["precision=fp32", "precision.trainable_weights=fp16"], "precision.fp16_weights"),
        (["precision=fp16", "precision.trainable_weights=fp16"], "precision.scaler_meets_fp16_weights"),
        (["precision=fp16", "precision.trainable_weights=bf16", "optim.learning_rate=1e-6"], "precision.lost_updates"),
    ):
        c = look(*lines)
        assert [f.id for f in [*rules(c).findings, *grave(c)]] == [id]


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Round to the nearest bf16, ties to even, by the bits of a float32."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


@given(st.floats(1e-7, 1e-3))
def test_share_of_lost_updates_on_real_bf16_numbers(update: float) -> None:
    assume(0.501 < math.frexp(update)[0] < 0.999)  # at powers of 2 a sum lies half-way, and every other one is kept
    weights = to_bf16(np.random.default_rng(0).normal(0, 0.02, 20000))
    lost = float(np.mean(to_bf16(weights + np.float32(update)) == weights))
    assert share_lost(update) == pytest.approx(lost, abs=0.02)


def test_first_lost_by_hand() -> None:
    """An update of 2^-9 is half of the spacing from 0.5 on: bf16 has 2^7 values between 0.5 and 1."""
    assert first_lost(2.0**-9) == 0.5 and first_lost(2.0**-9 * 1.01) == 1.0
    assert share_lost(1e-5) == pytest.approx(0.845, abs=0.001)


def test_a_half_head_on_a_quantised_base() -> None:
    c = look("task=classification", "dataset=sentiment_zh")
    c.cfg.model.quantization, c.cfg.precision.trainable_weights = "4bit", "bf16"
    (finding,) = formats(c).findings
    assert (finding.id, finding.severity) == ("precision.quantised_head", "error")
    assert finding.where == ("precision.trainable_weights", "model.quantization")
    c.cfg.precision.trainable_weights = "fp32"
    assert not formats(c).findings


def test_a_filter_that_hides_nan_cannot_be_set() -> None:
    from runner.errors import ConfigError

    for line in ("trainer.logging_nan_inf_filter=true", "trainer.fp16_full_eval=true", "trainer.deepspeed=ds.json"):
        with pytest.raises(ConfigError):
            SESSION.load([line])
