"""Which weights move, and that a finished run holds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from runner.errors import UserError
from runner.model.adapt import adapt, human
from runner.model.formats import resolve_formats
from runner.model.load import load_model
from runner.model.tokenizer import load_tokenizer
from runner.run import run


def adapted(cfg: Any, labels: list[str] | None = None) -> tuple[Any, Any]:
    formats = resolve_formats(cfg)
    return adapt(cfg, load_model(cfg, load_tokenizer(cfg), labels, formats), formats)


def trained_names(model: Any) -> set[str]:
    return {n for n, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["q_proj", "v_proj"], {"q_proj", "v_proj"}),
        (r".*layers\.1\.self_attn\.[kq]_proj", {"q_proj", "k_proj"}),
        ("all-linear", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
    ],
)
def test_target_modules(make_config: Callable[..., Any], targets: Any, expected: set[str]) -> None:
    model, trainable = adapted(make_config(lora__target_modules=targets))
    assert {n.split(".lora_")[0].split(".")[-1] for n in trained_names(model)} == expected
    assert trainable.trained == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trainable.line.startswith("LoRA: ")


@pytest.mark.parametrize(("alpha", "rslora", "scale"), [(None, False, 2.0), (4, False, 0.5), (8, True, 8 / 8**0.5)])
def test_alpha_is_twice_the_rank_unless_said(
    make_config: Callable[..., Any], alpha: float | None, rslora: bool, scale: float
) -> None:
    model, _ = adapted(make_config(lora__lora_alpha=alpha, lora__use_rslora=rslora, lora__r=8))
    layer = next(m for m in model.modules() if isinstance(getattr(m, "scaling", None), dict) and m.scaling)
    assert layer.scaling["default"] == pytest.approx(scale)


def test_dora(make_config: Callable[..., Any]) -> None:
    model, _ = adapted(make_config(lora__use_dora=True))
    assert any("lora_magnitude_vector" in n for n in trained_names(model))


def test_targets_that_do_not_exist_list_those_that_do(make_config: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"linear modules are down_proj, gate_proj, k_proj"):
        adapted(make_config(lora__target_modules=["query_key_value"]))


def test_modules_to_save_that_do_not_exist_are_refused(make_config: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"has no module nope; it has .*lm_head"):
        adapted(make_config(lora__modules_to_save=["nope", "lm_head"]))


def test_full_trains_everything(make_config: Callable[..., Any]) -> None:
    model, trainable = adapted(make_config(lora__method="none"))
    assert trained_names(model) == {n for n, _ in model.named_parameters()}
    assert trainable.trained == trainable.total
    assert trainable.line.startswith("full: ")


def test_freeze_by_pattern(make_config: Callable[..., Any]) -> None:
    model, _ = adapted(make_config(lora__method="freeze", lora__trainable=[r"layers\.1\.mlp"]))
    assert trained_names(model) == {f"model.layers.1.mlp.{n}_proj.weight" for n in ("gate", "up", "down")}
    head, _ = adapted(
        make_config("classification", lora__method="freeze", lora__trainable=[r"layers\.1\.mlp\.up"]), ["a", "b", "c"]
    )
    assert trained_names(head) == {"model.layers.1.mlp.up_proj.weight", "score.weight"}
    with pytest.raises(UserError, match="matches none"):
        adapted(make_config(lora__method="freeze", lora__trainable=["no_such"]))


def test_a_classification_head_is_trained_and_saved_with_the_adapter(make_config: Callable[..., Any]) -> None:
    cfg = make_config("classification", schedule__max_steps=4, optim__learning_rate=1e-2)
    outcome = run(cfg)
    config = AutoConfig.from_pretrained(outcome.folder / "model")
    assert config.id2label == {0: "neg", 1: "neu", 2: "pos"}
    base = AutoModelForSequenceClassification.from_pretrained(cfg.model.path, config=config)
    loaded = PeftModel.from_pretrained(base, outcome.folder / "model")
    assert loaded.config.id2label[2] == "pos"
    saved = {n: p for n, p in loaded.named_parameters() if "score" in n and "modules_to_save" in n}
    assert saved, "the head is in the adapter"
    start = load_model(cfg, load_tokenizer(cfg), ["neg", "neu", "pos"], resolve_formats(cfg))
    assert not torch.equal(next(iter(saved.values())), start.score.weight), "and it has moved"


def test_continue_from_an_adapter(make_config: Callable[..., Any], tmp_path: Path) -> None:
    first = run(make_config(out="one", schedule__max_steps=3, optim__learning_rate=1e-2, lora__r=4))
    cfg = make_config(out="two", schedule__max_steps=3, lora__adapter=str(first.folder / "model"))
    model, _ = adapted(cfg)
    assert model.peft_config["default"].r == 4
    b = [p for n, p in model.named_parameters() if "lora_B" in n]
    assert all(p.requires_grad for p in b) and any(p.abs().sum() > 0 for p in b)
    assert run(cfg).state == "finished"
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match=r"no adapter_config\.json"):
        adapted(make_config(lora__adapter=str(tmp_path / "nothing")))


def test_a_full_model_is_saved_with_its_tokenizer_and_loads_anywhere(make_config: Callable[..., Any]) -> None:
    outcome = run(make_config(lora__method="none", schedule__max_steps=2))
    model = AutoModelForCausalLM.from_pretrained(outcome.folder / "model")
    assert model.dtype == torch.float32
    assert (outcome.folder / "model" / "tokenizer.json").exists()


@pytest.mark.parametrize(("n", "text"), [(7, "7"), (1234, "1.23 K"), (494032768, "494 M"), (7615616512, "7.62 B")])
def test_human(n: int, text: str) -> None:
    assert human(n) == text
