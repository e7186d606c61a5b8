"""`clip`: the gradient before the optimizer step. One way in for every method, with and without accumulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runner.config.schema import Clip

Named = Sequence[tuple[str, nn.Parameter]]


def tensor_norms(parameters: Sequence[nn.Parameter]) -> Tensor:
    """L2 norm of each parameter's gradient in fp32, shape (n,), on the first one's device; every one has a gradient."""
    return norms_of([p.grad for p in parameters if p.grad is not None])


PIECE = 2**16
"""torch's fp32 norm on a CPU adds up in one row: 1e-7 off at 10^4 elements, 4e-4 at 10^7. So it gets fewer at once."""


def norms_of(tensors: Sequence[Tensor]) -> Tensor:
    """L2 norm of each tensor in fp32, shape (n,), on the first one's device."""
    parts: list[Tensor] = []
    owner: list[int] = []
    for i, tensor in enumerate(tensors):
        large = tensor.device.type == "cpu" and tensor.numel() > PIECE
        pieces = tensor.detach().reshape(-1).split(PIECE) if large else (tensor.detach(),)
        parts += pieces
        owner += [i] * len(pieces)
    norms = torch._foreach_norm(parts, 2.0, dtype=torch.float32)
    stacked = torch.stack([n.to(norms[0].device) for n in norms])
    if len(parts) == len(tensors):
        return stacked
    squares = torch.zeros(len(tensors), device=stacked.device)
    return squares.index_add_(0, torch.tensor(owner, device=stacked.device), stacked.square()).sqrt()


def total_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Global L2 norm of the gradients, a scalar fp32 tensor; 0 where no parameter has a gradient."""
    having = [p for p in parameters if p.grad is not None]
    return torch.linalg.vector_norm(tensor_norms(having)) if having else torch.tensor(0.0)


class Clipper:
    """One clipping method. Acts once per optimizer step, on the accumulated, unscaled gradient.

    A subclass says the largest norm it allows (`limit`), or changes the gradient itself (`change`). `state` and `load`
    carry what it has learnt through a checkpoint, as plain JSON values.
    """

    learns = True
    """Whether `change` needs the norm on the host, which makes it wait for the device."""

    def __init__(self, clip: Clip):
        self.clip = clip
        self.norms: Tensor | None = None
        """Norm of each tensor of the last call before clipping, in the order given; shape (n,)."""

    def __call__(self, named: Named) -> tuple[Tensor, Tensor]:
        """Clip in place; (norm before, applied factor), scalar tensors. The factor is norm after / norm before.

        A non-finite norm leaves gradient and state as they are, for the caller to judge: scaling by it would poison
        every element, learning from it every later step.
        """
        having = [(name, p) for name, p in named if p.grad is not None]
        self.norms = tensor_norms([p for _, p in having]) if having else None
        if self.norms is None:
            return torch.tensor(0.0), torch.tensor(1.0)
        norm = torch.linalg.vector_norm(self.norms)
        if self.learns and not bool(torch.isfinite(norm)):
            return norm, torch.ones_like(norm)
        return norm, self.change(having, norm)

    def change(self, named: Named, norm: Tensor) -> Tensor:
        """Scale every gradient by min(1, limit / (norm + 1e-6)), as `torch.nn.utils.clip_grads_with_norm_`."""
        limit = self.limit(norm)
        if math.isinf(limit):
            return torch.ones_like(norm)
        # Scaled as if it were 0, which is by 1: a non-finite norm touches nothing, and nobody has waited to see it.
        usable = torch.where(torch.isfinite(norm), norm, torch.zeros_like(norm))
        torch.nn.utils.clip_grads_with_norm_([p for _, p in named], limit, usable)
        return torch.clamp(limit / (usable + 1e-6), max=1.0)

    def limit(self, norm: Tensor) -> float:
        """Largest norm allowed at this step, infinity for no limit. May learn from `norm`, which is finite."""
        return math.inf

    def state(self) -> dict[str, Any]:
        """What has been learnt so far."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""


class NoClip(Clipper):
    """clip=none."""

    learns = False


class NormClip(Clipper):
    """clip=norm: the whole gradient is scaled down to `max_grad_norm`."""

    learns = False

    def limit(self, norm: Tensor) -> float:
        """The constant."""
        return self.clip.max_grad_norm


class ValueClip(Clipper):
    """clip=value: each element is clamped to [-clip_value, clip_value]."""

    def change(self, named: Named, norm: Tensor) -> Tensor:
        """Clamp, and measure what is left."""
        torch.nn.utils.clip_grad_value_([p for _, p in named], self.clip.clip_value)
        return ratio(total_norm([p for _, p in named]), norm)


def ratio(after: Tensor, before: Tensor) -> Tensor:
    """after / before, 1 where before is 0."""
    return torch.where(before > 0, after / before, torch.ones_like(before))


def make_clipper(clip: Clip) -> Clipper:
    """The clipper of `clip.method`."""
    from runner.stability.adaptive import AutoClip, ZClip
    from runner.stability.per_tensor import AdaGC, Agc

    methods: dict[str, type[Clipper]] = {
        "none": NoClip,
        "norm": NormClip,
        "value": ValueClip,
        "zclip": ZClip,
        "autoclip": AutoClip,
        "agc": Agc,
        "adagc": AdaGC,
    }
    return methods[clip.method](clip)
