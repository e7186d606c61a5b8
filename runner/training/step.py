"""The facts of one optimizer step: gathered per micro-batch on the device, moved to the host once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runner.training.rng import RngState


@dataclass
class Micro:
    """One forward pass: summed loss and supervised tokens of each example, and what the examples are."""

    loss_sums: Tensor
    """Shape (b,): summed token loss of each example (classification: its cross-entropy)."""

    tokens: Tensor
    """Shape (b,): supervised tokens of each example (classification: 1)."""

    row_ids: list[str]
    sources: list[str]
    lengths: list[int]


@dataclass
class Step:
    """What one optimizer step has seen so far. `losses` are the trainer's own, one per micro-batch."""

    losses: list[Tensor] = field(default_factory=list)
    micros: list[Micro] = field(default_factory=list)
    batches: list[dict[str, Any]] = field(default_factory=list)
    """Inputs of each micro-batch as the collator made them, for whoever has to run the step again."""

    rng: list[RngState] = field(default_factory=list)
    """State of the random number generators before each forward pass."""

    num_items: Any = None
    """`num_items_in_batch`, the divisor of the global batch's loss."""

    first_square: Tensor | None = None
    """Squared norm of the gradient after the first of several micro-batches, as it lies in `.grad`."""

    grad_norm: Tensor | None = None
    clip_coef: Tensor | None = None
    tensor_norms: Tensor | None = None
    """Norm of each parameter's gradient before clipping, at some steps; shape (n,)."""

    weights: dict[str, Tensor] = field(default_factory=dict)
    """`weight_statistics`, on statistics steps."""

    base: tuple[float, int, int] | None = None
    """Start model's loss on this process's examples: (sum, tokens, examples known)."""

    loss_scale: float | None = None
    learning_rate: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """The telemetry row as far as it is known."""

    vetoed: bool = False
    """True where the guard took the gradient away."""

    skipped: str | None = None
    """Why the optimizer made no step: non_finite, spike."""

    started: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True)
class World:
    """The processes of a run, and how their tensors are combined."""

    rank: int = 0
    processes: int = 1
    sum: Callable[[Tensor], Tensor] = lambda x: x
    gather: Callable[[Tensor], Tensor] = lambda x: x
    """Concatenates along the first dimension, ranks in order."""


COLUMNS = 7
"""Per source: loss sum, tokens, examples, length, base loss sum, base tokens, base examples."""


def read_step(
    step: Step, sources: Sequence[str], world: World, numbers: Sequence[int] | None = None, most: int = 0
) -> dict[str, Any]:
    """Combine a step's tensors over processes and move them to the host in one transfer.

    `sources` are all source names of the run, in an order that every process shares. `numbers` are numbers of this
    process's examples, at most `most` of them; None leaves single examples out. Returns loss (the trainer's objective
    over the global batch, NaN where it is NaN), grad_norm, clip_coef, weight_rms, update_rms, rms_t, `tensor_norms`,
    nonfinite_ranks where there are any, and where the forward passes were captured tokens, examples, micro_losses (of
    this process), sources {name: [loss_sum, tokens, examples]}, length_mean, base_loss, `first_square` (of one
    micro-batch's mean gradient), and of each example of all processes `row_numbers`, row_losses, row_tokens.
    """
    device = step.losses[0].device
    loss = torch.stack([x.float().reshape(()) for x in step.losses]).sum()
    known = bool(step.micros)
    single = ["loss", "grad_norm", "clip_coef", *step.weights]
    own = [loss, step.grad_norm, step.clip_coef, *step.weights.values()]
    # All of them as means over the processes, so that every process decides on the very same numbers.
    shared = [torch.cat([_scalar(x, device) for x in own]) / world.processes, _own_flag(loss, world)]
    if known:
        shared += [_first_square(step, world), _table(step, sources, device).reshape(-1)]
    parts = [world.sum(torch.cat([x.to(device) for x in shared]))]
    micro = [m.loss_sums.sum().double() / m.tokens.sum().double() for m in step.micros]
    norms = step.tensor_norms
    parts += [torch.stack(micro)] if micro else []
    parts += [] if norms is None else [norms.double().to(device)]
    rows = _examples(step, numbers, most, world, device) if known and numbers is not None else None
    parts += [] if rows is None else [rows.reshape(-1)]
    flat = torch.cat(parts).tolist()  # the one wait for the device

    def take(n: int) -> list[float]:
        taken = flat[:n]
        del flat[:n]
        return taken

    facts: dict[str, Any] = dict(zip(single, take(len(single)), strict=True))
    bad = [rank for rank, flag in enumerate(take(world.processes)) if flag]
    first = take(1)[0] if known else math.nan
    table = [take(COLUMNS) for _ in sources] if known else []
    if bad:
        facts["nonfinite_ranks"] = bad
    if known:
        facts["micro_losses"] = take(len(micro))
    facts["tensor_norms"] = take(len(norms)) if norms is not None else None
    if not known:
        return facts
    facts |= _by_source(table, sources)
    # The local gradient is (processes / all tokens) x the sum over the micro-batch's tokens.
    facts["first_square"] = first * (facts["tokens"] / world.processes) ** 2 / (step.loss_scale or 1.0) ** 2
    if rows is not None:
        kept = [flat[i : i + 3] for i in range(0, len(flat), 3) if flat[i] >= 0]
        facts["row_numbers"] = [int(r[0]) for r in kept]
        facts["row_losses"] = [r[1] / r[2] if r[2] else math.nan for r in kept]
        facts["row_tokens"] = [int(r[2]) for r in kept]
    return facts


def _scalar(value: Tensor | None, device: torch.device) -> Tensor:
    if value is None:
        return torch.full((1,), torch.nan, dtype=torch.float64, device=device)
    return value.detach().double().reshape(1).to(device)


def _own_flag(loss: Tensor, world: World) -> Tensor:
    """Shape (processes,): 1 at this process's place where its own loss is not finite."""
    flags = torch.zeros(world.processes, dtype=torch.float64, device=loss.device)
    flags[world.rank] = (~torch.isfinite(loss)).double()
    return flags


def _first_square(step: Step, world: World) -> Tensor:
    """|gradient of the first micro-batch|^2 per squared token, this process's share of the mean; shape (1,)."""
    tokens = step.micros[0].tokens.sum().double()
    if step.first_square is None:
        return torch.full((1,), torch.nan, dtype=torch.float64, device=tokens.device)
    return (step.first_square.double().to(tokens.device) / tokens.square() / world.processes).reshape(1)


def _table(step: Step, sources: Sequence[str], device: torch.device) -> Tensor:
    """Shape (sources, COLUMNS), sums over this process's examples."""
    index = {name: i for i, name in enumerate(sources)}
    where = torch.tensor([index[s] for m in step.micros for s in m.sources], device=device)
    sums = torch.cat([m.loss_sums.double() for m in step.micros])
    tokens = torch.cat([m.tokens.double() for m in step.micros])
    lengths = torch.tensor([float(n) for m in step.micros for n in m.lengths], dtype=torch.float64, device=device)
    table = torch.zeros(len(sources), COLUMNS, dtype=torch.float64, device=device)
    table[:, :4].index_add_(0, where, torch.stack([sums, tokens, torch.ones_like(sums), lengths], dim=1))
    if step.base is not None:
        # The base loss is a number of the whole batch; the first row carries it.
        table[0, 4:] = torch.tensor([float(x) for x in step.base], dtype=torch.float64, device=device)
    return table


def _by_source(table: list[list[float]], sources: Sequence[str]) -> dict[str, Any]:
    examples = sum(int(r[2]) for r in table)
    base_sum, base_tokens, base_examples = (sum(r[i] for r in table) for i in (4, 5, 6))
    complete = base_examples == examples and base_tokens > 0
    return {
        "tokens": sum(int(r[1]) for r in table),
        "examples": examples,
        "sources": {name: [r[0], int(r[1]), int(r[2])] for name, r in zip(sources, table, strict=True) if r[2]},
        "length_mean": sum(r[3] for r in table) / examples,
        "base_loss": base_sum / base_tokens if complete else None,
    }


def _examples(step: Step, numbers: Sequence[int], most: int, world: World, device: torch.device) -> Tensor:
    """Shape (processes x most, 3): number of the example, loss sum, tokens; number -1 = none."""
    own = torch.full((most, 3), -1.0, dtype=torch.float64, device=device)
    sums = torch.cat([m.loss_sums.double() for m in step.micros])
    n = len(sums)
    own[:n, 0] = torch.tensor(numbers, dtype=torch.float64, device=device)
    own[:n, 1], own[:n, 2] = sums, torch.cat([m.tokens.double() for m in step.micros])
    return world.gather(own)


def module_norms(names: Sequence[str], norms: Sequence[float]) -> dict[str, float]:
    """{module: gradient norm} from the norms of its parameters; an adapter counts as the module it adapts."""
    squares: dict[str, float] = {}
    for name, norm in zip(names, norms, strict=True):
        module = module_of(name)
        squares[module] = squares.get(module, 0.0) + norm * norm
    return {module: math.sqrt(x) if x >= 0 else math.nan for module, x in squares.items()}


def module_of(name: str) -> str:
    """model.layers.0.self_attn.q_proj of base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight."""
    parts = name.removeprefix("base_model.model.").split(".")
    end = next((i for i, part in enumerate(parts) if part.startswith("lora_") or part == "modules_to_save"), None)
    if end is None:
        end = len(parts) - 1 if len(parts) > 1 else 1
    return ".".join(p for p in parts[:end] if p not in ("base_layer", "original_module"))
