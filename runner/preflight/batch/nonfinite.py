"""A first loss or gradient that is not finite: the module it came from, and the cause that its numbers speak for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runner.preflight.batch.rows import loss_and_gradients
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, places
from runner.training.attribution import Trail, clean_name, first_bad_backward, first_bad_forward, first_bad_parameter

Facts = dict[str, Any]

FLOAT_MAX = 3.4e38
"""Largest finite number of fp32 and bf16."""


@dataclass(frozen=True)
class Broken:
    """What a second pass saw, module by module; each is None where there is nothing of its kind."""

    weight: Facts | None
    """`first_bad_parameter` over all weights."""

    forward: Facts | None
    """`first_bad_forward`."""

    backward: Facts | None
    """`first_bad_backward`."""

    bound: float = math.inf
    """Largest magnitude that a matrix product of the module in `forward` could have had."""

    masked: tuple[int, ...] = ()
    """Rows of the batch without any real token."""


def look(c: Context, micro: dict[str, Any], loss: float) -> Broken:
    """Run the micro-batch once more and read every module; inside `batch.untouched`, gradients dropped."""
    model: Any = c.trainer.model
    named = [(clean_name(name), p) for name, p in model.named_parameters()]
    weight = first_bad_parameter(named, gradients=False)
    with Trail(model, batch=len(micro["input_ids"])) as trail:
        loss_and_gradients(c, [micro], scale=1.0)
    events = trail.finish()
    forward, backward = first_bad_forward(events), first_bad_backward(events)
    bound = math.inf
    if forward is not None and forward["absmax_in"] is not None:
        part = {clean_name(name): m for name, m in model.named_modules()}[forward["module"]]
        sizes = [float(p.detach().abs().amax()) * p.shape[-1] for p in part.parameters() if p.numel()]
        bound = forward["absmax_in"] * max(sizes, default=math.inf)
    mask = micro.get("attention_mask")
    empty = () if mask is None or mask.ndim != 2 else tuple(torch.nonzero(mask.sum(1) == 0).reshape(-1).tolist())
    return Broken(weight, forward, None if forward else backward, bound, empty)


def cause_of(broken: Broken) -> str:
    """Id of the cause that the readings speak for; unknown.several where they fit more than one.

    weights.damaged: a weight is not finite, or so large that a finite input overflows. precision.fp16_overflow: the
    first bad value was made in float16. kernels.*: finite weights and inputs of ordinary size gave a bad output, in
    attention or in a linear layer.
    """
    bad = broken.forward or broken.backward
    if broken.weight is not None:
        return "weights.damaged"
    if bad is None:
        return "unknown.several"
    if bad["dtype"] == "float16":
        return "precision.fp16_overflow"
    if "attention" in str(bad["class"]).lower():
        return "kernels.masked_rows" if broken.masked else "kernels.attention_backend"
    if broken.forward is not None and "Linear" in str(bad["class"]) and not bad.get("seen_by"):
        return "weights.damaged" if broken.bound >= FLOAT_MAX else "kernels.matmul_unwritten"
    return "unknown.several"


def overrides_for(cause: str, c: Context) -> tuple[str, ...]:
    """What can be set against the cause."""
    if cause == "precision.fp16_overflow":
        return ("precision=bf16",)
    if cause in ("kernels.masked_rows", "kernels.attention_backend"):
        return ("model.attn_implementation=eager",)
    return ()


def explain_broken(c: Context, broken: Broken, loss: float, row_losses: Mapping[str, float]) -> Result:
    """The result where the first micro-batch gave a loss or gradient that is not finite."""
    cause = cause_of(broken)
    bad = broken.forward or broken.backward
    what = f"loss {loss:.4g}" if not math.isfinite(loss) else f"loss {loss:.4g}, a gradient is not finite"
    if c.facts.get("matmul_wrong"):
        return found(f"{what}, as after the wrong matrix products above")
    rows = [row for row, x in row_losses.items() if not math.isfinite(x)]
    in_rows = f" Rows {places(rows)} have no finite loss, the others have." if 0 < len(rows) < len(row_losses) else ""
    numbers: Facts = {"loss": loss, "rows_not_finite": len(rows), "rows": len(row_losses)}
    where: tuple[str, ...] = ()
    told = ""
    if broken.weight is not None:
        weight = broken.weight
        where = (weight["name"],)
        told = f" {weight['name']} holds {weight['count']} elements that are not finite ({weight['value']} at "
        told += f"{weight['first_index']})."
        numbers |= {"count": weight["count"]}
    elif bad is not None:
        where = (bad["parameter"],) if bad.get("parameter") else (bad["module"],)
        direction = "output" if broken.forward else "gradient"
        told = f" The first {direction} that is not finite is that of {bad['module']} ({bad['class']}, {bad['dtype']})"
        told += f": {bad['why']}."
        numbers |= {"class": bad["class"], "dtype": bad["dtype"], "absmax_in": bad.get("absmax_in")}
    else:
        told = " A second pass over the same rows was finite: the result changes from run to run."
    sentence = f"One forward and backward pass gives {what}.{told}{in_rows}"
    return found(what, Finding(cause, "error", sentence, where, numbers, overrides_for(cause, c)))
