"""The run's number format beside fp32, on the same rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runner.preflight.batch.ranges import copies_of, held_as
from runner.preflight.batch.rows import (
    collate,
    deterministic,
    drop_gradients,
    first_rows,
    loss_and_gradients,
    prepared,
    untouched,
)
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, Severity, found, not_needed, ok, places

ROWS = 8
REPLICA_BYTES = 8 * 2**30
"""Most memory that fp32 copies of the weights may take."""

LOSS_OFF = 0.05
COSINE = 0.9
"""Half precision that does its work differs by far less: 0.0003 and 0.999 on the shipped model in bf16."""

VALIDATION_ROWS = 8


@dataclass(frozen=True)
class Replica:
    """The same rows in the run's number format and in fp32."""

    half: float
    full: float
    cosine: float
    """Between the two gradients; NaN where one is not finite."""

    evaluated: Mapping[str, tuple[float, float]]
    """row_id -> loss in evaluation, in the run's format and in fp32."""


def judge_replica(r: Replica) -> tuple[str, str] | None:
    """(train or evaluation, not_finite or differs) for the gravest difference from fp32; None where all is well."""
    if math.isfinite(r.full) and not (math.isfinite(r.half) and math.isfinite(r.cosine)):
        return "train", "not_finite"
    if any(math.isfinite(full) and not math.isfinite(half) for half, full in r.evaluated.values()):
        return "evaluation", "not_finite"
    if math.isfinite(r.full) and (abs(r.half - r.full) > LOSS_OFF * abs(r.full) or r.cosine < COSINE):
        return "train", "differs"
    return None


def replica(c: Context) -> Result:
    """C2, C6: loss, gradient and evaluation in the run's number format beside the same in fp32."""
    trainer: Any = c.trainer
    if c.formats.compute == "fp32" and c.formats.trainable == c.formats.frozen == "fp32":
        return not_needed("everything is in fp32")
    size = copies_of(trainer.model, torch.float32)
    if size > REPLICA_BYTES:
        return not_needed(f"weights in fp32 would take {size / 2**30:.0f} GiB more")
    r = measure_replica(c)
    summary = f"loss {r.half:.5g}, in fp32 {r.full:.5g}; gradients' cosine {r.cosine:.3f}"
    verdict = judge_replica(r)
    if verdict is None:
        return ok(f"{summary}; {len(r.evaluated)} rows evaluate to finite losses")
    numbers: dict[str, Any] = {"loss": r.half, "fp32_loss": r.full, "cosine": r.cosine}
    which, what = verdict
    name = c.formats.compute
    mend = ("precision=bf16",) if name == "fp16" else ("precision=fp32",)
    if which == "evaluation":
        bad = [row for row, (half, full) in r.evaluated.items() if math.isfinite(full) and not math.isfinite(half)]
        said = f"{len(bad)} of {len(r.evaluated)} rows evaluate to a loss that is not finite in "
        said += f"{name}, and to a finite one in fp32: {places(bad)}"
        return found(
            summary,
            Finding("evaluation.not_finite", "error", said, tuple(bad)[:8], {**numbers, "rows": len(bad)}, mend),
        )
    cause = "precision.fp16_overflow" if name == "fp16" else "kernels.matmul_unwritten"
    said = f"one batch gives loss {r.half:.5g} in {name} and {r.full:.5g} in fp32, gradients with cosine {r.cosine:.3f}"
    severity: Severity = "error" if what == "not_finite" else "warning"
    return found(summary, Finding(cause, severity, said, ("precision.compute",), numbers, mend))


def measure_replica(c: Context) -> Replica:
    """The numbers `judge_replica` judges: a micro-batch forward and backward, and rows in evaluation."""
    trainer: Any = c.trainer
    model: Any = trainer.model
    with untouched(c), deterministic(model):
        batch = collate(c, first_rows(c, min(c.plan.per_device, 4)))
        half, ours = half_pass(c, batch)
        drop_gradients(list(model.parameters()))
        with held_as(model, torch.float32):
            model.train()
            loss = trainer.compute_loss(model, dict(batch), num_items_in_batch=count(c, batch))
            loss.backward()
        full = float(loss.detach())
        theirs = [p.grad for _, p in trainer.trainable()]
        similar = cosine(ours, theirs)
        drop_gradients(list(model.parameters()))
        del ours, theirs
        evaluated = {str(row[0]["row_id"]): evaluated_losses(c, collate(c, row)) for row in rows_to_evaluate(c)}
    return Replica(half, full, similar, evaluated)


def half_pass(c: Context, batch: Mapping[str, Any]) -> tuple[float, list[Tensor | None]]:
    """Loss and gradients as the run computes them; under fp16 at the first loss scale at which they are finite."""
    trainer: Any = c.trainer
    powers = [0]
    if trainer.accelerator.scaler is not None:
        powers = list(range(c.cfg.precision.loss_scale.initial_power, -1, -4))
    value, gradients = math.nan, list[Tensor | None]()
    for power in powers:
        drop_gradients(list(trainer.model.parameters()))
        value = loss_and_gradients(c, [dict(batch)], scale=2.0**power)[0]
        gradients = [p.grad for _, p in trainer.trainable()]
        finite = all(bool(g.isfinite().all()) for g in gradients if g is not None)
        if finite or not math.isfinite(value):
            break
    return value, gradients


def count(c: Context, batch: Mapping[str, Any]) -> Any:
    """The trainer's divisor where this batch is the whole step."""
    trainer: Any = c.trainer
    return trainer._get_num_items_in_batch([batch], trainer.args.device)


def cosine(a: list[Tensor | None], b: list[Tensor | None]) -> float:
    """Of two gradients given parameter by parameter, in float64 sums; NaN where one is 0 or not finite."""
    dot = first = second = 0.0
    for x, y in zip(a, b, strict=True):
        if x is not None and y is not None:
            x, y = x.float(), y.float()
            dot += float((x * y).sum())
            first += float(x.square().sum())
            second += float(y.square().sum())
    size = math.sqrt(first * second)
    return dot / size if 0 < size < math.inf else math.nan


def rows_to_evaluate(c: Context) -> list[Any]:
    """The longest validation rows, each by itself; of the training rows where none is held out."""
    data = c.data.validation if c.data.validation is not None and len(c.data.validation) else first_rows(c, ROWS)
    lengths = list(data["length"])
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])[:VALIDATION_ROWS]
    return [data.select([i]) for i in order]


@torch.no_grad()
def evaluated_losses(c: Context, batch: Mapping[str, Any]) -> tuple[float, float]:
    """Loss as the run's evaluation computes it, and in fp32 where that is not finite (else the same number)."""
    trainer: Any = c.trainer
    trainer.model.eval()
    items = count(c, batch)
    half = float(trainer.compute_loss(prepared(c), dict(batch), num_items_in_batch=items))
    if math.isfinite(half):
        return half, half
    with held_as(trainer.model, torch.float32):
        return half, float(trainer.compute_loss(trainer.model, dict(batch), num_items_in_batch=items))
