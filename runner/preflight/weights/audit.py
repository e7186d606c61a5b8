"""One pass over the weights: what is in each tensor, in numbers. Nothing is copied whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from runner.preflight.context import Context

CHUNK = 1 << 24
"""Elements looked at at once."""

STRIDE = 512
RUN = 2 * STRIDE
"""Elements: a run of zeros at least this long is found. A 4 KiB block of a file holds 1024 fp32 or 2048 bf16."""

SAMPLE = 1 << 14
"""Elements that size and share of zeros are measured on."""

TINY = 1e-20
"""Largest element of a tensor that holds nothing: memory never written often reads as such denormal numbers."""

LARGE_BLOCK = 0.25
LARGE_BLOCK_OF_TABLE = 0.5
"""Share of a tensor that whole rows of zeros may take before the file is suspected: padding of vocabulary and width to
round numbers, and pruned heads, are rows of zeros too."""


@dataclass(frozen=True)
class Numbers:
    """What one tensor holds."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    absmax: float
    """Largest magnitude; NaN where the tensor holds NaN."""

    rms: float
    zeros: float
    """Share of exact zeros. It and `rms` are measured on a sample of evenly spaced elements."""

    runs: tuple[tuple[int, int], ...] = ()
    """(first, behind the last) element of each run of `RUN` zeros or more, in the order of the memory."""

    table: bool = False
    """An embedding or its tied or untied output layer, whose rows belong to tokens."""

    buffer: bool = False
    """Computed, not trained: a mask is full of zeros and infinities, and only NaN is wrong in it."""

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def finite(self) -> bool:
        """Whether every element is; a buffer may hold infinity."""
        return not np.isnan(self.absmax) if self.buffer else bool(np.isfinite(self.absmax))

    @property
    def empty(self) -> bool:
        """Whether it is all zero, or too small to be anything that was trained or drawn."""
        return self.absmax < TINY

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Runs of zeros that neither padding nor pruning leaves; see `blocks`."""
        return blocks(self.shape, self.runs, self.table)


def blocks(shape: Sequence[int], runs: Sequence[tuple[int, int]], table: bool) -> tuple[tuple[int, int], ...]:
    """Those of `runs` that start or end within a row, or take more of the tensor than padding would."""
    size, row = int(np.prod(shape, dtype=np.int64)), shape[-1]
    most = size * (LARGE_BLOCK_OF_TABLE if table else LARGE_BLOCK)
    return tuple(r for r in runs if r[0] % row or r[1] % row or r[1] - r[0] >= most)


def zero_runs(flat: torch.Tensor, least: int = RUN) -> tuple[tuple[int, int], ...]:
    """All runs of `least` or more zeros in a 1-D tensor, as (first, behind the last).

    Such a run holds two neighbours of every `least // 2`-th element, so only where two are zero is each element read.
    """
    stride = least // 2
    hit = (flat[::stride] == 0).cpu().numpy()
    edges = np.flatnonzero(np.diff(np.concatenate([[False], hit, [False]]).astype(np.int8)))
    runs = []
    for first, behind in zip(edges[::2], edges[1::2], strict=True):
        if behind - first < 2:
            continue
        low, high = max(0, (int(first) - 1) * stride + 1), min(len(flat), int(behind) * stride)
        zero = np.concatenate([[False], (flat[low:high] == 0).cpu().numpy(), [False]])
        within = np.flatnonzero(np.diff(zero.astype(np.int8))) + low
        runs += [(int(a), int(b)) for a, b in zip(within[::2], within[1::2], strict=True) if b - a >= least]
    return tuple(runs)


def absmax(flat: torch.Tensor) -> float:
    """Largest magnitude of a 1-D tensor, NaN where it holds NaN; 0 for none."""
    worst = 0.0
    for begin in range(0, len(flat), CHUNK):
        low, high = torch.aminmax(flat[begin : begin + CHUNK])
        size = max(abs(float(low)), abs(float(high)))
        if size != size or worst != worst:
            return float("nan")
        worst = max(worst, size)
    return worst


def measure(name: str, tensor: torch.Tensor, table: bool = False, buffer: bool = False) -> Numbers:
    """The numbers of one floating-point tensor that is not empty."""
    flat = tensor.detach().reshape(-1)
    # An odd step visits every column of a tensor whose width is a power of two.
    sample = flat[:: (len(flat) // SAMPLE) | 1].float()
    largest = absmax(flat)
    # Zeros in a tensor of zeros need no places; those of biases and norms mean nothing or are seen as a whole.
    wanted = tensor.dim() >= 2 and largest > 0 and not buffer
    return Numbers(
        name,
        tuple(tensor.shape),
        tensor.dtype,
        largest,
        float(sample.square().mean().sqrt()),
        float((sample == 0).float().mean()),
        zero_runs(flat) if wanted else (),
        table,
        buffer,
    )


def first_bad(tensor: torch.Tensor) -> tuple[tuple[int, ...], float, int]:
    """(index, value, count) of the NaN and infinite elements of a tensor that has some."""
    flat = tensor.detach().reshape(-1)
    first, count = -1, 0
    for begin in range(0, len(flat), CHUNK):
        bad = ~torch.isfinite(flat[begin : begin + CHUNK])
        count += int(bad.sum())
        if first < 0 and bool(bad.any()):
            first = begin + int(bad.int().argmax())
    index = tuple(int(i) for i in np.unravel_index(first, tuple(tensor.shape))) if tensor.dim() else ()
    return index, float(flat[first]), count


def largest(tensor: torch.Tensor) -> tuple[tuple[int, ...], float]:
    """(index, value) of the element of largest magnitude."""
    flat = tensor.detach().reshape(-1)
    at = int(flat.float().abs().argmax()) if len(flat) <= CHUNK else _largest_in_chunks(flat)
    index = tuple(int(i) for i in np.unravel_index(at, tuple(tensor.shape))) if tensor.dim() else ()
    return index, float(flat[at])


def _largest_in_chunks(flat: torch.Tensor) -> int:
    best, at = -1.0, 0
    for begin in range(0, len(flat), CHUNK):
        part = flat[begin : begin + CHUNK].float().abs()
        here = int(part.argmax())
        if float(part[here]) > best:
            best, at = float(part[here]), begin + here
    return at


def role(name: str) -> str:
    """The name without layer and expert numbers: tensors of one role are alike."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)


def tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers by name, a tied one once."""
    yield from model.named_parameters()
    yield from model.named_buffers()


@dataclass(frozen=True)
class Audit:
    """The numbers of every tensor that could be looked at, and how many could not."""

    numbers: dict[str, Numbers]
    """{name: numbers}; floating-point tensors with elements."""

    quantised: int
    """Weights stored as integers or 8-bit floats."""

    elsewhere: int
    """Tensors on the meta device or empty: offloaded, or held by another process."""

    @property
    def left_out(self) -> str:
        """ ", 3 quantised and 2 offloaded tensors not looked at" or empty."""
        kinds = [f"{n} {word}" for n, word in ((self.quantised, "quantised"), (self.elsewhere, "offloaded")) if n]
        return f", {' and '.join(kinds)} tensors not looked at" if kinds else ""


def audit(c: Context) -> Audit:
    """Numbers of the start model; taken once, kept in the facts."""
    known = c.facts.get("weights.audit")
    if known is None:
        known = c.facts["weights.audit"] = _audit(c.start)
    result: Audit = known
    return result


def tables(model: Any) -> set[int]:
    """`id` of each weight whose rows belong to tokens or positions."""
    found = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    head = model.get_output_embeddings()
    return found | ({id(head.weight)} if getattr(head, "weight", None) is not None else set())


@torch.no_grad()
def _audit(model: Any) -> Audit:
    rows = tables(model)
    numbers: dict[str, Numbers] = {}
    quantised = elsewhere = 0
    for name, tensor in tensors(model):
        if tensor.is_meta or tensor.numel() == 0:
            elsewhere += 1
        elif tensor.is_floating_point() and tensor.element_size() > 1:
            numbers[name] = measure(name, tensor, id(tensor) in rows, not isinstance(tensor, nn.Parameter))
        elif isinstance(tensor, nn.Parameter):
            quantised += 1
    return Audit(numbers, quantised, elsewhere)
