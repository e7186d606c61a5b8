"""What trains, what the optimizer holds and what a backward pass reaches, each with its faults planted."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from runner.preflight.batch import reach, trainability
from runner.preflight.batch.nonfinite import Broken, cause_of, overrides_for
from runner.preflight.batch.trainability import by_kind, compare, gradients, optimizer, parameters
from runner.preflight.finding import Result

Make = Callable[..., Any]


def ids(result: Result) -> list[tuple[str, str]]:
    return [(f.id, f.severity) for f in result.findings]


def rebuild(c: Any, model: Any) -> Any:
    """The context with a trainer around another model."""
    from runner.training.build import build_trainer

    c.trainer = build_trainer(
        c.cfg, c.plan, c.formats, 1e-3, model, c.tokenizer, c.data, c.folder, lambda row: None, []
    )
    return c


def quiet_checks(c: Any, but: str = "") -> None:
    """The other checks of this file have nothing to say."""
    for check in (parameters, optimizer, gradients):
        if check.__name__ != but:
            assert not check(c).findings, check.__name__


@pytest.mark.parametrize("task", ["sft", "classification"])
@pytest.mark.parametrize("method", ["lora", "none"])
def test_healthy(context: Make, task: str, method: str) -> None:
    c = context("batch", task=task, lora__method=method)
    for check in (parameters, optimizer, gradients):
        result = check(c)
        assert not result.findings and not result.skipped
    assert "of" in parameters(c).summary
    first = c.facts["first_loss"]
    assert first["rows"] == c.plan.per_device == len(first["row_losses"]) == len(set(first["row_ids"]))
    assert min(first["row_losses"]) <= first["loss"] <= max(first["row_losses"])
    assert c.facts["seconds"]["seconds"] > 0 and c.facts["seconds"]["tokens"] >= first["rows"]


@pytest.mark.slow
def test_dora_and_accumulation_are_healthy(context: Make) -> None:
    c = context("batch", lora__use_dora=True, batch__gradient_accumulation_steps=3, model__gradient_checkpointing=True)
    quiet_checks(c)


def test_first_loss_is_the_token_mean_of_the_first_planned_rows(context: Make) -> None:
    """Against a plain forward pass and torch's cross-entropy, row by row without padding."""
    from runner.preflight.batch.rows import first_rows

    c = context("batch", lora__method="none")
    gradients(c)
    total, tokens = 0.0, 0
    c.trainer.model.eval()
    for row in first_rows(c, c.plan.per_device):
        with torch.no_grad():
            logits = c.trainer.model(input_ids=torch.tensor([row["input_ids"]])).logits[0, :-1].double()
        labels = torch.tensor(row["labels"][1:])
        total += float(nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100))
        tokens += int((labels != -100).sum())
    assert c.facts["first_loss"]["loss"] == pytest.approx(total / tokens, rel=1e-5)


def test_frozen_adapter(context: Make, tmp_path: Path) -> None:
    """B1: PeftModel.from_pretrained without is_trainable=True."""
    from peft import PeftModel

    first = context("batch")
    first.trainer.save_model(str(tmp_path / "adapter"))
    c = context("weights")
    c = rebuild(c, PeftModel.from_pretrained(c.start, str(tmp_path / "adapter")))
    result = parameters(c)
    assert ids(result) == [("trainability.nothing_trains", "error")]
    assert all(".lora_" in name for name in result.findings[0].where) and result.findings[0].where
    assert result.findings[0].numbers["trained"] == 0
    assert ids(optimizer(c)) == [("trainability.nothing_trains", "error")]
    assert gradients(c).skipped


def test_frozen_head(context: Make) -> None:
    """B3: a LoRA config without task type leaves the head of a classifier random and frozen."""
    from peft import LoraConfig, get_peft_model

    c = context("weights", task="classification")
    c = rebuild(c, get_peft_model(c.start, LoraConfig(r=4, target_modules=["q_proj", "v_proj"])))
    result = parameters(c)
    assert ids(result) == [("trainability.head_frozen", "error")]
    assert result.findings[0].where == ("score.weight",)
    assert result.findings[0].numbers["std"] > 0
    quiet_checks(c, but="parameters")


def test_dead_frozen_head(context: Make) -> None:
    """B3 at its worst: zero and frozen, so the loss is ln K and every gradient 0."""
    from peft import LoraConfig, get_peft_model

    c = context("weights", task="classification")
    c.start.score.weight.data.zero_()
    c = rebuild(c, get_peft_model(c.start, LoraConfig(r=4, target_modules=["q_proj", "v_proj"])))
    for check in (parameters, gradients):
        result = check(c)
        assert ids(result) == [("trainability.head_frozen", "error")]
        assert result.findings[0].where == ("score.weight",) and result.findings[0].numbers["std"] == 0
    assert c.facts["first_loss"]["loss"] == pytest.approx(math.log(3), abs=1e-6)


@pytest.mark.slow
def test_zero_head_that_trains_is_no_fault(context: Make) -> None:
    c = context("weights", task="classification", lora__method="none")
    c.start.score.weight.data.zero_()
    rebuild(c, c.start)
    quiet_checks(c)
    assert "all zero" in gradients(c).summary


def test_head_that_trains_and_is_not_saved(context: Make) -> None:
    """A4: unfrozen by hand, and not in modules_to_save."""
    from peft import LoraConfig, get_peft_model

    c = context("weights", task="classification")
    model: Any = get_peft_model(c.start, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    model.get_base_model().score.weight.requires_grad_(True)
    c = rebuild(c, model)
    result = parameters(c)
    assert ids(result) == [("weights.head_not_restored", "error")]
    assert result.findings[0].where == ("score.weight",)
    assert result.findings[0].overrides == ("lora.modules_to_save=[score]",)
    quiet_checks(c, but="parameters")


def test_overrides_compose() -> None:
    from runner.config.compose import load

    load(
        [
            "lora=default",
            "lora.modules_to_save=[score]",
            "lora.adapter=null",
            "model.gradient_checkpointing=false",
            "model.attn_implementation=eager",
            "precision=bf16",
        ]
    )


@pytest.mark.parametrize("extra", [True, False])
def test_optimizer_of_another_model(context: Make, extra: bool) -> None:
    """B4: built before the model was replaced; and one that lacks a single tensor."""
    c = context("batch", lora__method="none")
    named = dict(c.trainer.model.named_parameters())
    if extra:
        held = [nn.Parameter(p.detach().clone()) for p in named.values()]
    else:
        held = [p for name, p in named.items() if name != "model.norm.weight"]
    stale = torch.optim.AdamW(held, lr=1e-3)
    c.trainer.optimizer = stale
    result = optimizer(c)
    assert ids(result) == [("trainability.stale_optimizer", "error")]
    found = result.findings[0]
    assert c.trainer.optimizer is stale
    if extra:
        assert found.numbers["missing"] == found.numbers["foreign"] == len(named)
    else:
        assert found.where == ("model.norm.weight",) and found.numbers["foreign"] == 0
    quiet_checks(c, but="optimizer")


def test_optimizer_leaves_none_behind(context: Make) -> None:
    c = context("batch")
    optimizer(c)
    assert c.trainer.optimizer is None


@given(st.lists(st.integers(0, 9), unique=True), st.lists(st.integers(0, 12)))
def test_compare(trains: list[int], held: list[int]) -> None:
    missing, foreign, twice = compare(trains, held)
    assert set(missing) == set(trains) - set(held)
    assert set(foreign) == set(held) - set(trains)
    assert {i for i in held if held.count(i) > 1} == set(twice)
    assert all(len(set(x)) == len(x) for x in (missing, foreign, twice))


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_checkpointing_without_inputs(context: Make, task: str) -> None:
    """B2: reentrant checkpointing of blocks whose inputs come from a frozen embedding."""
    c = context("batch", task=task)
    base = c.trainer.model.get_base_model()
    base.activation_checkpointing_enable({"use_reentrant": True})
    base.disable_input_require_grads()
    result = gradients(c)
    assert ids(result) == [("trainability.checkpointing_without_inputs", "error")]
    found = result.findings[0]
    assert found.where and all(name.startswith("model.layers.") and "lora_" in name for name in found.where)
    assert found.overrides == ("model.gradient_checkpointing=false",)
    assert ("first_loss" in c.facts) == (task == "classification")
    quiet_checks(c, but="gradients")


def test_loss_that_depends_on_nothing_that_trains(context: Make) -> None:
    c = context("batch", lora__method="none")
    c.trainer.model.requires_grad_(False)
    c.trainer.model.register_parameter("unused", nn.Parameter(torch.zeros(3)))
    result = gradients(c)
    assert ids(result) == [("trainability.nothing_trains", "error")]
    assert result.findings[0].where == ("unused",)


def test_parameter_outside_the_graph(context: Make) -> None:
    c = context("batch", lora__method="none")
    c.trainer.model.register_parameter("unused", nn.Parameter(torch.zeros(3)))
    result = gradients(c)
    assert ids(result) == [("trainability.nothing_trains", "warning")]
    assert result.findings[0].where == ("unused",)


def test_dead_backbone(context: Make) -> None:
    c = context("weights", task="classification", lora__method="none")
    for p in c.start.model.parameters():
        p.data.zero_()
    rebuild(c, c.start)
    result = gradients(c)
    assert ids(result) == [("weights.dead_backbone", "error")]
    assert result.findings[0].where[0] == "model.embed_tokens.weight"
    assert "score.weight" not in result.findings[0].where


def test_nan_in_an_adapter(context: Make) -> None:
    """A damaged adapter: the weights' stage looked before it was put in."""
    c = context("batch")
    name, p = next((n, p) for n, p in c.trainer.model.named_parameters() if "layers.1.mlp.down_proj.lora_B" in n)
    p.data[2, 1] = math.nan
    result = gradients(c)
    assert ids(result) == [("weights.damaged", "error")]
    assert result.findings[0].where == (name.removeprefix("base_model.model."),)
    assert math.isnan(result.findings[0].numbers["loss"])


class Odd(nn.Module):
    """NaN of finite numbers, in the output or in the gradient."""

    def __init__(self, inner: nn.Module, backward: bool):
        super().__init__()
        self.inner, self.backward_only = inner, backward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y + 0 * (y.detach() - y).abs().sqrt() if self.backward_only else y + (y - y) / (y - y)


@pytest.mark.parametrize("backward", [False, True])
def test_nan_from_a_module(context: Make, backward: bool) -> None:
    """Finite weights: the first module is named, and no cause that the numbers do not speak for."""
    c = context("batch", lora__method="none")
    layer = c.trainer.model.model.layers[1]
    layer.mlp.act_fn = Odd(layer.mlp.act_fn, backward)
    result = gradients(c)
    assert ids(result) == [("unknown.several", "error")]
    assert "layers.1.mlp" in result.findings[0].where[0]
    if backward:
        assert math.isfinite(result.findings[0].numbers["loss"])


def test_fp16_overflow_is_named(context: Make) -> None:
    """C2: activations beyond 65504 in the forward pass, fine in fp32."""
    c = context("weights", precision__compute="fp16", precision__frozen_weights="fp32", lora__method="none")
    mlp = c.start.model.layers[0].mlp
    mlp.up_proj.weight.data.mul_(3e5)
    rebuild(c, c.start)
    result = gradients(c)
    assert ids(result) == [("precision.fp16_overflow", "error")]
    assert "layers.0.mlp" in result.findings[0].where[0]
    assert result.findings[0].overrides == ("precision=bf16",)


@pytest.mark.slow
def test_a_loss_scale_that_is_too_high_is_no_fault(context: Make) -> None:
    """The scaler backs off by itself."""
    c = context("weights", precision__compute="fp16", precision__frozen_weights="fp32", lora__method="none")
    c.cfg.precision.loss_scale.initial_power = 40
    rebuild(c, c.start)
    before = c.trainer.accelerator.scaler.get_scale()
    assert before == 2.0**40
    assert not gradients(c).findings
    assert c.trainer.accelerator.scaler.get_scale() == before


BAD = {"module": "m", "class": "Linear", "dtype": "float32", "parameter": None, "seen_by": None}


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (Broken({"name": "w"}, BAD, None), "weights.damaged"),
        (Broken(None, None, None), "unknown.several"),
        (Broken(None, {**BAD, "dtype": "float16"}, None, 1.0), "precision.fp16_overflow"),
        (Broken(None, BAD, None, 10.0), "kernels.matmul_unwritten"),
        (Broken(None, BAD, None, 1e39), "weights.damaged"),
        (Broken(None, {**BAD, "class": "Qwen2Attention"}, None), "kernels.attention_backend"),
        (Broken(None, {**BAD, "class": "Qwen2Attention"}, None, masked=(1,)), "kernels.masked_rows"),
        (Broken(None, None, {**BAD, "class": "Qwen2SdpaAttention"}), "kernels.attention_backend"),
        (Broken(None, None, {**BAD, "class": "Linear"}), "unknown.several"),
        (Broken(None, {**BAD, "class": "Qwen2RMSNorm"}, None), "unknown.several"),
    ],
)
def test_cause_of(broken: Broken, cause: str) -> None:
    assert cause_of(broken) == cause


def test_names() -> None:
    assert by_kind({"a.q_proj.lora_A.default.weight": 3, "b.q_proj.weight": 4, "score.weight": 9}) == {
        "score": 9,
        "q_proj": 7,
    }
    assert reach.excused(["x.lora_A.d.weight", "y.lora_A.d.weight", "z.weight"], ["x.lora_B.d.weight", "z.weight"]) == [
        "x.lora_A.d.weight"
    ]


def test_deepspeed_is_left_out(context: Make) -> None:
    c = context("batch")
    c.trainer.is_deepspeed_enabled = True
    assert optimizer(c).skipped and gradients(c).skipped
    assert overrides_for("unknown.several", c) == ()
    assert trainability.HOOKED
