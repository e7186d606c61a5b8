"""A linear layer that leaves its output unwritten, and what rounding alone is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from runner.preflight.batch.matmul import COLUMNS, blas, examine, linear_layers, matmul, product, sample, tolerance
from runner.preflight.finding import Result

Make = Callable[..., Any]


class Unwritten(nn.Linear):
    """Its product goes into a buffer that keeps what was there: zeros of a fresh page, or junk of a used one."""

    junk = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y * 0 + self.junk if math.isfinite(self.junk) else y * self.junk


class Zeros(Unwritten):
    """Zeros."""


class Junk(Unwritten):
    """NaN."""

    junk = math.nan


class Huge(Unwritten):
    """Finite junk."""

    junk = 1.8e31


class Moody(nn.Linear):
    """Right twice, wrong the third time."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = super().forward(x)
        return y * 0 if self.calls % 3 == 0 else y


class BadBackward(nn.Linear):
    """The product is right, its gradient was never written."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y.detach() + 0 * y


class Slightly(nn.Linear):
    """One output of 64 is off by a tenth of its size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x).clone()
        y[:, 0] = y[:, 0] * 1.1
        return y


class Detached(nn.Linear):
    """No gradient at all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).detach()


class OneNan(nn.Linear):
    """One output that the spread sample does not hold."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x).clone()
        y[:, 3] = math.nan
        return y


def ids(result: Result) -> list[tuple[str, str]]:
    return [(f.id, f.severity) for f in result.findings]


KINDS = (Zeros, Junk, Huge, Moody, BadBackward, Slightly, OneNan, Detached)


@pytest.mark.parametrize(
    ("kind", "method"),
    [(Zeros, "none"), (Zeros, "lora"), (OneNan, "none"), (Moody, "none"), (BadBackward, "none")]
    + [pytest.param(kind, "none", marks=pytest.mark.slow) for kind in (Junk, Huge, Slightly, Detached)]
    + [pytest.param(kind, "lora", marks=pytest.mark.slow) for kind in KINDS[1:]],
)
def test_planted(context: Make, kind: type[nn.Linear], method: str) -> None:
    """D3: exactly this finding, at this layer; what follows from it is not reported as another cause."""
    from runner.preflight.batch.trainability import gradients, optimizer, parameters

    c = context("batch", task="classification", lora__method=method)
    layer = c.start.model.layers[1].mlp.up_proj
    (layer.base_layer if method == "lora" else layer).__class__ = kind
    result = matmul(c)
    assert ids(result) == [("kernels.matmul_unwritten", "error")]
    assert result.findings[0].where == ("model.layers.1.mlp.up_proj",)
    assert result.findings[0].numbers["wrong"] == 1
    for check in (parameters, optimizer, gradients):
        assert not [f for f in check(c).findings if f.id.startswith("weights.")]
    if kind is not Detached:
        assert not gradients(c).findings


@pytest.mark.parametrize("kind", [Zeros, Junk])
def test_the_seed_case(context: Make, kind: type[nn.Linear]) -> None:
    """Every product of the model unwritten: ln 3 with gradient 0, or NaN. Only the matrix product is blamed."""
    from runner.preflight.batch.trainability import gradients, optimizer, parameters

    c = context("batch", task="classification", lora__method="none")
    layers, _ = linear_layers(c.trainer.model)
    for _, layer in layers:
        layer.__class__ = kind
    result = matmul(c)
    assert ids(result) == [("kernels.matmul_unwritten", "error")]
    assert result.findings[0].numbers["wrong"] == len(layers)
    assert result.findings[0].numbers["blas"] == blas() and "BLAS" in blas()
    assert not parameters(c).findings and not optimizer(c).findings and not gradients(c).findings
    loss = c.facts["first_loss"]["loss"]
    assert math.isnan(loss) if kind is Junk else loss == pytest.approx(math.log(3), abs=1e-6)


@pytest.mark.parametrize("method", ["none", "lora"])
@pytest.mark.parametrize("compute", ["fp32", *(pytest.param(x, marks=pytest.mark.slow) for x in ("bf16", "fp16"))])
def test_healthy(context: Make, method: str, compute: str) -> None:
    c = context("batch", lora__method=method, precision__compute=compute)
    result = matmul(c)
    assert not result.findings and not result.skipped
    assert c.facts["matmul_wrong"] == []
    layers, quantised = linear_layers(c.trainer.model)
    assert quantised == 0 and f"{len(layers)} of {len(layers)}" in result.summary
    names = [name for name, _ in layers]
    everything = [n for n, m in c.trainer.model.named_modules() if isinstance(m, nn.Linear) and ".lora_" not in n]
    assert len(set(names)) == len(names) and sum(".lora_" not in n for n in names) == len(everything) == 15
    # Of the adapter's 28 products, those of different shapes.
    assert sum(".lora_" in n for n in names) == (0 if method == "none" else 5)
    assert "model.layers.0.self_attn.q_proj" in names and "lm_head" in names


def test_bad_weights_are_not_blamed_on_the_product(context: Make) -> None:
    c = context("batch", lora__method="none")
    layers = c.trainer.model.model.layers
    layers[0].mlp.up_proj.weight.data[3, 3] = math.nan
    layers[1].mlp.up_proj.weight.data.fill_(1e38)
    result = matmul(c)
    assert not result.findings and "2 with weights out of range" in result.summary


def test_quantised_and_conv1d() -> None:
    from transformers.pytorch_utils import Conv1D

    class Quantised(nn.Module):
        in_features = out_features = 4

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 2, dtype=torch.int8), requires_grad=False)

    model = nn.ModuleDict({"a": Quantised(), "b": Conv1D(6, 10), "c": nn.LayerNorm(4)})
    layers, quantised = linear_layers(model)
    assert [name for name, _ in layers] == ["b"] and quantised == 1
    assert examine("b", model["b"], torch.Generator().manual_seed(0)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(48, 96), (896, 4864), (4864, 896), (2048, 30)])
@torch.no_grad()
def test_tolerance_lies_between_rounding_and_zero(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """A healthy layer of a real width uses less than half of it, and an all-zero output many times of it."""
    torch.manual_seed(0)
    layer = nn.Linear(*shape, dtype=dtype)
    x = torch.randn(3, shape[0]).to(dtype)
    want, size = product(x, layer.weight, layer.bias)
    allowed = tolerance(dtype, shape[0]) * size
    assert float(((layer(x).double() - want).abs() / allowed).amax()) < 0.5
    assert float((want.abs() / allowed).amax()) > 2


@given(st.integers(1, 200_000), st.integers(1, 200_000))
def test_sample(outputs: int, terms: int) -> None:
    columns = range(outputs)[sample(outputs, terms)]
    assert 1 <= len(columns) <= COLUMNS and columns[0] == 0


@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 6))
def test_product_by_hand(rows: int, terms: int, outputs: int) -> None:
    x = torch.arange(rows * terms).reshape(rows, terms).float() - 3
    w = torch.arange(outputs * terms).reshape(outputs, terms).float() - 5
    b = torch.arange(outputs).float()
    total, size = product(x, w, b)
    for i in range(rows):
        for j in range(outputs):
            parts = [float(x[i, k] * w[j, k]) for k in range(terms)]
            assert float(total[i, j]) == sum(parts) + j
            assert float(size[i, j]) == sum(abs(p) for p in parts) + j


def test_global_random_numbers_are_not_used(context: Make) -> None:
    c = context("batch")
    before = torch.get_rng_state()
    matmul(c)
    assert torch.equal(before, torch.get_rng_state())


def test_deepspeed_is_left_out(context: Make) -> None:
    c = context("batch")
    c.trainer.is_deepspeed_enabled = True
    assert matmul(c).skipped
