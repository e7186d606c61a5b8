"""The facts of one optimizer step: gathered per micro-batch, turned into one telemetry row."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class Micro:
    """One forward pass: summed loss and supervised tokens of each example, and what the examples are."""

    loss_sums: Tensor
    """Shape (b,): summed token loss of each example (classification: its cross-entropy)."""

    tokens: Tensor
    """Shape (b,): supervised tokens of each example (classification: 1)."""

    sources: list[str]
    lengths: list[int]


@dataclass
class Step:
    """What one optimizer step has seen so far. `losses` are the trainer's own, one per micro-batch."""

    losses: list[Tensor] = field(default_factory=list)
    micros: list[Micro] = field(default_factory=list)
    grad_norm: Tensor | None = None
    clip_coef: Tensor | None = None
    learning_rate: float | None = None
    vetoed: bool = False
    """True where the guard took the gradient away."""

    started: float = field(default_factory=time.perf_counter)


def step_facts(step: Step, sources: list[str], reduce: Callable[[Tensor, str], Tensor]) -> dict[str, Any]:
    """The part of a telemetry row that is computed from tensors, with one synchronisation with the device.

    `sources` are all source names of the run, in an order that every process shares. `reduce(tensor, "sum" | "mean")`
    combines it over processes (the identity on one). Returns loss (the trainer's objective over the global batch,
    NaN where it is NaN), grad_norm, clip_coef, tokens, examples, micro_losses (of this process), sources
    {name: [loss_sum, tokens, examples]}, length_mean.
    """
    device = step.losses[0].device
    loss = reduce(torch.stack([x.float().reshape(()) for x in step.losses]).sum(), "mean")
    norms = [step.grad_norm, step.clip_coef]
    known = torch.stack(
        [torch.full((), torch.nan) if x is None else x.detach().float().cpu().reshape(()) for x in norms]
    )
    if not step.micros:
        loss_value, norm, coefficient = torch.cat([loss.cpu().reshape(1), known]).tolist()
        return {"loss": loss_value, "grad_norm": norm, "clip_coef": coefficient}
    index = {name: i for i, name in enumerate(sources)}
    where = torch.tensor([index[s] for m in step.micros for s in m.sources], device=device)
    sums = torch.cat([m.loss_sums.double() for m in step.micros])
    tokens = torch.cat([m.tokens.double() for m in step.micros])
    lengths = torch.tensor([float(n) for m in step.micros for n in m.lengths], dtype=torch.float64, device=device)
    table = torch.zeros(len(sources), 4, dtype=torch.float64, device=device)
    table.index_add_(0, where, torch.stack([sums, tokens, torch.ones_like(sums), lengths], dim=1))
    table = reduce(table, "sum")
    micro = torch.stack([m.loss_sums.sum().double() / m.tokens.sum().double() for m in step.micros])
    flat = torch.cat([loss.double().reshape(1), micro, table.reshape(-1)]).tolist()
    loss_value, micro_losses, cells = flat[0], flat[1 : 1 + len(micro)], flat[1 + len(micro) :]
    rows = {name: cells[4 * i : 4 * i + 4] for i, name in enumerate(sources)}
    examples = sum(int(r[2]) for r in rows.values())
    return {
        "loss": loss_value,
        "grad_norm": known[0].item(),
        "clip_coef": known[1].item(),
        "tokens": sum(int(r[1]) for r in rows.values()),
        "examples": examples,
        "micro_losses": micro_losses,
        "sources": {name: [r[0], int(r[1]), int(r[2])] for name, r in rows.items() if r[2]},
        "length_mean": sum(r[3] for r in rows.values()) / examples,
    }
