"""A model without memory, on which the model's own initialiser is tried: which tensors does it fill?"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from runner.training.rng import untouched


def initialise_alone(model: Any, names: Collection[str]) -> dict[str, torch.Tensor]:
    """{name: what the model's own initialiser makes of it} for tensors that start as a sentinel everywhere.

    The initialiser runs on a second model of the same class and configuration whose other tensors are on the meta
    device and marked as loaded, as in `from_pretrained`; `model` itself and all generators are left as they are. What
    still holds the sentinel afterwards (`untouched_share`) would hold whatever was in memory. Boolean tensors, which
    have no value to spare, and names that the second model lacks are left out.
    """
    with untouched():
        with contextlib.ExitStack() as stack:
            for context in type(model).get_init_context(model.dtype, False, False, None):
                stack.enter_context(context)
            twin = type(model)(copy.deepcopy(model.config))
        for tensor in itertools.chain(twin.parameters(), twin.buffers()):
            tensor._is_hf_initialized = True
        for module in twin.modules():
            module._is_hf_initialized = False
        there = {n for n, _ in itertools.chain(twin.named_parameters(), twin.named_buffers())}
        tried = [n for n in names if n in there and _materialise(twin, n)]
        twin.initialize_weights()
    return {name: twin.get_parameter_or_buffer(name).detach() for name in tried}


def _materialise(twin: Any, name: str) -> bool:
    path, _, leaf = name.rpartition(".")
    owner = twin.get_submodule(path)
    old = twin.get_parameter_or_buffer(name)
    if old.dtype == torch.bool:
        return False
    new = torch.full(old.shape, sentinel(old.dtype), dtype=old.dtype, device="cpu")
    if isinstance(old, nn.Parameter):
        owner._parameters[leaf] = nn.Parameter(new, requires_grad=old.requires_grad)
    else:
        owner._buffers[leaf] = new
    return True


def sentinel(dtype: torch.dtype) -> float | int:
    """A value that no initialiser writes: NaN, or the smallest integer but one of 16 bits or more."""
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return torch.iinfo(dtype).min + 1 if dtype != torch.uint8 else 251


def untouched_share(tensor: torch.Tensor) -> float:
    """Share of the elements that still hold the sentinel."""
    if tensor.is_floating_point() or tensor.is_complex():
        left = torch.isnan(tensor)
    else:
        left = tensor == sentinel(tensor.dtype)
    return float(left.float().mean()) if tensor.numel() else 0.0
