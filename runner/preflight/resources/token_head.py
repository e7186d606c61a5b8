"""Memory of TRL's fused head (trl/kernels/chunked_logprob.py, 1.16), which folds the logits tile by tile.

A tile is at most 4,096 tokens by 32,768 vocabulary entries. Where Triton folds it, the tile is all there is; elsewhere
torch does, with several tiles of temporaries, which on a CPU are often the largest thing alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TILE_TOKENS = 4096
TILE_ENTRIES = 32768


@dataclass(frozen=True)
class TokenHead:
    """How the head's memory depends on the machine."""

    triton: bool
    """Triton folds the tiles (CUDA)."""

    compute: torch.dtype
    """Of the matrix multiplication."""

    def __call__(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """A scalar loss of `hidden` (n, width) under `weight` (entries, width), both without content."""
        found: Tensor = _Fused.apply(hidden, weight, self)  # type: ignore[no-untyped-call]
        return found.sum()

    def occupy(self, hidden: Tensor, weight: Tensor, backward: bool) -> None:
        """Allocate and let go what TRL does for its tiles, in its order."""
        tokens = min(hidden.shape[0], TILE_TOKENS)
        # TRL's buffer is 32,768 entries wide in any case; a system provides only what is written to.
        tile = _block(tokens * min(weight.shape[0], TILE_ENTRIES), self.compute.itemsize)
        for at in range(0, weight.shape[0], TILE_ENTRIES):
            entries = min(weight.shape[0] - at, TILE_ENTRIES)
            part = None
            if weight.dtype != self.compute:
                part = _block(entries * weight.shape[1], self.compute.itemsize)
            if not backward:
                del part  # the forward pass needs no weights once they are multiplied
            if not self.triton:
                (_backward_tile if backward else _forward_tile)(tokens * entries)
        del tile


class _Fused(torch.autograd.Function):
    """Allocates what TRL's function allocates, and computes nothing."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, head: TokenHead) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        ctx.head = head
        head.occupy(hidden, weight, backward=False)
        return torch.empty(hidden.shape[0], device=hidden.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        hidden, weight = ctx.saved_tensors
        # Added up in fp32, whatever the inputs are.
        of_hidden = torch.empty(hidden.shape, device=hidden.device)
        of_weight = torch.empty(weight.shape, device=weight.device) if ctx.needs_input_grad[1] else None
        ctx.head.occupy(hidden, weight, backward=True)
        return of_hidden.to(hidden.dtype), None if of_weight is None else of_weight.to(weight.dtype), None


def _block(cells: int, size: int = 4) -> Tensor:
    return torch.empty(cells * size, dtype=torch.uint8, device="meta")


def _forward_tile(cells: int) -> None:
    """The temporaries of `_forward_tile` in torch, by their names there."""
    scaled = _block(cells)
    z = _block(cells)
    del scaled
    before_target = _block(cells, 1)
    turned = _block(cells, 1)
    masked = _block(cells)
    del turned, masked
    shifted = _block(cells)
    e = _block(cells)
    del shifted
    product = _block(cells)
    del product, e, before_target, z


def _backward_tile(cells: int) -> None:
    """The temporaries of `_backward_tile` in torch, by their names there."""
    y, z, log_p, p, grad = (_block(cells) for _ in range(5))
    is_target = _block(cells, 1)
    number = _block(cells)
    difference = _block(cells)
    del number
    product = _block(cells)
    del product, difference, is_target
    scaled = _block(cells)
    del grad
    again = _block(cells)
    del again, scaled, p, log_p, z, y
