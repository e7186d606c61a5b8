"""Whether the updates of the first step survive rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from runner.preflight.batch.rows import collate, deterministic, first_rows, loss_and_gradients, untouched
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, not_needed, ok
from runner.training.attribution import clean_name
from runner.training.probes import lost_updates

LOST = 0.2
"""Share of lost updates that DESIGN 7.8 raises the alarm at."""

ROWS = 8
SAMPLE = 2**16
"""Elements of one tensor whose update is tried."""


@dataclass(frozen=True)
class Tried:
    """One optimizer step on a sample of the weights."""

    share: float
    """Of all elements with a gradient, those that are the same afterwards; NaN where no element has one."""

    broken: float
    """Those that are no number afterwards."""

    worst: tuple[str, ...]
    """Parameters that lose or break more than `LOST` of their elements, the most elements first."""


def updates(c: Context) -> Result:
    """C1, C5: the first step at the peak rate, by the run's optimizer on a sample of every trainable parameter."""
    trainer: Any = c.trainer
    cls, options = type(trainer).get_optimizer_cls_and_kwargs(trainer.args, trainer.model)
    if not issubclass(cls, (torch.optim.Adam, torch.optim.SGD)):
        return not_needed(f"{cls.__name__}: only Adam and SGD update element by element")
    if not math.isfinite(c.rate) or c.rate <= 0:
        return not_needed(f"learning rate {c.rate}")
    adam = issubclass(cls, torch.optim.Adam)
    with untouched(c), deterministic(trainer.model):
        rows = first_rows(c, ROWS)
        row = rows.select([min(range(len(rows)), key=lambda i: int(rows[i]["length"]))])
        loss_and_gradients(c, [collate(c, row)], scale=256.0)
        having = [(clean_name(n), p) for n, p in trainer.trainable() if p.grad is not None]
        named = {name: sample(p, adam) for name, p in having}
        sizes = {name: p.numel() for name, p in having}
    tried = try_step(named, sizes, cls, {**options, "lr": c.rate})
    names = sorted({str(w.dtype).removeprefix("torch.") for w, _ in named.values()})
    if math.isnan(tried.share):
        return ok("no element has a finite gradient that is not 0")
    rate = f"{cls.__name__} at learning rate {c.rate:.3g}"
    kind = "+".join(names)
    summary = f"{100 * tried.share:.2g} % of the updates of {rate} are lost in {kind}"
    numbers = {"share": tried.share, "broken": tried.broken, "learning_rate": c.rate, "dtype": kind}
    mend = ("precision.trainable_weights=fp32",)
    if tried.broken:
        said = (
            f"{100 * tried.broken:.2g} % of the weights are no number after one step of {rate} in {kind}: its eps "
            f"{options.get('eps', 0):.0e} and its second moment round to 0"
        )
        return found(summary, Finding("precision.fp16_weights", "error", said, tried.worst, numbers, mend))
    if tried.share <= LOST:
        return ok(summary)
    if kind == "float32":
        # Nothing finer is offered: what is too small for fp32 is too small.
        mend = ("optim.learning_rate=null",)
    sentence = f"{100 * tried.share:.0f} % of the updates of {rate} are rounded away in {kind} weights"
    return found(summary, Finding("precision.lost_updates", "warning", sentence, tried.worst, numbers, mend))


def sample(parameter: nn.Parameter, fill: bool) -> tuple[Tensor, Tensor]:
    """Up to `SAMPLE` evenly spaced elements of a parameter and of its gradient, flat copies.

    `fill`: a gradient that is 0 throughout becomes 1. An adapter's A has none while its B is 0, and Adam will move it
    by the learning rate as soon as it has, however small it is.
    """
    assert parameter.grad is not None
    step = max(1, parameter.numel() // SAMPLE)
    weight = parameter.detach().reshape(-1)[::step].clone()
    gradient = parameter.grad.reshape(-1)[::step].clone()
    if fill and not bool(gradient.any()):
        gradient.fill_(1.0)
    return weight, gradient


def try_step(
    named: Mapping[str, tuple[Tensor, Tensor]], sizes: Mapping[str, int], cls: Any, options: Mapping[str, Any]
) -> Tried:
    """One step of optimizer class `cls` on (weights, gradients) by name, samples of tensors of `sizes` elements.

    Elements whose gradient is 0 or not finite do not count. The tensors given are left alone; weight decay is off.
    """
    lost, broken, elements = dict[str, float](), dict[str, float](), dict[str, float]()
    for name, (weight, gradient) in named.items():
        keep = gradient.isfinite() & (gradient != 0) & weight.isfinite()
        if not bool(keep.any()):
            continue
        old = weight[keep]
        moved = nn.Parameter(old.clone())
        moved.grad = gradient[keep].to(old.dtype)
        cls([moved], **{**options, "weight_decay": 0.0}).step()
        same, _ = lost_updates([moved], [old], [torch.ones_like(old, dtype=torch.bool)])
        bad = int((~moved.detach().isfinite()).sum())
        each = sizes[name] / weight.numel()
        lost[name], broken[name], elements[name] = same * each, bad * each, old.numel() * each
    total = sum(elements.values())
    hit = {name: lost[name] + broken[name] for name in elements if lost[name] + broken[name] > LOST * elements[name]}
    return Tried(
        sum(lost.values()) / total if total else math.nan,
        sum(broken.values()) / total if total else math.nan,
        tuple(sorted(hit, key=lambda name: -hit[name]))[:8],
    )
