"""Embedding rows of tokens in use: beyond the table, zero, tiny, or all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runner.config.compose import load
from runner.preflight.weights.token_rows import frozen, token_rows, untrained, used_ids
from tests.preflight.weights.damage import EMBEDDING, copy_of, grave, rewrite

Make = Callable[..., Any]


def spoilt(
    context: Make, model: Path, to: Path, change: Callable[[torch.Tensor, list[int]], Any], **changes: Any
) -> Any:
    """A context whose embedding `change(rows, ids of <|im_end|> and <|im_start|>)` has damaged in the file."""
    from transformers import AutoTokenizer

    folder = copy_of(model, to)
    ids = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(["<|im_end|>", "<|im_start|>"])
    rewrite(folder, lambda w: change(w[EMBEDDING], ids))
    return context("weights", model__path=str(folder), **changes)


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_sound_rows(context: Make, task: str) -> None:
    result = token_rows(context("weights", task=task))
    assert result.findings == () and " of 4,608 rows in use, largest id " in result.summary


def test_zeroed_rows_of_tokens_in_use(context: Make, micro_model: Path, tmp_path: Path) -> None:
    c = spoilt(context, micro_model, tmp_path / "model", zero)
    (f,) = grave(c)
    assert (f.id, f.severity) == ("weights.token_rows", "warning")
    assert set(f.where) == {"<|im_end|>", "<|im_start|>"} and f.numbers["tensor"] == EMBEDDING
    assert f.numbers["share_of_median"] == 0.0 and "LoRA leaves the embedding frozen" in f.sentence
    assert f.overrides == ("lora.modules_to_save=[embed_tokens]",)
    assert load(list(f.overrides)).config.lora.modules_to_save == ["embed_tokens"]


def zero(w: torch.Tensor, ids: list[int]) -> None:
    w[ids] = 0.0


def same(w: torch.Tensor, ids: list[int]) -> None:
    w[ids[0]] = w[ids[1]]


def tiny(w: torch.Tensor, ids: list[int]) -> None:
    w[ids[0]] *= 1e-3


def test_the_override_mends_it(context: Make, micro_model: Path, tmp_path: Path) -> None:
    c = spoilt(context, micro_model, tmp_path / "model", zero, lora__modules_to_save=["embed_tokens"])
    assert grave(c) == [] and token_rows(c).findings[0].severity == "note"


@pytest.mark.parametrize(("change", "count"), [(same, 2), (tiny, 1)])
def test_rows_that_are_the_same_or_tiny(
    context: Make, micro_model: Path, tmp_path: Path, change: Any, count: int
) -> None:
    c = spoilt(context, micro_model, tmp_path / "model", change)
    (f,) = grave(c)
    assert (f.id, f.numbers["tokens"]) == ("weights.token_rows", count) and "<|im_end|>" in f.where


def test_a_full_fine_tuning_trains_them(context: Make, micro_model: Path, tmp_path: Path) -> None:
    c = spoilt(context, micro_model, tmp_path / "model", zero, lora__method="none")
    (f,) = token_rows(c).findings
    assert (f.severity, f.overrides) == ("note", ()) and "it is trained in this run" in f.sentence and grave(c) == []


def test_an_id_beyond_the_table(context: Make) -> None:
    c = context("weights", lora__method="none")
    rows = int(used_ids(c.data.train).max())
    c.start.resize_token_embeddings(rows)
    (f,) = token_rows(c).findings
    assert (f.id, f.severity, f.numbers["ids"]) == ("weights.token_rows", "error", 1)
    assert f.numbers["largest"] == f.numbers["rows"] == rows and f.where == (c.tokenizer.convert_ids_to_tokens(rows),)


def test_a_damaged_embedding_is_left_to_its_own_check(context: Make) -> None:
    c = context("weights")
    with torch.no_grad():
        c.start.get_parameter(EMBEDDING).zero_()
    assert token_rows(c).findings == ()


def test_an_output_layer_of_its_own(context: Make) -> None:
    c = context("weights")
    head = torch.nn.Linear(48, 4608, bias=False)
    c.start.lm_head = head
    ids = used_ids(c.data.train)
    assert token_rows(c).findings == ()
    with torch.no_grad():
        head.weight[int(ids[3])] = 0.0
    (f,) = token_rows(c).findings
    assert f.numbers["tensor"] == "lm_head.weight" and f.overrides == ("lora.modules_to_save=[embed_tokens,lm_head]",)


def test_which_tables_stay(context: Make) -> None:
    c = context("config", lora__method="freeze", lora__trainable=["embed"])
    assert not frozen(c, EMBEDDING) and frozen(c, "lm_head.weight")
    assert not frozen(context("config", lora__method="none"), EMBEDDING)
    assert frozen(context("config", lora__method="lora"), EMBEDDING)


def test_ids_of_rows() -> None:
    rows = datasets.Dataset.from_dict({"input_ids": [[5, 1], [1, 9, 9], [3]], "n": [1, 2, 3]})
    assert used_ids(rows).tolist() == [1, 3, 5, 9]
    assert used_ids(rows.select([2, 0])).tolist() == [1, 3, 5]


def test_rows_by_hand() -> None:
    ids = np.array([2, 4, 7, 8, 9])
    rows = np.array([[3.0, 4.0], [0.01, 0.0], [0.0, 5.0], [3.0, 4.0], [4.0, 3.0]], dtype=np.float32)
    odd = untrained(ids, rows)
    assert odd.small == {4: pytest.approx(0.002)} and odd.same == (2, 8) and odd.ids == [4, 2, 8]
    assert untrained(ids[:0], rows[:0]).ids == [] and untrained(ids, rows * 0).ids == []


@given(st.integers(3, 60), st.integers(2, 16), st.data())
def test_damaged_rows_are_found_and_no_others(count: int, width: int, data: st.DataObject) -> None:
    rows = np.random.default_rng(count * 17 + width).normal(size=(count, width)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    hurt = data.draw(st.sets(st.integers(0, count - 1), max_size=count // 3))
    rows[list(hurt)] *= 1e-3
    odd = untrained(np.arange(count), rows)
    assert set(odd.small) == hurt and set(odd.ids) == hurt
