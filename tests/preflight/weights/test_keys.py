"""Keys of the checkpoint that do not match the model, planted in its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.preflight.examine import examine
from runner.preflight.weights.keys import keys, missing, trunk_of, unexpected
from tests.preflight.weights.damage import UP, configure, copy_of, grave, rewrite

Make = Callable[..., Any]


def stopped(make_config: Make, folder: Path, task: str = "sft") -> Any:
    """The finding of a model that cannot be loaded."""
    cfg = make_config(task, model__path=str(folder))
    pre = examine(cfg, "quick", folder.parent / "preflight", until="weights")
    (f,) = pre.errors
    return f


def test_a_new_head_is_expected(context: Make) -> None:
    assert keys(context("weights")).summary == "none missing, 0 unexpected"
    result = keys(context("weights", task="classification"))
    assert (result.summary, result.findings) == ("new head: score.weight, 0 unexpected", ())


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_a_missing_trunk_key(make_config: Make, micro_model: Path, tmp_path: Path, task: str) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    rewrite(folder, lambda w: w.pop(UP))  # type: ignore[arg-type, return-value]
    f = stopped(make_config, folder, task)
    assert (f.id, f.severity, f.where) == ("weights.keys_do_not_match", "error", (UP,))


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_keys_with_another_prefix(make_config: Make, micro_model: Path, tmp_path: Path, task: str) -> None:
    folder = copy_of(micro_model, tmp_path / "model")

    def rename(weights: dict[str, Any]) -> None:
        for key in list(weights):
            weights[f"backbone.{key.removeprefix('model.')}"] = weights.pop(key)

    rewrite(folder, rename)
    f = stopped(make_config, folder, task)
    assert f.id == "weights.keys_do_not_match" and {UP, "model.norm.weight"} < set(f.where) and len(f.where) >= 26
    assert "backbone.embed_tokens.weight" in f.sentence and "weights are not in its files" in f.sentence


def test_shapes_that_do_not_fit(make_config: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    configure(folder, intermediate_size=80)
    f = stopped(make_config, folder)
    assert f.id == "weights.keys_do_not_match" and UP in f.where and len(f.where) == 6


def test_a_head_of_other_classes_is_replaced(context: Make, micro_model: Path, tmp_path: Path) -> None:
    import torch

    folder = copy_of(micro_model, tmp_path / "model")
    rewrite(folder, lambda w: w.__setitem__("score.weight", torch.ones(7, 48)))
    c = context("weights", task="classification", model__path=str(folder))
    assert keys(c).summary == (
        "new head: score.weight, the head in the files has another shape and is not used, 0 unexpected"
    )
    assert c.start.score.weight.shape == (3, 48) and grave(c) == []


def test_layers_that_config_json_does_not_ask_for(context: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    configure(folder, num_hidden_layers=1, layer_types=["full_attention"])
    (f,) = grave(context("weights", model__path=str(folder)))
    assert (f.id, f.severity, f.numbers["of_known_roles"]) == ("weights.keys_do_not_match", "warning", 12)
    assert UP in f.where


def test_what_is_harmless() -> None:
    names = ["lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq", "score.weight", "h.0.attn.bias"]
    assert trunk_of([*names, "visual.patch.weight"]) == ["visual.patch.weight"]
    assert unexpected([], ["a"]) == [] and missing([]) == []


def test_few_and_many_of_another_architecture() -> None:
    model = [f"layers.{i}.w" for i in range(10)]
    (few,) = unexpected(["visual.0.w", "visual.1.w"], model)
    (many,) = unexpected([f"visual.{i}.w" for i in range(10)], model)
    assert (few.severity, many.severity) == ("note", "warning")


def test_missing_outside_a_head_after_loading(context: Make) -> None:
    c = context("weights", task="classification")
    c.loading = {**c.loading, "missing_keys": {"score.weight", UP}}
    (f,) = keys(c).findings
    assert (f.id, f.where) == ("weights.keys_do_not_match", (UP,))


def test_rows_for_new_tokens_under_lora(make_config: Make, micro_model: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = copy_of(micro_model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<new1>", "<new2>"])
    tokenizer.save_pretrained(folder)
    cfg = make_config(lora__method="lora", model__path=str(folder))
    (f,) = examine(cfg, "quick", tmp_path / "preflight", until="weights").errors
    assert (f.id, f.where) == ("weights.token_rows", ("<new1>", "<new2>"))
