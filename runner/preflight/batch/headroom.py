"""Whether the numbers of this model fit the number format it is trained in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from runner.preflight.batch.ranges import absmax, measured_ranges, read
from runner.preflight.batch.replica import replica
from runner.preflight.batch.rows import collate, deterministic, first_rows, untouched
from runner.preflight.batch.updates import updates
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, ok, places
from runner.training.attribution import clean_name

__all__ = ["headroom", "replica", "updates"]

FP16_MAX = 65504.0
NEAR = FP16_MAX / 2
"""From here on other rows may well overflow: activations differ between rows by more than 2."""

ROWS = 8


@dataclass(frozen=True)
class Most:
    """The largest number of a kind, and the places where it is largest."""

    value: float
    places: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.value:.3g} at {self.places[0]}" if self.places else "none"


def most(ranked: Mapping[str, float], above: float = NEAR) -> Most:
    """The first of `ranked` (largest first) and whatever else is above a bound."""
    names = list(ranked)
    beyond = [n for n in names if not ranked[n] <= above]
    return Most(ranked[names[0]] if names else 0.0, tuple(beyond or names[:1]))


def forward_severity(value: float) -> str | None:
    """error beyond float16's range (or not finite), warning from half of it on, None below."""
    if not value <= FP16_MAX:
        return "error"
    return "warning" if value > NEAR else None


def halvings(gradient: float, power: int) -> int:
    """Times that fp16's loss scale 2^`power` halves until a gradient of this size fits; 0 where it does at once."""
    if not 0 < gradient < math.inf:
        return 0
    return max(0, math.ceil(math.log2(gradient) + power - math.log2(FP16_MAX)))


def headroom(c: Context) -> Result:
    """C2, C4, C6: largest activations, gradients and weights of one row against what float16 can hold."""
    trainer: Any = c.trainer
    rows = first_rows(c, ROWS)
    row = rows.select([max(range(len(rows)), key=lambda i: int(rows[i]["length"]))])
    exact = all(p.dtype == torch.float32 for p in trainer.model.parameters() if p.is_floating_point())
    device = trainer.args.device.type
    with untouched(c), deterministic(trainer.model), measured_ranges(trainer.model) as ranges:
        batch = collate(c, row)
        trainer.model.train()
        # bfloat16 has the range of fp32, and takes no copy of weights that are kept in half.
        with torch.autocast(device, dtype=torch.bfloat16, enabled=not exact):
            loss = trainer.compute_loss(trainer.model, batch, num_items_in_batch=divisor(c))
        if loss.requires_grad:
            loss.backward()
        weights = {clean_name(n): absmax(p.grad) for n, p in trainer.trainable() if p.grad is not None}
        forward, backward = most(read(ranges.forward)), most(read(ranges.backward | weights), math.inf)
        held = evaluation_ranges(c, exact) if c.formats.compute == "fp16" else None
    how = "fp32" if exact else "bf16"
    told = f"largest activation {forward}, gradient {backward} ({how}, {int(row[0]['length'])} tokens)"
    if c.formats.compute != "fp16":
        fits = "would" if forward_severity(forward.value) is None else "would not"
        return ok(f"{told}; float16 {fits} hold it")
    findings = [activations(forward, row[0]["row_id"])] if forward_severity(forward.value) else []
    if held is not None and forward_severity(forward.value) != "error" and forward_severity(held[1].value) == "error":
        findings.append(evaluation(held[1], held[0]))
    findings += too_large_weights(trainer.model)
    if not any(f.severity == "error" for f in findings):
        findings += scaled(backward, c.cfg.precision.loss_scale.initial_power)
    return found(told, *findings)


@torch.no_grad()
def evaluation_ranges(c: Context, exact: bool) -> tuple[str, Most] | None:
    """(row_id, largest activation) of the longest held-out row; None where no row is held out."""
    trainer: Any = c.trainer
    if c.data.validation is None or not len(c.data.validation):
        return None
    lengths = list(c.data.validation["length"])
    row = c.data.validation.select([max(range(len(lengths)), key=lambda i: lengths[i])])
    trainer.model.eval()
    batch = collate(c, row)
    with (
        measured_ranges(trainer.model) as ranges,
        torch.autocast(trainer.args.device.type, dtype=torch.bfloat16, enabled=not exact),
    ):
        trainer.compute_loss(trainer.model, batch)
    return str(row[0]["row_id"]), most(read(ranges.forward))


def divisor(c: Context) -> Any:
    """What the trainer divides the losses of the first global batch by; None where it counts nothing."""
    trainer: Any = c.trainer
    rows = first_rows(c, c.plan.global_batch)
    kept = trainer._remove_unused_columns(rows, description="training")
    # Labels alone, row by row: the whole batch need not fit the device.
    micros = [{"labels": torch.tensor([label])} for label in kept["labels"]]
    count = trainer._get_num_items_in_batch(micros, torch.device("cpu"))
    return count.to(trainer.args.device) if isinstance(count, Tensor) else count


def activations(forward: Most, row: str) -> Finding:
    """C2: the forward pass leaves float16, or nearly."""
    grave = forward_severity(forward.value)
    said = "is beyond" if grave == "error" else "is more than half of"
    return Finding(
        "precision.fp16_overflow",
        "error" if grave == "error" else "warning",
        f"the largest activation of row {row}, {forward.value:.4g} at {places(forward.places)}, {said} float16's "
        f"{FP16_MAX:,.0f}",
        forward.places[:8],
        {"largest_activation": forward.value, "limit": FP16_MAX, "modules": len(forward.places)},
        ("precision=bf16",),
    )


def evaluation(forward: Most, row: str) -> Finding:
    """C6: a held-out row overflows where the training rows looked at do not; no loss scaler watches over it."""
    return Finding(
        "evaluation.not_finite",
        "error",
        f"held-out row {row} reaches {forward.value:.4g} at {places(forward.places)}, beyond float16's "
        f"{FP16_MAX:,.0f}, and evaluation computes in float16",
        (row, *forward.places[:7]),
        {"largest_activation": forward.value, "limit": FP16_MAX},
        ("precision=bf16",),
    )


@torch.no_grad()
def too_large_weights(model: nn.Module) -> list[Finding]:
    """C2: weights of matrix products that become infinite when autocast casts them."""
    named = {clean_name(n): absmax(p) for n, p in model.named_parameters() if p.ndim > 1 and p.is_floating_point()}
    largest = most(read(named), FP16_MAX)
    if largest.value <= FP16_MAX:
        return []
    return [
        Finding(
            "precision.fp16_overflow",
            "error",
            f"weight {largest} is beyond float16's {FP16_MAX:,.0f}, which autocast casts it to",
            largest.places[:8],
            {"largest_weight": largest.value, "limit": FP16_MAX},
            ("precision=bf16",),
        )
    ]


def scaled(backward: Most, power: int) -> list[Finding]:
    """C2 where a gradient leaves float16 without any scale, C4 where the dynamic scale will have to come down."""
    steps = halvings(backward.value, power)
    numbers = {"largest_gradient": backward.value, "initial_scale": 2.0**power, "halvings": steps}
    if not backward.value <= FP16_MAX:
        return [
            Finding(
                "precision.fp16_overflow",
                "error",
                f"the largest gradient, {backward}, is beyond float16's {FP16_MAX:,.0f} at loss scale 1 already",
                backward.places[:1],
                numbers,
                ("precision=bf16",),
            )
        ]
    if not steps:
        return []
    return [
        Finding(
            "precision.fp16_scale_search",
            "note",
            f"the largest gradient, {backward}, overflows float16 at loss scale 2^{power}: the first "
            f"{steps} step{'s' if steps > 1 else ''} will be skipped while the scale comes down to 2^{power - steps}",
            backward.places[:1],
            numbers,
            (f"precision.loss_scale.initial_power={max(power - steps, 0)}",),
        )
    ]
