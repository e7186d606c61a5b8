"""Number formats: activations, gradients and updates against what a format can hold."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from runner.config.compose import load
from runner.lab.faults import fp16_backward_overflow, fp16_forward_overflow
from runner.lab.rescale import gated_mlp
from runner.preflight.batch.headroom import (
    FP16_MAX,
    forward_severity,
    halvings,
    headroom,
    most,
    replica,
    scaled,
    updates,
)
from runner.preflight.batch.ranges import absmax, copies_of, held_as, measured_ranges, read
from runner.preflight.batch.replica import Replica, cosine, judge_replica
from runner.preflight.batch.updates import try_step


def ids(result: Any) -> list[tuple[str, str]]:
    return [(f.id, f.severity) for f in result.findings]


def state(c: Any) -> Any:
    """Whatever a check might leave behind."""
    model = c.trainer.model
    scaler = c.trainer.accelerator.scaler
    return (
        [p.detach().double().sum().item() for p in model.parameters()],
        [p.grad is None for p in model.parameters()],
        [(type(p), p.dtype, p.requires_grad) for m in model.modules() for p in m._parameters.values() if p is not None],
        [m.training for m in model.modules()],
        [v for m in model.modules() for k, v in vars(m).items() if isinstance(v, float)],
        [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        torch.get_rng_state().tolist(),
        id(c.trainer.step_now),
        None if scaler is None else scaler.get_scale(),
    )


def test_healthy_leaves_no_trace(context: Any) -> None:
    c = context("batch", task="classification")
    before = state(c)
    for check in (headroom, updates):
        result = check(c)
        assert not result.findings and not result.skipped, result
    assert "would hold it" in headroom(c).summary
    assert replica(c).skipped
    assert state(c) == before


def test_healthy_in_fp16(context: Any) -> None:
    c = context("batch", precision__compute="fp16")
    before = state(c)
    for check in (headroom, updates, replica):
        result = check(c)
        assert not [f for f in result.findings if f.severity != "note"], result
        assert not result.skipped
    assert state(c) == before


@pytest.mark.parametrize("method", ["none", "lora"])
def test_forward_overflow(context: Any, method: str) -> None:
    c = context("batch", precision__compute="fp16", lora__method=method)
    fp16_forward_overflow(c.cfg, c.trainer)
    mlp = gated_mlp(c.cfg, c.trainer).name
    result = headroom(c)
    assert ids(result) == [("precision.fp16_overflow", "error")]
    [found] = result.findings
    assert found.where[0].startswith(mlp)
    assert found.numbers["largest_activation"] > FP16_MAX
    assert load(list(found.overrides)).config.precision.compute == "bf16"
    assert ids(replica(c)) == [("precision.fp16_overflow", "error")]
    assert not [f for f in updates(c).findings if f.severity != "note"]


def test_nearly_overflowing(context: Any) -> None:
    c = context("batch", precision__compute="fp16", lora__method="none")
    fp16_forward_overflow(c.cfg, c.trainer)
    mlp = gated_mlp(c.cfg, c.trainer)
    largest = headroom(c).findings[0].numbers["largest_activation"]
    mlp.rescale(0.75 * FP16_MAX / largest)
    result = headroom(c)
    assert [f for f in ids(result) if f[1] != "note"] == [("precision.fp16_overflow", "warning")]
    assert result.findings[0].where[0].startswith(mlp.name)


def test_backward_overflow_is_searched_for(context: Any) -> None:
    c = context("batch", precision__compute="fp16", lora__method="none")
    fp16_backward_overflow(c.cfg, c.trainer)
    result = headroom(c)
    assert ids(result) == [("precision.fp16_scale_search", "note")]
    [found] = result.findings
    assert gated_mlp(c.cfg, c.trainer).name.rpartition(".")[0] in found.where[0]
    power = load(["precision=fp16", *found.overrides]).config.precision.loss_scale.initial_power
    assert (
        found.numbers["largest_gradient"] * 2.0**power
        <= FP16_MAX
        < found.numbers["largest_gradient"] * 2.0 ** (power + 1)
    )
    # The gradients that training will see are finite at the scale that was named, and not at twice that.
    from runner.preflight.batch.rows import collate, deterministic, first_rows, loss_and_gradients, untouched

    for scale, finite in ((2.0**power / 4, True), (2.0 ** (power + 4), False)):
        with untouched(c), deterministic(c.trainer.model):
            loss_and_gradients(c, [collate(c, first_rows(c, 4))], scale=scale)
            seen = all(bool(p.grad.isfinite().all()) for _, p in c.trainer.trainable() if p.grad is not None)
        assert seen == finite


def test_weight_beyond_fp16(context: Any) -> None:
    c = context("batch", precision__compute="fp16", lora__method="none")
    name = "model.layers.1.mlp.gate_proj.weight"
    with torch.no_grad():
        c.trainer.model.get_parameter(name)[3, 5] = 70000.0
        # Its input is 0 there: no activation tells of it.
        c.trainer.model.get_parameter("model.layers.1.post_attention_layernorm.weight")[5] = 0.0
    result = headroom(c)
    assert ids(result) == [("precision.fp16_overflow", "error")]
    assert result.findings[0].where == (name,)
    assert result.findings[0].numbers["largest_weight"] == 70000.0


def test_lost_updates(context: Any) -> None:
    c = context("batch", lora__method="none", precision__trainable_weights="bf16", optim__learning_rate=1e-5)
    before = state(c)
    result = updates(c)
    assert ids(result) == [("precision.lost_updates", "warning")]
    [found] = result.findings
    assert found.numbers["share"] > 0.5 and found.numbers["dtype"] == "bfloat16"
    assert found.where[0] in dict(c.trainer.model.named_parameters())
    assert load(list(found.overrides)).config.precision.trainable_weights == "fp32"
    assert state(c) == before
    assert not headroom(c).findings


def test_lost_updates_of_an_adapter(context: Any) -> None:
    c = context("batch", precision__trainable_weights="bf16", optim__learning_rate=1e-5)
    result = updates(c)
    assert ids(result) == [("precision.lost_updates", "warning")]
    assert all("lora_A" in name for name in result.findings[0].where)


def test_fp16_weights(context: Any) -> None:
    c = context("batch", lora__method="none", precision__trainable_weights="fp16", optim__name="adamw_torch")
    result = updates(c)
    assert ids(result) == [("precision.fp16_weights", "error")]
    [found] = result.findings
    assert found.numbers["broken"] > 0.01
    assert found.where[0] in dict(c.trainer.model.named_parameters())
    assert load(list(found.overrides)).config.precision.trainable_weights == "fp32"


def test_evaluation_row_that_overflows(context: Any) -> None:
    """Training fits float16; a token that only held-out rows have does not."""
    c = context("batch", precision__compute="fp16", lora__method="none", dataset__validation=validation())
    c.cfg.planted.layer = 0
    train = {t for row in c.data.train["input_ids"] for t in row}
    held = dict(zip(c.data.validation["row_id"], c.data.validation["input_ids"], strict=True))
    longest = max(c.data.validation, key=lambda row: row["length"])["row_id"]
    token = next(t for t in held[longest] if t not in train)
    bad = {row for row, tokens in held.items() if token in tokens}
    model = c.trainer.model
    mlp = gated_mlp(c.cfg, c.trainer)
    with torch.no_grad():
        model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
        # Its embedding points where up_proj answers loudest.
        loudest = mlp.up.weight[mlp.up.weight.norm(dim=1).argmax()]
        model.get_input_embeddings().weight[token] = 100 * loudest / loudest.norm()
    largest: list[float] = []
    handle = mlp.up.register_forward_hook(lambda m, args, out: largest.append(float(out.detach().abs().max())))
    with torch.no_grad():
        for rows in (c.data.train["input_ids"], [held[row] for row in bad]):
            for row in rows:
                model(input_ids=torch.tensor([row]))
    handle.remove()
    train_most, held_least = max(largest[: -len(bad)]), min(largest[-len(bad) :])
    assert held_least > 1.3 * train_most
    mlp.rescale(FP16_MAX / math.sqrt(train_most * held_least))
    before = state(c)
    result = headroom(c)
    # More than half of the range in training, beyond it in evaluation.
    assert [f for f in ids(result) if f[1] == "error"] == [("evaluation.not_finite", "error")]
    assert result.findings[-1].where[0] == longest or result.findings[0].where[0] == longest
    assert state(c) == before
    result = replica(c)
    assert ids(result) == [("evaluation.not_finite", "error")]
    assert set(result.findings[0].where) == bad
    assert load(list(result.findings[0].overrides)).config.precision.compute == "bf16"


def validation() -> Any:
    from runner.config.schema import Validation

    return Validation(fraction=0.3)


def test_halvings() -> None:
    assert halvings(1.0, 16) == 1  # 65536 > 65504
    assert halvings(0.5, 16) == 0
    assert halvings(60.0, 16) == 6  # 60 x 2^10 = 61440
    assert halvings(0.0, 16) == halvings(math.inf, 16) == halvings(math.nan, 16) == 0


@given(st.floats(1e-8, 6e4), st.integers(0, 24))
def test_halvings_fit(gradient: float, power: int) -> None:
    n = halvings(gradient, power)
    assert gradient * 2.0 ** (power - n) <= FP16_MAX * (1 + 1e-12)
    assert n == 0 or gradient * 2.0 ** (power - n + 1) > FP16_MAX * (1 - 1e-12)


def test_severities() -> None:
    assert forward_severity(300.0) is None
    assert forward_severity(40000.0) == "warning"
    assert forward_severity(65505.0) == forward_severity(math.nan) == forward_severity(math.inf) == "error"
    assert [f.id for f in scaled(most({"a": 1e6}), 16)] == ["precision.fp16_overflow"]
    assert [f.id for f in scaled(most({"a": 8.0}), 16)] == ["precision.fp16_scale_search"]
    assert scaled(most({"a": 0.01}), 16) == []


def test_judge_replica() -> None:
    fine = {"a": (2.0, 2.0)}
    assert judge_replica(Replica(2.0, 2.0, 1.0, fine)) is None
    assert judge_replica(Replica(math.nan, 2.0, math.nan, fine)) == ("train", "not_finite")
    assert judge_replica(Replica(2.0, 2.0, math.nan, fine)) == ("train", "not_finite")
    assert judge_replica(Replica(2.0, 2.0, 1.0, {"a": (math.nan, 2.0)})) == ("evaluation", "not_finite")
    assert judge_replica(Replica(2.0, 2.0, 1.0, {"a": (math.nan, math.nan)})) is None
    assert judge_replica(Replica(2.3, 2.0, 1.0, fine)) == ("train", "differs")
    assert judge_replica(Replica(2.0, 2.0, 0.3, fine)) == ("train", "differs")
    # Not finite in fp32 either: the number format is not the cause.
    assert judge_replica(Replica(math.nan, math.nan, math.nan, fine)) is None


def test_step_by_hand() -> None:
    """bfloat16 keeps 8 bits: 1 + 0.001 is 1, 1 + 0.01 is not; a gradient of 0 does not count."""
    weights = torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.bfloat16)
    gradients = torch.tensor([1.0, -10.0, 1.0, 0.0], dtype=torch.bfloat16)
    tried = try_step({"w": (weights, gradients)}, {"w": 4}, torch.optim.SGD, {"lr": 0.001})
    assert (tried.share, tried.broken, tried.worst) == (pytest.approx(1 / 3), 0.0, ("w",))
    assert weights.tolist() == [1.0, 1.0, 0.0, 1.0]
    # A tensor of which one element in 100 was sampled counts 100 times as much.
    small = torch.ones(1, dtype=torch.bfloat16)
    tried = try_step(
        {"kept": (0 * small, small), "lost": (small, small)}, {"kept": 100, "lost": 1}, torch.optim.SGD, {"lr": 0.001}
    )
    assert tried.share == pytest.approx(1 / 101)
    assert math.isnan(try_step({}, {}, torch.optim.SGD, {"lr": 1.0}).share)
    eps = {"lr": 1e-3, "eps": 1e-8, "foreach": False}
    half = torch.full((8,), 0.5, dtype=torch.float16)
    tried = try_step({"w": (half, half * 1e-3)}, {"w": 8}, torch.optim.AdamW, eps)
    assert tried.broken == 1.0
    assert try_step({"w": (half.float(), half.float() * 1e-3)}, {"w": 8}, torch.optim.AdamW, eps).broken == 0.0


def test_ranges() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
        model[2].weight.copy_(torch.tensor([[10.0, 1.0]]))
    with measured_ranges(model) as ranges:
        model(torch.tensor([[1.0, 2.0]])).sum().backward()
    assert read(ranges.forward) == {"2": 30.0, "0": 8.0, "1": 3.0}
    assert read(ranges.backward) == {"0": 10.0, "1": 10.0, "2": 10.0}
    assert not any(m._forward_hooks for m in model.modules())
    assert list(read({"a": torch.tensor(1.0), "b": torch.tensor(math.nan), "c": torch.tensor(5.0)})) == ["b", "c", "a"]


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), max_size=12))
def test_absmax(values: list[float]) -> None:
    assert float(absmax(torch.tensor(values))) == max((abs(v) for v in values), default=0.0)


def test_held_as() -> None:
    model = nn.Linear(3, 2).to(torch.bfloat16)
    weight = model.weight
    assert copies_of(model, torch.float32) == 8 * 4
    with held_as(model, torch.float32):
        out = model(torch.ones(1, 3))
        assert out.dtype == torch.float32
        out.sum().backward()
    assert model.weight is weight and model.weight.dtype == torch.bfloat16
    assert weight.grad is not None and weight.grad.tolist() == [[1.0] * 3] * 2


def test_cosine() -> None:
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])
    assert cosine([a, None], [b, None]) == pytest.approx(math.sqrt(0.5))
    assert cosine([a], [a]) == pytest.approx(1.0)
    assert math.isnan(cosine([a * math.nan], [b])) and math.isnan(cosine([a * 0], [b]))
