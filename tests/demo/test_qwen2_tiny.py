"""The shipped tiny model: small, loadable, Qwen-like, and a base model that has really learned something."""

from __future__ import annotations

import json
import math
import random
import statistics
from pathlib import Path
from typing import Any

import pytest

Rows = dict[str, list[dict[str, Any]]]
TURNS = [{"role": "user", "content": "你好, what is 1 + 1?"}, {"role": "assistant", "content": "两个。It is 2."}]
CHATML = "<|im_start|>user\n你好, what is 1 + 1?<|im_end|>\n<|im_start|>assistant\n两个。It is 2.<|im_end|>\n"


@pytest.fixture(scope="module")
def losses(tiny: tuple[Any, Any], rows: Rows) -> dict[str, list[float]]:
    """Mean loss of the answer tokens of 25 English and 25 Chinese demo rows."""
    import torch

    tokenizer, model = tiny
    found: dict[str, list[float]] = {}
    for name in ("demo_en", "demo_zh"):
        found[name] = []
        for row in random.Random(1).sample(rows[name], 25):
            question = "\n".join(part for part in (row["instruction"], row["input"]) if part)
            turns = [{"role": "user", "content": question}, {"role": "assistant", "content": row["output"]}]
            opened = tokenizer.apply_chat_template(turns[:1], tokenize=False, add_generation_prompt=True)
            prompt = tokenizer(opened)["input_ids"]
            ids = torch.tensor([tokenizer(tokenizer.apply_chat_template(turns, tokenize=False))["input_ids"]])
            labels = ids.clone()
            labels[:, : len(prompt)] = -100
            with torch.no_grad():
                found[name].append(model(input_ids=ids, labels=labels).loss.item())
    return found


def test_folder_is_at_most_nine_megabytes(model_dir: Path) -> None:
    assert sum(path.stat().st_size for path in model_dir.rglob("*") if path.is_file()) <= 9_000_000


def test_model_is_a_small_fp32_qwen2(tiny: tuple[Any, Any], model_dir: Path) -> None:
    import torch
    from safetensors.torch import load_file

    _, model = tiny
    weights = load_file(model_dir / "model.safetensors")
    assert type(model).__name__ == "Qwen2ForCausalLM"
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert all(torch.isfinite(weight).all() for weight in weights.values())
    assert 1_800_000 < sum(weight.numel() for weight in weights.values()) < 2_200_000
    config = model.config
    assert config.tie_word_embeddings and config.max_position_embeddings >= 2048
    assert config.num_key_value_heads < config.num_attention_heads


def test_ids_agree_between_tokenizer_and_model(tiny: tuple[Any, Any]) -> None:
    tokenizer, model = tiny
    assert model.config.vocab_size == len(tokenizer)
    for part in (model.config, model.generation_config):
        assert part.pad_token_id == tokenizer.pad_token_id
        assert part.eos_token_id == tokenizer.eos_token_id


def test_tokenizer_has_the_special_tokens_of_a_qwen_base_model(tiny: tuple[Any, Any]) -> None:
    tokenizer, _ = tiny
    assert 4000 <= len(tokenizer) <= 8000
    assert tokenizer.pad_token == tokenizer.eos_token == "<|endoftext|>"
    assert tokenizer.bos_token is None
    for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):
        assert len(tokenizer(token)["input_ids"]) == 1
    assert tokenizer("hello")["input_ids"][-1] != tokenizer.eos_token_id


@pytest.mark.parametrize(
    "text", ["plain English, 123 + 45 = 168.", "中文也可以。", "  spaces\n\nand\ttabs ", "rare: 龘 😀 ñ", "it's I'LL"]
)
def test_any_text_survives_the_tokenizer(tiny: tuple[Any, Any], text: str) -> None:
    tokenizer, _ = tiny
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_digits_are_single_tokens_as_in_qwen2(tiny: tuple[Any, Any]) -> None:
    tokenizer, _ = tiny
    assert tokenizer.tokenize("2024") == ["2", "0", "2", "4"]


def test_auto_class_splits_like_the_stored_tokenizer(tiny: tuple[Any, Any], model_dir: Path, rows: Rows) -> None:
    from tokenizers import Tokenizer

    tokenizer, _ = tiny
    stored = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    for row in [*rows["demo_zh"][:50], *rows["demo_en"][:50]]:
        assert tokenizer(row["output"])["input_ids"] == stored.encode(row["output"]).ids


def test_chat_template_is_chatml_without_a_default_system_prompt(tiny: tuple[Any, Any]) -> None:
    tokenizer, _ = tiny
    assert tokenizer.apply_chat_template(TURNS, tokenize=False) == CHATML
    opened = tokenizer.apply_chat_template(TURNS[:1], tokenize=False, add_generation_prompt=True)
    assert CHATML.startswith(opened) and opened.endswith("<|im_start|>assistant\n")
    with_system = tokenizer.apply_chat_template([{"role": "system", "content": "Be brief."}, *TURNS], tokenize=False)
    assert with_system == f"<|im_start|>system\nBe brief.<|im_end|>\n{CHATML}"


def test_chat_template_survives_tokenising(tiny: tuple[Any, Any]) -> None:
    tokenizer, _ = tiny
    ids = tokenizer.apply_chat_template(TURNS, return_dict=True)["input_ids"]
    assert tokenizer.decode(ids) == CHATML
    assert ids.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 2


@pytest.mark.parametrize("name", ["demo_zh", "sentiment_zh"])
def test_chinese_costs_at_most_1_2_tokens_a_character(tiny: tuple[Any, Any], rows: Rows, name: str) -> None:
    tokenizer, _ = tiny
    texts = [row.get("output", row.get("text")) for row in rows[name][:300]]
    tokens = sum(len(ids) for ids in tokenizer(texts)["input_ids"])
    assert tokens / sum(map(len, texts)) < 1.2


def test_base_model_is_far_better_than_guessing(tiny: tuple[Any, Any], losses: dict[str, list[float]]) -> None:
    tokenizer, _ = tiny
    assert statistics.mean([*losses["demo_en"], *losses["demo_zh"]]) < 0.8 * math.log(len(tokenizer))


def test_losses_differ_from_row_to_row(losses: dict[str, list[float]]) -> None:
    assert all(statistics.pstdev(found) > 0.3 for found in losses.values())


def test_the_two_sources_differ_in_difficulty(losses: dict[str, list[float]]) -> None:
    assert statistics.mean(losses["demo_zh"]) - statistics.mean(losses["demo_en"]) > 0.8


def test_base_model_ends_a_text_by_itself(tiny: tuple[Any, Any]) -> None:
    tokenizer, model = tiny
    prompt = tokenizer("The calendar goes on: Monday, Tuesday,", return_tensors="pt")
    ids = model.generate(**prompt, max_new_tokens=200, do_sample=False)[0].tolist()
    assert tokenizer.eos_token_id in ids


def test_readme_states_the_measured_loss(model_dir: Path) -> None:
    text = (model_dir / "README.md").read_text(encoding="utf-8")
    assert "apache-2.0" in text and "validation loss" in text and "pretrain_qwen2_tiny.py" in text
    said = float(text.split("validation loss ")[1].split()[0])
    assert said < 0.8 * math.log(json.loads((model_dir / "config.json").read_text(encoding="utf-8"))["vocab_size"])
