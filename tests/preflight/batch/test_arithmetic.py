"""The trainer's arithmetic against plain torch, and against itself on other layouts of the same rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runner.preflight.batch.arithmetic import (
    Pass,
    close,
    grows,
    judge_split,
    loss,
    padded_left,
    split,
    tolerance,
    wrong_loss,
)
from runner.preflight.batch.rows import collate, first_rows
from runner.training.classification import Classification
from runner.training.sft import Sft

BUILT: dict[str, Any] = {}


@pytest.fixture
def sft(context: Any) -> Any:
    if "sft" not in BUILT:
        BUILT["sft"] = context("batch", lora__method="none")
    return BUILT["sft"]


@pytest.fixture
def classifier(context: Any) -> Any:
    if "classification" not in BUILT:
        BUILT["classification"] = context("batch", task="classification")
    return BUILT["classification"]


class Undivided(Classification):
    """F1: the mean of each micro-batch, which nothing divides by their number."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        return super().compute_loss(model, inputs, return_outputs)


class UndividedSft(Sft):
    """F1 where rows weigh by their tokens."""

    loss_is_scaled_for_ga = True

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        return super().compute_loss(model, inputs, return_outputs)


class MeanOfMeans(UndividedSft):
    """F2: the mean of each micro-batch, divided by their number."""

    loss_is_scaled_for_ga = False


class Summed(Sft):
    """F5: the sum over tokens."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        return super().compute_loss(model, inputs, return_outputs, 1)


class WrongKernel(Sft):
    """D4: a value that is a little off."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        return 1.03 * super().compute_loss(model, inputs, return_outputs, num_items_in_batch)


class NoGradient(Sft):
    """D4: the right value, and half its gradient."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        value = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return 0.5 * value + 0.5 * value.detach()


class Planted:
    """The context with another class of trainer, for a while."""

    def __init__(self, c: Any, cls: type):
        self.c, self.cls, self.before = c, cls, type(c.trainer)

    def __enter__(self) -> Any:
        self.c.trainer.__class__ = self.cls
        return self.c

    def __exit__(self, *_: Any) -> None:
        self.c.trainer.__class__ = self.before


def ids(result: Any) -> list[tuple[str, str]]:
    return [(f.id, f.severity) for f in result.findings]


def state(c: Any) -> Any:
    """Whatever a check might leave behind."""
    model = c.trainer.model
    scaler = c.trainer.accelerator.scaler
    return (
        [p.detach().double().sum().item() for p in model.parameters()],
        [p.grad is None for p in model.parameters()],
        [p.dtype for p in model.parameters()],
        [m.training for m in model.modules()],
        [v for m in model.modules() for k, v in vars(m).items() if isinstance(v, float)],
        [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        torch.get_rng_state().tolist(),
        id(c.trainer.step_now),
        len(c.trainer.step_now.losses),
        None if scaler is None else scaler.get_scale(),
    )


def test_healthy_leaves_no_trace(sft: Any, classifier: Any) -> None:
    for c in (sft, classifier):
        before = state(c)
        for check in (loss, split):
            result = check(c)
            assert not result.findings and not result.skipped, result
            assert "loss" in result.summary or "plain" in result.summary
        assert state(c) == before


def test_weighted_classes_are_healthy(context: Any) -> None:
    c = context("batch", task="classification", task__class_weights={"neg": 3.0, "pos": 0.5})
    assert not loss(c).findings
    assert not split(c).findings


@pytest.mark.parametrize(
    ("cls", "found"),
    [(UndividedSft, "trainer.accumulation_not_divided"), (MeanOfMeans, "trainer.mean_of_means")],
)
def test_split_of_sft(sft: Any, cls: type, found: str) -> None:
    with Planted(sft, cls) as c:
        result = split(c)
        assert ids(result) == [(found, "warning")]
        numbers = result.findings[0].numbers
        assert numbers["rows"] == 4
        ratio = numbers["loss_singles"] / numbers["loss_whole"]
        assert (ratio > 2) == (cls is UndividedSft)
        # One micro-batch does not show it.
        assert not loss(c).findings


def test_undivided_classifier(classifier: Any) -> None:
    with Planted(classifier, Undivided) as c:
        result = split(c)
        assert ids(result) == [("trainer.accumulation_not_divided", "warning")]
        assert result.findings[0].where == ("batch.gradient_accumulation_steps",)
        numbers = result.findings[0].numbers
        assert numbers["loss_singles"] / numbers["loss_whole"] == pytest.approx(numbers["rows"], rel=1e-3)
        assert numbers["grad_norm_singles"] / numbers["grad_norm_whole"] == pytest.approx(numbers["rows"], rel=1e-2)
        assert not loss(c).findings


def test_summed_is_another_quantity(sft: Any) -> None:
    with Planted(sft, Summed) as c:
        result = loss(c)
        assert ids(result) == [("trainer.different_quantity", "warning")]
        numbers = result.findings[0].numbers
        assert numbers["loss"] / numbers["plain_loss"] == pytest.approx(numbers["supervised_tokens"], rel=1e-3)
        assert "number of supervised tokens" in result.findings[0].sentence
        assert not split(c).findings


@pytest.mark.parametrize("cls", [WrongKernel, NoGradient])
def test_fused_loss_that_disagrees(sft: Any, cls: type) -> None:
    with Planted(sft, cls) as c:
        assert ids(loss(c)) == [("kernels.fused_loss", "error")]
        assert not split(c).findings


def test_pad_token_of_a_classifier(classifier: Any) -> None:
    config = classifier.trainer.model.get_base_model().config
    right = config.pad_token_id
    config.pad_token_id = right + 7
    try:
        result = split(classifier)
    finally:
        config.pad_token_id = right
    assert ids(result) == [("labels.pad_token", "error")]
    assert result.findings[0].where == ("model.config.pad_token_id",)
    assert not split(classifier).findings


def test_other_objectives_are_left_alone(sft: Any) -> None:
    sft.trainer.args.label_smoothing_factor = 0.1
    try:
        assert loss(sft).skipped
    finally:
        sft.trainer.args.label_smoothing_factor = 0.0


def test_left_padding(sft: Any) -> None:
    batch = collate(sft, first_rows(sft, 4))
    left = padded_left(sft, batch)
    for row in range(4):
        n = int(batch["attention_mask"][row].sum())
        for key in ("input_ids", "labels"):
            assert left[key][row, -n:].tolist() == batch[key][row, :n].tolist()
        assert left["attention_mask"][row].tolist() == [0] * (left["attention_mask"].shape[1] - n) + [1] * n
        assert left["position_ids"][row, -n:].tolist() == list(range(n))
    assert (left["labels"] != -100).sum() == (batch["labels"] != -100).sum()


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["bf16", "fp16"])
def test_healthy_in_half(context: Any, compute: str) -> None:
    for task in ("sft", "classification"):
        c = context("batch", task=task, precision__compute=compute)
        assert tolerance(c) == 2e-2
        assert not loss(c).findings
        assert not split(c).findings


HEALTHY = {"whole": Pass(2.0, 1.0), "singles": Pass(2.0, 1.0), "left": Pass(2.0), "reversed": Pass(2.0)}


def test_judge_split() -> None:
    def judge(**changed: Pass) -> str | None:
        return judge_split({**HEALTHY, **changed}, {"singles": 4}, 1e-4)

    assert judge() is None
    assert judge(singles=Pass(8.0, 4.0)) == "trainer.accumulation_not_divided"
    assert judge(singles=Pass(2.0, 4.0)) == "trainer.accumulation_not_divided"
    assert judge(singles=Pass(2.2, 1.1)) == "trainer.mean_of_means"
    assert judge(left=Pass(2.1), singles=Pass(8.0, 4.0)) == "labels.pad_token"
    assert judge(reversed=Pass(2.1)) == "trainer.different_quantity"


def test_wrong_loss() -> None:
    counts = {"supervised tokens": 50, "micro-batches in a step": 2, "rows": 4}
    plain = Pass(2.0, 1.0)
    assert wrong_loss(Pass(2.0, 1.0), plain, 1e-4, counts, True) is None
    assert wrong_loss(Pass(8.0, 4.0), plain, 1e-4, counts, True) == (
        "trainer.different_quantity",
        "4 times as large, which is the number of rows",
    )
    assert wrong_loss(Pass(1.0, 0.5), plain, 1e-4, counts, True) == (
        "trainer.different_quantity",
        "1/2 of it, and 2 is the number of micro-batches in a step",
    )
    assert wrong_loss(Pass(2.1, 1.05), plain, 1e-4, counts, True) == ("kernels.fused_loss", "1.05 times the plain one")
    assert wrong_loss(Pass(2.1, 1.05), plain, 1e-4, counts, False)[0] == "trainer.different_quantity"  # type: ignore[index]
    assert wrong_loss(Pass(2.0, 0.0), plain, 1e-4, counts, False)[0] == "kernels.fused_loss"  # type: ignore[index]


@given(st.floats(0.1, 100), st.integers(2, 64))
def test_growth(whole: float, pieces: int) -> None:
    assert grows(whole, whole * pieces, pieces)
    assert not grows(whole, whole, pieces)
    assert not grows(whole, whole / pieces, pieces)


@given(st.floats(1e-6, 1e6), st.floats(0, 0.5))
def test_close_is_symmetric(a: float, share: float) -> None:
    assert close(a, a, 0.0)
    assert close(a, a * (1 - share / 2), share) and close(a * (1 - share / 2), a, share)
    assert not close(a, math.nan, share) and not close(a, 2.1 * a, share)
