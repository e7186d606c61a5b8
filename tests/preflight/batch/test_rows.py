"""Rows of the first step through the trainer: the right rows, the right numbers, and no trace."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from runner.data.sampler import KINDS, epoch_order
from runner.preflight.batch.rows import collate, deterministic, first_rows, loss_and_gradients, micro_batches, untouched

Make = Callable[..., Any]


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS[1:])])
def test_first_rows_are_those_of_epoch_0(context: Make, kind: str) -> None:
    c = context("batch", batch__sampler=kind)
    names = list(first_rows(c, 5)["row_id"])
    order = list(c.trainer._get_train_sampler())[:5]
    assert names == [c.data.train["row_id"][i] for i in order]
    train = c.data.train
    assert (
        order == epoch_order(kind, c.cfg.seed, 0, list(train["source"]), list(train["length"]), c.plan.global_batch)[:5]
    )
    assert len(first_rows(c, 10**6)) == len(train)


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_batches_are_those_of_the_data_loader(context: Make, task: str) -> None:
    c = context("batch", task=task)
    size = c.plan.per_device
    ours = micro_batches(c, first_rows(c, 2 * size), size)
    theirs = iter(c.trainer.get_train_dataloader())
    for batch in ours:
        wanted = next(theirs)
        assert set(batch) == {k for k in wanted if k not in ("row_id", "source", "length")}
        assert all(torch.equal(batch[k], wanted[k]) for k in batch)
    assert [len(m["input_ids"]) for m in micro_batches(c, first_rows(c, 5), 2)] == [2, 2, 1]


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_a_step_has_the_same_loss_however_it_is_split(context: Make, task: str) -> None:
    c = context("batch", task=task, lora__method="none")
    rows = first_rows(c, 8)
    losses, norms = [], []
    for size in (8, 4, 1):
        with untouched(c), deterministic(c.trainer.model):
            loss, nothing = loss_and_gradients(c, micro_batches(c, rows, size))
            assert nothing is None
            losses.append(loss)
            norms.append(sum(float(p.grad.double().square().sum()) for _, p in c.trainer.trainable()))
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-4)


def test_the_loss_scale_is_taken_out_of_the_gradient(context: Make) -> None:
    c = context("batch", lora__method="none", precision__compute="fp16", precision__frozen_weights="fp32")
    micros = micro_batches(c, first_rows(c, 2), 2)
    norms = []
    for scale in (None, 2.0**12, 1.0):
        with untouched(c), deterministic(c.trainer.model):
            loss_and_gradients(c, micros, scale=scale)
            norms.append(sum(float(p.grad.double().square().sum()) for _, p in c.trainer.trainable()))
    assert norms == pytest.approx([norms[0]] * 3, rel=0.05)
    assert c.trainer.accelerator.scaler.get_scale() == 2.0**c.cfg.precision.loss_scale.initial_power


def test_mixed_precision_is_that_of_training(context: Make) -> None:
    """accelerate casts inside `model.forward` only once it has prepared the model."""
    seen = []
    for compute in ("fp32", "bf16"):
        c = context("batch", lora__method="none", precision__compute=compute, out=compute)
        layer = c.trainer.model.model.layers[0].mlp.down_proj
        hook = layer.register_forward_hook(lambda m, a, out: seen.append(out.dtype))
        with untouched(c):
            loss_and_gradients(c, micro_batches(c, first_rows(c, 2), 2))
        hook.remove()
    assert seen == [torch.float32, torch.bfloat16]


def test_deterministic_drops_nothing_and_puts_the_rates_back(context: Make) -> None:
    c = context("batch", lora__lora_dropout=0.3)
    model = c.trainer.model
    micros = micro_batches(c, first_rows(c, 2), 2)

    def losses() -> list[float]:
        with untouched(c):
            return [loss_and_gradients(c, micros)[0] for _ in range(2)]

    before = losses()
    assert before[0] != before[1]
    rates = [m.attention_dropout for m in model.modules() if hasattr(m, "attention_dropout")]
    assert set(rates) == {0.1}
    with deterministic(model):
        a, b = losses()
        assert a == b
    assert [m.attention_dropout for m in model.modules() if hasattr(m, "attention_dropout")] == rates
    assert {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)} == {0.3}
    assert losses() == before


def state(c: Any) -> dict[str, Any]:
    """Everything of the trainer that a pass could move."""
    trainer = c.trainer
    return {
        "step": trainer.step_now,
        "recorded": (list(trainer.step_now.losses), list(trainer.step_now.micros), list(trainer.step_now.batches)),
        "gradients": [p.grad for p in trainer.model.parameters()],
        "flags": [m.training for m in trainer.model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in trainer.model.modules()],
        "random": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()),
        "metrics": copy.deepcopy(trainer.metrics_so_far()),
        "outputs": trainer._outputs,
        "windows": getattr(trainer, "current_gradient_accumulation_steps", None),
        "recording": trainer.recording,
        "names": sorted(vars(trainer)),
        "weights": [p.detach().clone() for p in trainer.model.parameters()],
    }


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    weights = all(torch.equal(x, y) for x, y in zip(a.pop("weights"), b.pop("weights"), strict=True))
    gradients = all(x is y for x, y in zip(a.pop("gradients"), b.pop("gradients"), strict=True))
    assert a == b
    return weights and gradients


@pytest.mark.parametrize("task", ["sft", pytest.param("classification", marks=pytest.mark.slow)])
def test_no_trace(context: Make, task: str) -> None:
    """All checks of half the stage, by the trainer's own account."""
    from runner.preflight.batch.attention import attention
    from runner.preflight.batch.matmul import matmul
    from runner.preflight.batch.round_trip import round_trip
    from runner.preflight.batch.trainability import gradients, optimizer, parameters

    c = context("batch", task=task)
    for check in (parameters, optimizer, matmul, gradients, attention, round_trip):
        before, attn = state(c), c.start.config._attn_implementation
        check(c)
        assert same(before, state(c)), check.__name__
        assert c.start.config._attn_implementation == attn
    assert not (c.folder / "preflight").exists()


def test_an_error_inside_leaves_no_trace_either(context: Make) -> None:
    c = context("batch")
    before = state(c)
    with pytest.raises(RuntimeError, match="on purpose"), untouched(c):
        c.trainer.model.eval()
        loss_and_gradients(c, micro_batches(c, first_rows(c, 2), 2))
        raise RuntimeError("on purpose")
    assert same(before, state(c))


@pytest.mark.parametrize("task", ["sft", pytest.param("classification", marks=pytest.mark.slow)])
def test_training_after_the_checks_is_bit_identical(context: Make, task: str) -> None:
    """Dropout on: one random number more or less would show."""
    from runner.preflight.batch.attention import attention
    from runner.preflight.batch.matmul import matmul
    from runner.preflight.batch.round_trip import round_trip
    from runner.preflight.batch.trainability import gradients, optimizer, parameters

    losses = []
    for checks in ((), (parameters, optimizer, matmul, gradients, attention, round_trip)):
        rows: list[Any] = []
        c = context("batch", task=task, lora__lora_dropout=0.1, schedule__max_steps=4, out=f"run{len(checks)}")
        c.trainer.instruments.on_row = rows.append
        for check in checks:
            check(c)
        c.trainer.train()
        losses.append([(r["loss"], r["grad_norm"], r["update_rms"]) for r in rows])
    assert len(losses[0]) == 4 and losses[0] == losses[1]


def test_collate_leaves_the_identity_out(context: Make) -> None:
    c = context("batch")
    assert not {"row_id", "source", "length"} & set(collate(c, first_rows(c, 2)))
