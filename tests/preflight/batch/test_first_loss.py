"""The first loss beside chance."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runner.preflight.batch.arithmetic import chosen
from runner.preflight.batch.first_loss import accumulated, first_loss, level, measured, multiple, row_mean
from runner.training.classification import Classification


class Undivided(Classification):
    """F1: the mean of each micro-batch, which nothing divides by their number."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        return super().compute_loss(model, inputs, return_outputs)


def test_random_model_is_at_chance(context: Any) -> None:
    c = context("batch")
    before = torch.get_rng_state()
    result = first_loss(c)
    assert torch.equal(before, torch.get_rng_state())
    assert all(p.grad is None for p in c.trainer.model.parameters())
    [found] = result.findings
    assert (found.id, found.severity, found.where) == ("weights.keys_do_not_match", "warning", ("model.path",))
    rows = c.trainer.model.get_output_embeddings().weight.shape[0]
    assert found.numbers["choices"] == rows
    assert found.numbers["loss"] == pytest.approx(math.log(rows), rel=0.05)
    # What an earlier check has measured is not measured again: half of that loss is not at chance.
    c.facts["first_loss"] = {"loss": math.log(rows) / 2, "rows": 1, "row_ids": ["a"], "row_losses": [1.0]}
    assert not first_loss(c).findings
    # Far worse than guessing.
    c.facts["first_loss"] = {"loss": 418.0, "rows": 1, "row_ids": ["a"], "row_losses": [418.0]}
    assert [(f.id, f.severity) for f in first_loss(c).findings] == [("weights.damaged", "warning")]


def test_classifier(context: Any) -> None:
    c = context("batch", task="classification", batch__gradient_accumulation_steps=3)
    modes = [m.training for m in c.trainer.model.modules()]
    healthy = first_loss(c)
    assert not healthy.findings and "ln 3" in healthy.summary
    assert measured(c) == pytest.approx(math.log(3), rel=0.1)
    c.trainer.__class__ = Undivided
    [found] = first_loss(c).findings
    assert (found.id, found.severity) == ("trainer.accumulation_not_divided", "warning")
    assert found.numbers["factor"] == 3
    assert found.numbers["ratio"] == pytest.approx(3, rel=0.1)
    assert [m.training for m in c.trainer.model.modules()] == modes


def test_a_poor_head_is_no_accumulation(context: Any) -> None:
    """Its loss is 3 x ln 3 with 3 micro-batches for another reason: each row by itself has it too."""
    c = context("batch", task="classification", batch__gradient_accumulation_steps=3)
    weight = c.trainer.model.get_base_model().score.modules_to_save["default"].weight
    start, rows = weight.detach().clone(), chosen(c, 3)
    low, high = 1.0, 1e4
    for _ in range(16):
        factor = math.sqrt(low * high)
        with torch.no_grad():
            weight.copy_(start * factor)
        low, high = (factor, high) if accumulated(c, rows) < 3 * math.log(3) else (low, factor)
    assert accumulated(c, rows) == pytest.approx(3 * math.log(3), rel=0.05)
    assert row_mean(c, rows) == pytest.approx(accumulated(c, rows), rel=1e-4)
    assert not first_loss(c).findings


@pytest.mark.slow
def test_shipped_model_is_no_guesser() -> None:
    from pathlib import Path

    from runner.config.compose import load
    from runner.preflight.examine import build
    from runner.preflight.flow import Preflight

    cfg = load([]).config
    pre = Preflight(cfg, "deep", Path(cfg.output_dir), checks=())
    build(cfg, pre, "batch")
    assert not first_loss(pre.context).findings


def test_level() -> None:
    assert level(math.log(1000), 1000, False) == "chance"
    assert level(0.91 * math.log(1000), 1000, False) == "chance"
    assert level(0.7 * math.log(1000), 1000, False) is None
    assert level(2 * math.log(1000), 1000, False) == "junk"
    assert level(math.log(3), 3, True) is None
    assert level(4 * math.log(3), 3, True) is None
    assert level(418.0, 3, True) == "junk"
    assert level(math.nan, 3, True) is None


def test_processes_added_up() -> None:
    assert multiple(2 * math.log(3), math.log(3), {"micro-batches": 4, "processes": 2}) == ("processes", 2)
    assert multiple(4.2 * math.log(3), math.log(3), {"micro-batches": 4, "processes": 2}) == ("micro-batches", 4)
    assert multiple(math.log(3), math.log(3), {"micro-batches": 1, "processes": 1}) is None
    assert multiple(math.inf, math.log(3), {"micro-batches": 4}) is None


@given(st.integers(2, 64), st.floats(0.5, 2.0))
def test_multiples_scale(n: int, chance: float) -> None:
    assert multiple(n * chance, chance, {"x": n}) == ("x", n)
    assert multiple(chance, chance, {"x": n}) is None
