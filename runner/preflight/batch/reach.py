"""One micro-batch forward and backward: which trainable parameters a gradient reaches, and why some are left out."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from runner.preflight.batch.head import frozen_heads
from runner.preflight.batch.nonfinite import Broken, explain_broken, look
from runner.preflight.batch.rows import (
    collate,
    deterministic,
    drop_gradients,
    first_rows,
    loss_and_gradients,
    untouched,
)
from runner.preflight.context import Context
from runner.preflight.finding import MOST, Finding, Result, found, places
from runner.training.trail import clean_name, inside

SCALES = (None, 256.0, 1.0)
"""Loss scales tried under fp16, None = the one the run starts with: the scaler backs off by itself, so an infinite
gradient at the first of them is no fault."""

QUICK = 0.3
"""Seconds: a pass shorter than this is repeated, since the first one pays for warming up."""

PARTNERS = (
    ("lora_A", "lora_B"),
    ("lora_B", "lora_A"),
    ("lora_embedding_A", "lora_embedding_B"),
    ("lora_embedding_B", "lora_embedding_A"),
)
"""Factors of an adapter: the gradient of the first is zero while the second is.

`x.lora_A.default.weight` and `x.lora_B.default.weight` by name."""


@dataclass
class Reach:
    """What one forward and backward pass came to."""

    loss: float | None
    """None where the loss depends on no trainable parameter."""

    sizes: dict[str, float | None] = field(default_factory=dict)
    """Largest magnitude of the gradient of each trainable parameter by its clean name: NaN or infinity where it holds
    one, None where there is no gradient."""

    rows: tuple[str, ...] = ()
    row_losses: tuple[float, ...] = ()
    seconds: float = math.nan
    tokens: int = 0
    checkpointed: tuple[str, ...] = ()
    """Modules whose activations are recomputed in the backward pass."""

    broken: Broken | None = None
    """Where the first non-finite value came from; None where all is finite."""


def measure_reach(c: Context) -> Reach:
    """Run the first micro-batch of epoch 0 once or twice with dropout off, leaving no trace."""
    trainer: Any = c.trainer
    model = trainer.model
    rows = first_rows(c, c.plan.per_device)
    names = tuple(rows["row_id"])
    checkpointed = tuple(
        clean_name(name) for name, m in model.named_modules() if getattr(m, "gradient_checkpointing", False) is True
    )
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    kept: list[Any] = []
    with untouched(c), deterministic(model):
        micro = collate(c, rows)
        hook = base.register_forward_hook(lambda module, args, outputs: kept.append(outputs))
        try:
            loss, seconds = timed(c, micro, None)
        except RuntimeError as error:
            if "does not require grad" not in str(error):
                raise
            return Reach(None, dict.fromkeys(reachable(model)), names, checkpointed=checkpointed)
        finally:
            hook.remove()
        with torch.no_grad():
            sums, tokens = trainer.per_example(kept[-1], micro)
        row_losses = tuple((sums.double() / tokens.double().clamp(min=1)).tolist())
        kept.clear()
        sizes = gradient_sizes(model)
        if seconds < QUICK and all_fine(loss, sizes):
            drop_gradients(list(model.parameters()))
            seconds = min(seconds, timed(c, micro, None)[1])
        if trainer.accelerator.scaler is not None and math.isfinite(loss):
            for scale in SCALES[1:]:
                if all_fine(loss, sizes):
                    break
                drop_gradients(list(model.parameters()))
                timed(c, micro, scale)
                sizes = gradient_sizes(model)
        broken = None
        if not all_fine(loss, sizes):
            drop_gradients(list(model.parameters()))
            broken = look(c, micro, loss)
    width = int(micro["input_ids"].numel())
    return Reach(loss, sizes, names, row_losses, seconds, width, checkpointed, broken)


def timed(c: Context, micro: dict[str, Any], scale: float | None) -> tuple[float, float]:
    """(loss, seconds) of one forward and backward."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    wait()
    before = time.perf_counter()
    loss, _ = loss_and_gradients(c, [micro], scale=scale)
    wait()
    return loss, time.perf_counter() - before


def reachable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that train, by clean name."""
    return {clean_name(name): p for name, p in model.named_parameters() if p.requires_grad}


@torch.no_grad()
def gradient_sizes(model: nn.Module) -> dict[str, float | None]:
    """Largest magnitude of each trainable parameter's `.grad`, None where there is none; one transfer per device."""
    named = reachable(model)
    there = {name: p.grad for name, p in named.items() if p.grad is not None}
    found: dict[str, float | None] = dict.fromkeys(named)
    by_device: dict[torch.device, list[str]] = {}
    for name, gradient in there.items():
        by_device.setdefault(gradient.device, []).append(name)
    for names in by_device.values():
        sizes = torch.stack([there[name].abs().amax().double() for name in names]).tolist()
        found |= dict(zip(names, sizes, strict=True))
    return found


def all_fine(loss: float, sizes: Mapping[str, float | None]) -> bool:
    """Loss and every gradient that exists are finite."""
    return math.isfinite(loss) and all(x is None or math.isfinite(x) for x in sizes.values())


def excused(zero: Sequence[str], zero_weights: Sequence[str]) -> list[str]:
    """Those of `zero` (parameters with an all-zero gradient) whose gradient is zero by construction at the first step.

    One factor of an adapter gets none while the other is all zero, that is stands in `zero_weights`.
    """
    zeros = set(zero_weights)
    return [name for name in zero if any(partner(name, a, b) in zeros for a, b in PARTNERS)]


def partner(name: str, factor: str, other: str) -> str | None:
    """The name of the factor `other` beside `name`, None where `name` is no `factor`."""
    return name.replace(f".{factor}.", f".{other}.") if f".{factor}." in name else None


def zero_tensors(model: nn.Module) -> list[str]:
    """Clean names of parameters that are all zero, biases left out."""
    return [
        clean_name(name)
        for name, p in model.named_parameters()
        if p.numel() and not name.endswith("bias") and not bool(p.detach().any())
    ]


def explain(c: Context, reach: Reach) -> Result:
    """The result of `trainability.gradients`."""
    if reach.loss is None:
        return found("the loss depends on nothing that trains", cut(c, reach, list(reach.sizes)))
    if reach.broken is not None:
        return explain_broken(c, reach.broken, reach.loss, dict(zip(reach.rows, reach.row_losses, strict=True)))
    missing = [name for name, x in reach.sizes.items() if x is None]
    zero = [name for name, x in reach.sizes.items() if x == 0]
    zeros = zero_tensors(c.trainer.model) if zero else []
    rest = sorted(set(zero) - set(excused(zero, zeros)), key=zero.index)
    reached = len(reach.sizes) - len(missing) - len(rest)
    said = f"loss {reach.loss:.4g}, {reached} of {len(reach.sizes)} tensors reached"
    findings = [cut(c, reach, missing)] if missing else []
    if rest and not any(x for x in reach.sizes.values()):
        return dead(c, reach, said, zeros, findings)
    return found(f"{said}, {len(rest)} all zero" if rest else said, *findings)


def cut(c: Context, reach: Reach, missing: list[str]) -> Finding:
    """The finding about trainable parameters without a gradient: the graph is cut, or the forward pass leaves them
    out."""
    part = "no" if len(missing) == len(reach.sizes) else f"{len(missing)} of {len(reach.sizes)}"
    which = f"{part} trainable tensor{'s' if part != 'no' else ''}"
    numbers = {"without_gradient": len(missing), "trainable": len(reach.sizes), "loss": reach.loss}
    below = [name for name in missing if any(inside(m, name) for m in reach.checkpointed)]
    if below:
        verb = "gets a gradient" if part == "no" else "get no gradient"
        return Finding(
            "trainability.checkpointing_without_inputs",
            "error",
            f"One backward pass: {which} {verb} ({places(missing)}), because gradient checkpointing recomputes "
            f"{places(reach.checkpointed, 1)} from inputs that need no gradient.",
            tuple(missing[:MOST]),
            {**numbers, "checkpointed": len(reach.checkpointed)},
            ("model.gradient_checkpointing=false",),
        )
    if len(missing) == len(reach.sizes):
        return Finding(
            "trainability.nothing_trains",
            "error",
            f"The loss depends on none of the {len(missing)} trainable tensors ({places(missing)}): a step would "
            "change nothing.",
            tuple(missing[:MOST]),
            numbers,
        )
    experts = all("expert" in name for name in missing)
    return Finding(
        "trainability.nothing_trains",
        "note" if experts else "warning",
        f"One backward pass: {which} get no gradient ({places(missing)}); the forward pass does not use them"
        f"{' for these rows' if experts else '. They stay as they are'}.",
        tuple(missing[:MOST]),
        numbers,
    )


def dead(c: Context, reach: Reach, said: str, zeros: list[str], findings: list[Finding]) -> Result:
    """Every gradient that exists is exactly 0."""
    guilty = [name for name in zeros if "lora_" not in name]
    frozen = [f for f in frozen_heads(c) if f.numbers["std"] == 0]
    if c.facts.get("matmul_wrong"):
        return found(f"{said}: every gradient is 0, as after the wrong matrix products above", *findings)
    numbers = {"loss": reach.loss, "all_zero_weights": len(guilty)}
    if frozen:
        return found(said, *findings, *frozen)
    if guilty:
        finding = Finding(
            "weights.dead_backbone",
            "error",
            f"The loss is {reach.loss:.4f} and every gradient is exactly 0: {len(guilty)} weight tensors are all zero "
            f"({places(guilty)}).",
            tuple(guilty[:MOST]),
            numbers,
        )
    else:
        finding = Finding(
            "unknown.several",
            "error",
            f"The loss is {reach.loss:.4f} and every gradient is exactly 0, though no weight tensor is all zero: the "
            "loss or an attention kernel drops the gradient.",
            tuple(list(reach.sizes)[:MOST]),
            numbers,
        )
    return found(said, *findings, finding)
