"""How much memory a run needs: arithmetic on sizes that are known before its first step.

Each moment of a run (loading, a training step, its update, probes, evaluation) holds other things; the run needs what
the largest of them holds. All sizes are bytes of one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any


@dataclass(frozen=True)
class Pass:
    """Bytes of one forward pass, or of one forward and backward pass, beyond weights and optimizer state."""

    kept: int
    """Held for the backward pass at the end of the forward pass; 0 without gradients."""

    peak: int
    """The most that is alive at one moment, gradients of the weights included (those of earlier micro-batches too)."""

    heap: int = 0
    """What a C library's heap takes beyond that (on a CPU)."""

    def scaled(self, share: float) -> Pass:
        """The same over a share of the tokens, where all that is alive grows with them."""
        return Pass(int(self.kept * share), int(self.peak * share), int(self.heap * share))


@dataclass(frozen=True)
class Batch:
    """The shape of one micro-batch."""

    rows: int
    length: int
    """Tokens of each row, padding included."""

    @property
    def tokens(self) -> int:
        """rows x length."""
        return self.rows * self.length


PROCESS = 60_000_000
"""Bytes of libraries that load with torch's first operations, and with the plots at the end, on a CPU; measured."""

NOTHING = Pass(0, 0)
Shape = tuple[tuple[int, ...], int]
"""(sizes, bytes of one element) of a tensor."""

MOMENTS = {
    "adamw_torch": 2,
    "adamw_torch_fused": 2,
    "stable_adamw": 2,
    "schedule_free_adamw": 2,
    "schedule_free_radam": 2,
    "schedule_free_sgd": 1,
    "adagrad": 1,
    "rmsprop": 1,
    "lion_32bit": 1,
    "paged_lion_32bit": 1,
    "paged_adamw_32bit": 2,
    "ademamix": 3,
    "paged_ademamix_32bit": 3,
}
"""Tensors of the parameter's own shape and dtype that an optimizer keeps."""

EIGHT_BIT = {
    "adamw_8bit": 2,
    "adamw_bnb_8bit": 2,
    "paged_adamw_8bit": 2,
    "adamw_torch_8bit": 2,
    "lion_8bit": 1,
    "paged_lion_8bit": 1,
    "rmsprop_bnb_8bit": 1,
    "ademamix_8bit": 3,
    "paged_ademamix_8bit": 3,
}
"""The same in 8 bits, with an fp32 scale for each 256 elements."""


def optimizer_state(name: str, arguments: Mapping[str, Any], tensors: Sequence[Shape]) -> tuple[int, bool]:
    """(bytes that the optimizer keeps for `tensors`, whether its name is known; an unknown one is taken for AdamW)."""
    elements = [(prod(sizes), size) for sizes, size in tensors]
    if name in EIGHT_BIT:
        return sum(int(n * EIGHT_BIT[name] * (1 + 4 / 256)) for n, _ in elements), True
    if name == "adafactor":
        return sum(4 * _factored(sizes) for sizes, _ in tensors), True
    count = MOMENTS.get(name, 2)
    if name == "sgd":
        count = 1 if float(arguments.get("momentum", 0.0)) else 0
    return sum(count * n * size for n, size in elements), name in MOMENTS or name == "sgd"


def _factored(sizes: tuple[int, ...]) -> int:
    """Elements of Adafactor's second moment: a row and a column for each matrix, all of a vector."""
    if len(sizes) < 2:
        return prod(sizes)
    return prod(sizes[:-1]) + prod((*sizes[:-2], sizes[-1]))


def update_workspace(name: str, tensors: Sequence[Shape], on_gpu: bool) -> int:
    """Temporaries of an optimizer's step: none in a fused one, one per weight where torch joins all (on a GPU), else
    three of the largest tensor."""
    if name.endswith("fused"):
        return 0
    if on_gpu and name in ("adamw_torch", "sgd", "adagrad", "rmsprop"):
        return sum(prod(sizes) * size for sizes, size in tensors)
    return 3 * max((4 * prod(sizes) for sizes, _ in tensors), default=0)


@dataclass(frozen=True)
class Parts:
    """What is alive at one moment, by purpose."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    """What the forward pass keeps for the backward pass."""

    workspace: int = 0
    """Temporaries of operations; logits are here where the loss folds them tile by tile."""

    copies: int = 0
    """Copies of weights and optimizer that the run itself makes: snapshots to roll back to, probes, loading."""

    process: int = 0
    """On a CPU: libraries loaded on first use, and holes in the heap."""

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, int]:
        """Bytes by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Sizes:
    """What the moments are made of."""

    weights: int
    gradients: int
    """One for each weight that trains, in its dtype; twice that where several processes average them in buckets."""

    optimizer: int
    trained: Pass
    """Forward and backward pass of the longest micro-batch."""

    forward: Pass
    """Forward pass of the same micro-batch without gradients; 0 where no probe needs it."""

    evaluation: Pass
    """The largest evaluation batch; 0 where nothing is evaluated."""

    update: int
    """Temporaries of the optimizer's step."""

    snapshot: int = 0
    """Kept for a roll-back in this memory; taken anew while the old one is still there where `renewed`."""

    renewed: bool = False
    probe: int = 0
    """Copy of the weights that train, and of what has a gradient, around a probed update; 0 without one."""

    loading: int = 0
    """Beyond the weights, while they are loaded."""

    on_gpu: bool = False
    """The memory is a GPU's: no library and no heap lies in it."""


def moments(sizes: Sizes) -> dict[str, Parts]:
    """Bytes by purpose at each moment of a run."""
    s = sizes
    kept = min(s.trained.kept, s.trained.peak)
    gradients = min(s.gradients, s.trained.peak - kept)
    held = {"weights": s.weights, "optimizer": s.optimizer}

    def process(heap: int) -> int:
        return 0 if s.on_gpu else PROCESS + heap

    return {
        "loading": Parts(weights=s.weights, copies=s.loading, process=process(0)),
        "training": Parts(
            **held,
            gradients=gradients,
            activations=kept,
            workspace=s.trained.peak - kept - gradients,
            copies=s.snapshot,
            process=process(s.trained.heap),
        ),
        "update": Parts(
            **held,
            gradients=s.gradients,
            workspace=s.update,
            copies=s.snapshot * (2 if s.renewed else 1),
            process=process(0),
        ),
        "probe": Parts(
            **held,
            gradients=s.gradients,
            workspace=s.forward.peak,
            copies=s.snapshot + s.probe,
            process=process(s.forward.heap),
        ),
        "evaluation": Parts(**held, workspace=s.evaluation.peak, copies=s.snapshot, process=process(s.evaluation.heap)),
    }


def largest_batch(lengths: Sequence[int], orders: Iterable[Sequence[int]], rows: int) -> Batch:
    """The micro-batch of `rows` rows with the most tokens after padding, over the planned orders of row indices.

    A batch is as long as its longest row. `lengths` are tokens by row index; there has to be a row.
    """
    best = Batch(0, 0)
    for order in orders:
        for at in range(0, len(order), rows):
            window = [lengths[i] for i in order[at : at + rows]]
            found = Batch(len(window), max(window))
            if (found.tokens, found.length) > (best.tokens, best.length):
                best = found
    return best


def smaller_batches(per_device: int, accumulation: int) -> list[tuple[int, int]]:
    """(per device, accumulation) of the same global batch with fewer rows at once, the largest first."""
    return [(d, accumulation * per_device // d) for d in range(per_device - 1, 0, -1) if per_device % d == 0]
