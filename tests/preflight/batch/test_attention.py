"""Attention kernels with planted faults, registered through transformers' own interface, against eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from runner.preflight.batch.attention import apart, attention, attention_of, padded
from runner.preflight.finding import Result

Make = Callable[..., Any]


def masked_rows(module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
    """D1: as old torch, NaN for a query that may look at nothing."""
    out, weights = sdpa_attention_forward(module, query, key, value, mask, **kwargs)
    if mask is not None:
        # (batch, 1, queries, keys): padding on the left leaves the first queries only padding to look at.
        empty = padding_only(mask)[:, 0, :, None, None]
        out = torch.where(empty, torch.nan, out)
    return out, weights


def padding_only(mask: torch.Tensor) -> torch.Tensor:
    """Queries before the first key that the last query may see; shape (batch, 1, queries)."""
    allowed = mask if mask.dtype == torch.bool else mask == 0
    first = allowed[:, :, -1:, :].to(torch.uint8).argmax(-1)
    return torch.arange(mask.shape[2])[None, None] < first


def wrong_values(module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
    """D2: finite and 5 % off."""
    out, weights = sdpa_attention_forward(module, query, key, value, mask, **kwargs)
    return out * 1.05, weights


class NanBackward(torch.autograd.Function):
    """Identity whose gradient is NaN at one element."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.clone()
        gradient[0, 0] = math.nan
        return gradient


def nan_backward(module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
    """D2: the loss is finite, the gradient is not."""
    out, weights = sdpa_attention_forward(module, query, key, value, mask, **kwargs)
    return NanBackward.apply(out), weights


def nan_always(module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
    """D2: NaN whatever is masked."""
    out, weights = sdpa_attention_forward(module, query, key, value, mask, **kwargs)
    return out * math.nan, weights


FAULTS = (masked_rows, wrong_values, nan_backward, nan_always)


@pytest.fixture(autouse=True, scope="module")
def backends() -> None:
    """The interface has no way to take a kernel out again; nothing asks for these by their names."""
    for fault in FAULTS:
        AttentionInterface.register(named(fault), fault)
        AttentionMaskInterface.register(named(fault), ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def named(fault: Any) -> str:
    return f"planted_{fault.__name__}"


def ids(result: Result) -> list[tuple[str, str]]:
    return [(f.id, f.severity) for f in result.findings]


@pytest.mark.parametrize("task", ["sft", "classification"])
@pytest.mark.parametrize("compute", ["fp32", *(pytest.param(x, marks=pytest.mark.slow) for x in ("bf16", "fp16"))])
def test_healthy(context: Make, task: str, compute: str) -> None:
    c = context("batch", task=task, precision__compute=compute)
    result = attention(c)
    assert not result.findings and not result.skipped and "differ by" in result.summary


@pytest.mark.parametrize("method", ["lora", pytest.param("none", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (masked_rows, "kernels.masked_rows"),
        (wrong_values, "kernels.attention_backend"),
        (nan_backward, "kernels.attention_backend"),
        (nan_always, "kernels.attention_backend"),
    ],
)
def test_planted(context: Make, fault: Any, cause: str, method: str) -> None:
    c = context("batch", lora__method=method)
    c.start.set_attn_implementation(named(fault))
    result = attention(c)
    assert ids(result) == [(cause, "error")]
    found = result.findings[0]
    assert found.overrides == ("model.attn_implementation=eager",)
    assert found.numbers["backend"] == named(fault)
    assert c.start.config._attn_implementation == named(fault)
    if fault is masked_rows:
        assert found.numbers["padding"] == ["left"]
        assert found.where and set(found.where) <= set(c.data.train["row_id"])
    if fault is wrong_values:
        assert found.where == ("model.attn_implementation",)
        assert found.numbers["hidden"] > found.numbers["limit"]


def test_one_training_batch_shows_a_kernel_that_is_nan(context: Make) -> None:
    """The quick check, which has no second backend to compare with, names attention too."""
    from runner.preflight.batch.trainability import gradients

    c = context("batch")
    c.start.set_attn_implementation(named(nan_always))
    result = gradients(c)
    assert ids(result) == [("kernels.attention_backend", "error")]
    assert result.findings[0].where == ("model.layers.0.self_attn",)


def test_eager_needs_no_check(context: Make) -> None:
    assert attention(context("batch", model__attn_implementation="eager")).skipped


def test_nan_weights_are_not_blamed_on_the_kernel(context: Make) -> None:
    c = context("batch", lora__method="none")
    c.start.model.layers[0].mlp.up_proj.weight.data[0, 0] = math.nan
    result = attention(c)
    assert result.skipped and not result.findings


def test_the_switch_is_undone_after_an_error(context: Make) -> None:
    c = context("batch")
    with pytest.raises(ZeroDivisionError), attention_of(c.start, "eager") as switched:
        assert switched and c.start.config._attn_implementation == "eager"
        raise ZeroDivisionError
    assert c.start.config._attn_implementation == "sdpa"


ROWS = st.lists(
    st.tuples(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from(["left", "right"])),
    min_size=1,
    max_size=4,
)


@given(ROWS)
def test_padded(given_rows: list[tuple[list[int], str]]) -> None:
    rows, sides = [row for row, _ in given_rows], [side for _, side in given_rows]
    ids, mask = padded(rows, 0, sides)
    assert ids.shape == mask.shape == (len(rows), max(len(r) for r in rows))
    for row, side, got, seen in zip(rows, sides, ids.tolist(), mask.tolist(), strict=True):
        assert [i for i, m in zip(got, seen, strict=True) if m] == row
        assert seen == sorted(seen, reverse=side == "right")


def test_apart_by_hand() -> None:
    b = torch.tensor([[[3.0, 4.0], [0.0, 5.0]]])
    a = torch.tensor([[[3.0, 5.0], [9.0, 9.0]]])
    both, first = torch.tensor([[1, 1]]), torch.tensor([[1, 0]])
    assert apart(a, b, first) == pytest.approx(1 / 5)
    assert apart(a, b, both) == pytest.approx(math.hypot(9, 4) / 5)
    assert apart(b, b, both) == 0
    assert apart(a * math.nan, b, both) == math.inf
    assert apart(a, b * 0, both) == math.inf and apart(b * 0, b * 0, both) == 0
