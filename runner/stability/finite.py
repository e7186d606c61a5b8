"""Which of many tensors hold a value that is not finite, without looking at each element of each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.no_grad()
def all_finite(tensors: Sequence[Tensor]) -> list[bool]:
    """For each tensor whether all its elements are finite. The largest magnitude tells: NaN survives in it.

    No tensor may be empty. One synchronisation per device.
    """
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for i, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(i)
    by_device: dict[torch.device, list[tuple[list[int], Tensor]]] = {}
    for (device, _), indices in groups.items():
        norms = torch._foreach_norm([dense(tensors[i]) for i in indices], float("inf"))
        by_device.setdefault(device, []).append((indices, torch.isfinite(torch.stack(norms))))
    finite = [True] * len(tensors)
    for parts in by_device.values():
        flags = torch.cat([flag for _, flag in parts]).tolist()
        for i, flag in zip([i for indices, _ in parts for i in indices], flags, strict=True):
            finite[i] = bool(flag)
    return finite


def dense(tensor: Tensor) -> Tensor:
    """`tensor` in a form that norms accept: values of a sparse one, 8-bit floats as fp32."""
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    return tensor.float() if tensor.element_size() == 1 else tensor
