"""Finite, not filled with zeros, of a sane size: damage planted in the file, the loaded model and by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from runner.preflight.weights.audit import Numbers, absmax, blocks, first_bad, largest, measure, role, zero_runs
from runner.preflight.weights.disk import tensors_of
from runner.preflight.weights.norms import effective_scale, norm_layers
from runner.preflight.weights.tensors import finite, not_finite, sizes, standing_out
from tests.preflight.weights.damage import (
    EMBEDDING,
    UP,
    configure,
    copy_of,
    data_range,
    grave,
    overwrite,
    results,
    rewrite,
)

Make = Callable[..., Any]


def only(c: Any) -> Any:
    """The one finding of all checks of the weights."""
    findings = grave(c)
    assert len(findings) == 1, [(f.id, f.sentence) for f in findings]
    return findings[0]


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_a_sound_model_has_no_finding(context: Make, task: str) -> None:
    c = context("weights", task=task)
    before = {n: p.clone() for n, p in c.start.named_parameters()}
    state = torch.get_rng_state()
    assert [r.findings for r in results(c).values() if r.findings] == []
    assert finite(c).summary.startswith(f"{len(before) + 2} tensors, largest element ")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p, before[n]) and p.grad is None for n, p in c.start.named_parameters())


def test_a_file_of_zeros_under_a_valid_header(context: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    begin, end = data_range(folder)
    overwrite(folder, begin, bytes(end - begin))
    f = only(context("weights", task="classification", model__path=str(folder)))
    # 2 layers of 7 matrices, the embedding, 5 norms.
    assert (f.id, f.severity, f.numbers["tensors"]) == ("weights.zero_filled", "error", 20)
    assert EMBEDDING in f.where and f.numbers["files"] == ["model.safetensors"] and f.numbers["culprit"] == "file"


def test_the_second_half_of_a_file_is_zero(context: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    begin, end = data_range(folder)
    middle = begin + (end - begin) // 2
    overwrite(folder, middle, bytes(end - middle))
    f = only(context("weights", model__path=str(folder)))
    stored = tensors_of(folder / "model.safetensors")
    behind = {n for n, s in stored.items() if s.begin >= middle and (len(s.shape) == 2 or "norm" in n)}
    cut = {n for n, s in stored.items() if s.begin < middle < s.end}
    assert cut == {EMBEDDING} and len(behind) == 19
    # What is zero as a whole comes first.
    assert f.id == "weights.zero_filled" and set(f.where[:19]) == behind and f.where[19:] == (EMBEDDING,)


def test_a_block_of_zeros_within_one_tensor(context: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    place = tensors_of(folder / "model.safetensors")[UP]
    overwrite(folder, place.begin + 4 * 100, bytes(4 * 1100))
    f = only(context("weights", model__path=str(folder)))
    assert (f.id, f.where) == ("weights.zero_filled", (UP,))
    assert f.numbers["first"] == 100 and f.numbers["share"] == round(1100 / (96 * 48), 4)
    assert "is zero from [2, 4] on for 1,100 of 4,608 elements" in f.sentence


@pytest.mark.parametrize("name", [UP, "model.norm.weight"])
def test_one_tensor_of_zeros(context: Make, micro_model: Path, tmp_path: Path, name: str) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    rewrite(folder, lambda w: w[name].zero_())  # type: ignore[arg-type, return-value]
    f = only(context("weights", model__path=str(folder)))
    assert (f.id, f.where, f.numbers["share"]) == ("weights.zero_filled", (name,), 1.0)


@pytest.mark.parametrize(
    ("dtype", "value"), [("float32", float("nan")), ("bfloat16", float("nan")), ("float32", -float("inf"))]
)
def test_one_element_that_is_not_finite(
    context: Make, micro_model: Path, tmp_path: Path, dtype: str, value: float
) -> None:
    folder = copy_of(micro_model, tmp_path / "model")

    def plant(weights: dict[str, torch.Tensor]) -> None:
        for key in weights:
            weights[key] = weights[key].to(getattr(torch, dtype))
        weights[UP][3, 17] = value

    rewrite(folder, plant)
    configure(folder, dtype=dtype)
    f = only(context("weights", model__path=str(folder)))
    assert (f.id, f.severity, f.where) == ("weights.damaged", "error", (UP,))
    assert f.numbers["index"] == [3, 17] and f.numbers["elements"] == 1 and f.numbers["value"] == str(value)
    assert "model.safetensors holds the same, so the file is at fault" in f.sentence


def test_junk_in_the_file(context: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    rewrite(folder, lambda w: w[UP].__setitem__((0, 5), -1e30))
    f = only(context("weights", model__path=str(folder)))
    assert (f.id, f.severity, f.where) == ("weights.damaged", "error", (UP,))
    assert f.numbers["index"] == [0, 5] and f.numbers["value"] == pytest.approx(-1e30)


@pytest.mark.parametrize("value", [float("nan"), 1e30, 0.0])
def test_a_good_file_loaded_badly_is_the_loaders_fault(context: Make, value: float) -> None:
    c = context("weights")
    with torch.no_grad():
        c.start.get_parameter(UP).fill_(value)
    first = next(f for r in (finite(c), sizes(c)) for f in r.findings)
    assert (first.id, first.where, first.numbers["culprit"]) == ("weights.uninitialised", (UP,), "loader")


def test_a_value_beyond_fp16_is_neither_the_files_nor_the_loaders_fault(
    context: Make, micro_model: Path, tmp_path: Path
) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    rewrite(folder, lambda w: w[UP].__setitem__((0, 0), 1e5))
    c = context("weights", model__path=str(folder))
    c.start.half()
    (f,) = finite(c).findings
    assert (f.id, f.where, f.overrides) == ("precision.fp16_overflow", (UP,), ("precision=fp32",))


def test_a_head_of_nan_is_the_initialisers_fault(context: Make) -> None:
    c = context("weights", task="classification")
    with torch.no_grad():
        c.start.score.weight[1, 2] = float("nan")
    from runner.preflight.weights.audit import audit

    (f,) = not_finite(c, audit(c))
    assert (f.id, f.where, f.numbers["culprit"]) == ("weights.uninitialised", ("score.weight",), "initialiser")


def test_a_norm_that_turns_the_sign(context: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    rewrite(folder, lambda w: w["model.norm.weight"].neg_())  # type: ignore[arg-type, return-value]
    f = only(context("weights", model__path=str(folder)))
    assert (f.id, f.severity, f.where) == ("weights.damaged", "warning", ("model.norm.weight",))
    assert f.numbers["mean"] == pytest.approx(-1.0)


def test_a_mask_may_be_zero_and_infinite(context: Make) -> None:
    c = context("weights")
    c.start.register_buffer("mask", torch.full((64, 64), -float("inf")).triu(1))
    c.start.register_buffer("gate", torch.zeros(64, 64))
    assert finite(c).findings == () and sizes(c).findings == ()
    c = context("weights")
    c.start.register_buffer("mask", torch.full((2, 2), float("nan")))
    (f,) = finite(c).findings
    assert (f.id, f.where) == ("weights.uninitialised", ("mask",))


def test_what_cannot_be_looked_at_is_counted(context: Make) -> None:
    c = context("weights")
    c.start.model.norm.weight = nn.Parameter(torch.empty(0))
    c.start.model.layers[0].mlp.up_proj.weight = nn.Parameter(torch.zeros(9, 1, dtype=torch.uint8), requires_grad=False)
    assert finite(c).summary.endswith(", 1 quantised and 1 offloaded tensors not looked at")
    assert finite(c).findings == () and sizes(c).findings == ()


@pytest.mark.real_model
def test_a_real_model_is_sound(context: Make, tmp_path: Path) -> None:
    from tests.test_real_model import gguf

    weights = gguf()
    c = context("weights", model__path=str(weights.parent), model__gguf_file=weights.name, lora__method="none")
    assert [f for check in (finite, sizes) for f in check(c).findings] == []
    c.start.save_pretrained(tmp_path / "smol", max_shard_size="200MB")
    c.tokenizer.save_pretrained(tmp_path / "smol")
    c = context("weights", model__path=str(tmp_path / "smol"))
    found = results(c)
    assert [f for r in found.values() for f in r.findings] == []
    assert found["weights.against_files"].summary == "272 tensors equal their files"
    assert found["weights.files"].summary.startswith("3 files, ")


# --- by hand -------------------------------------------------------------------------------------------------------


def test_numbers_of_a_tensor() -> None:
    n = measure("w", torch.tensor([[3.0, -4.0], [0.0, 0.0]]))
    assert (n.absmax, n.zeros, n.size, n.finite, n.empty) == (4.0, 0.5, 4, True, False)
    assert n.rms == pytest.approx(2.5)
    assert absmax(torch.tensor([])) == 0.0
    assert np.isnan(absmax(torch.tensor([1.0, float("nan"), float("inf")])))
    assert absmax(torch.tensor([-float("inf"), 1.0])) == float("inf")
    assert first_bad(torch.tensor([[1.0, 2.0], [float("inf"), float("inf")]])) == ((1, 0), float("inf"), 2)
    assert largest(torch.tensor([[1.0, 2.0], [-9.0, 3.0]])) == ((1, 0), -9.0)
    assert largest(torch.tensor(-2.0)) == ((), -2.0)
    assert role("model.layers.17.mlp.experts.3.up_proj.weight") == "model.layers.*.mlp.experts.*.up_proj.weight"


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=12), st.sampled_from([2, 6, 16]))
def test_runs_of_zeros_are_those_of_a_plain_search(pieces: list[tuple[bool, int]], least: int) -> None:
    values = [0.0 if zero else 1.0 for zero, n in pieces for _ in range(n)]
    expected, begin = [], None
    for i, v in enumerate([*values, 1.0]):
        if v == 0 and begin is None:
            begin = i
        elif v != 0 and begin is not None:
            if i - begin >= least:
                expected.append((begin, i))
            begin = None
    assert list(zero_runs(torch.tensor(values), least)) == expected


def test_which_runs_are_neither_padding_nor_pruning() -> None:
    shape = (100, 64)
    assert blocks(shape, [(64 * 90, 64 * 100)], table=False) == ()  # rows that pad the width
    assert blocks(shape, [(64 * 75, 64 * 100)], table=False) == ((4800, 6400),)
    assert blocks(shape, [(64 * 60, 64 * 100)], table=True) == ()  # tokens that do not exist
    assert blocks(shape, [(64 * 50, 64 * 100)], table=True) == ((3200, 6400),)
    assert blocks(shape, [(10, 1100), (64, 1152)], table=True) == ((10, 1100),)


def numbers(name: str, absmax: float, rms: float, shape: tuple[int, ...] = (8, 8)) -> Numbers:
    return Numbers(name, shape, torch.float32, absmax, rms, 0.0)


def test_what_stands_out_among_its_peers() -> None:
    layers = [numbers(f"layers.{i}.w", 2.0, 0.1) for i in range(6)]
    assert standing_out(layers) == []
    ((worst, kind, ratio),) = standing_out([*layers, numbers("layers.6.w", 2000.0, 0.1)])
    assert (worst.name, kind, ratio) == ("layers.6.w", "absmax", 1000.0)
    ((worst, kind, ratio),) = standing_out([*layers, numbers("layers.6.w", 90.0, 4.0)])
    assert (worst.name, kind, ratio) == ("layers.6.w", "rms", pytest.approx(40.0))
    ((_, kind, ratio),) = standing_out([*layers, numbers("layers.6.w", 0.01, 0.001)])
    assert (kind, ratio) == ("rms", pytest.approx(0.01))
    # A vector may differ; a large element that its peers share does not stand out; two tensors are no company.
    assert standing_out([*layers, numbers("layers.6.w", 90.0, 4.0, (8,))]) == []
    assert standing_out([numbers(f"layers.{i}.b", 2000.0, 50.0, (8,)) for i in range(6)]) == []
    assert standing_out([numbers("layers.0.w", 2.0, 0.1), numbers("layers.1.w", 2000.0, 9.0)]) == []


def test_a_scaled_layer_and_a_large_element_in_a_model(context: Make) -> None:
    c = context("weights")
    c.start.config.layer_types = ["full_attention"] * 5
    c.start.model.layers.extend([type(c.start.model.layers[0])(c.start.config, i) for i in (2, 3, 4)])
    with torch.no_grad():
        for layer in c.start.model.layers[2:]:
            layer.mlp.up_proj.weight.normal_(std=0.02)
        c.start.get_parameter(UP).mul_(100.0)
    (f,) = sizes(c).findings
    assert (f.id, f.severity, f.where) == ("weights.uninitialised", "warning", (UP,))
    assert f.numbers["ratio"] == pytest.approx(100, rel=0.2) and "the loader is at fault" in f.sentence

    c = context("weights")
    with torch.no_grad():
        c.start.get_parameter(EMBEDDING)[0, 0] = 2000.0
    (f,) = sizes(c).findings
    assert (f.severity, f.where, f.numbers["absmax"]) == ("note", (EMBEDDING,), 2000.0)


class PlusOne(nn.Module):
    """A norm as Gemma stores it."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * (1 + self.weight)


class GatedNorm(PlusOne):
    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x) * gate


def test_what_a_norm_multiplies_with() -> None:
    plus = PlusOne(6)
    assert torch.allclose(effective_scale(plus), torch.ones(6))  # type: ignore[arg-type]
    layer = nn.LayerNorm(6)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 2.0, -3.0, 0.0, 5.0, 6.0]))
        layer.bias.fill_(7.0)
    assert torch.allclose(effective_scale(layer), layer.weight, atol=1e-3)  # type: ignore[arg-type]
    assert effective_scale(GatedNorm(6)) is None and effective_scale(nn.GroupNorm(2, 6)) is None
    assert [n for n, _ in norm_layers(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))] == ["1.weight"]


def test_weights_of_gemma_near_zero_are_sound() -> None:
    from transformers import GemmaConfig, GemmaForCausalLM

    from runner.config.schema import Config
    from runner.preflight.context import Context

    config = GemmaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, head_dim=8,
                         num_attention_heads=2, num_key_value_heads=1)  # fmt: skip
    c = Context(Config(), "quick", Path("unused"))
    c.cfg.model.path = "no/such_model"
    c.start = GemmaForCausalLM(config)
    with torch.no_grad():
        for _, layer in norm_layers(c.start):
            assert isinstance(layer.weight, torch.Tensor)
            layer.weight.fill_(-0.2)
        c.start.model.norm.weight.zero_()
    assert finite(c).findings == () and sizes(c).findings == ()
