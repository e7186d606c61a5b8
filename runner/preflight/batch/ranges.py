"""The largest numbers that pass through a model, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from runner.training.attribution import clean_name


@dataclass
class Ranges:
    """Largest magnitudes by module; on the device until `read`."""

    forward: dict[str, Tensor] = field(default_factory=dict)
    """Of what a module takes in (linear ones) and gives out; NaN where it is NaN."""

    backward: dict[str, Tensor] = field(default_factory=dict)
    """Of the gradients of the same tensors."""

    def note(self, kept: dict[str, Tensor], name: str, value: Tensor) -> None:
        """Widen the range of a place by one tensor."""
        largest = absmax(value)
        kept[name] = torch.maximum(kept[name], largest) if name in kept else largest


def absmax(value: Tensor) -> Tensor:
    """Largest magnitude, a scalar fp32 tensor; NaN where one element is NaN, 0 of no element."""
    if not value.numel():
        return torch.zeros((), device=value.device)
    low, high = torch.aminmax(value.detach())
    return torch.maximum(-low, high).float()


def read(kept: dict[str, Tensor]) -> dict[str, float]:
    """The same as numbers, the largest first and NaN before everything; one wait for each device."""
    if not kept:
        return {}
    device = next(iter(kept.values())).device
    values = torch.stack([x.to(device) for x in kept.values()]).tolist()
    ranked = sorted(zip(kept, values, strict=True), key=lambda pair: (pair[1] == pair[1], -pair[1]))
    return dict(ranked)


def place_of(module: str) -> str:
    """Name of a module without what an adapter wraps around it."""
    return clean_name(module).removesuffix(".base_layer").removesuffix(".original_module")


@contextmanager
def measured_ranges(model: nn.Module) -> Iterator[Ranges]:
    """Inside, every module of `model` that gives out a tensor is measured, and the gradients that reach it."""
    ranges = Ranges()
    handles = []

    def watch(name: str, takes_in: bool) -> Any:
        def look(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            seen = [output[0] if isinstance(output, tuple) and output else output]
            if takes_in and args:
                # What is multiplied: between up_proj and down_proj of an MLP no module gives it out.
                seen.append(args[0])
            for value in seen:
                if isinstance(value, Tensor) and value.is_floating_point():
                    ranges.note(ranges.forward, name, value)
                    if value.requires_grad:
                        value.register_hook(lambda gradient: ranges.note(ranges.backward, name, gradient))

        return look

    for name, module in model.named_modules():
        if name:
            # By its weight and not by its class: quantised layers are none of torch's.
            takes_in = getattr(getattr(module, "weight", None), "ndim", 0) > 1 and not isinstance(module, nn.Embedding)
            handles.append(module.register_forward_hook(watch(place_of(name), takes_in)))
    try:
        yield ranges
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def held_as(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Inside, every floating-point parameter of `model` is computed with as a copy in `dtype`; the parameters
    themselves stay as they are, and gradients reach them through the copies.

    Costs the memory of the copies (`copies_of`). What a module keeps outside its parameters is not converted.
    """
    changed: list[tuple[nn.Module, str, nn.Parameter]] = []
    copies: dict[int, Any] = {}
    try:
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is None or not parameter.is_floating_point() or parameter.dtype == dtype:
                    continue
                changed.append((module, name, parameter))
                # A tied weight is one copy.
                if id(parameter) not in copies:
                    copies[id(parameter)] = parameter.to(dtype)
                module._parameters[name] = copies[id(parameter)]
        yield
    finally:
        for module, name, parameter in changed:
            module._parameters[name] = parameter


def copies_of(model: nn.Module, dtype: torch.dtype) -> int:
    """Bytes that `held_as` takes."""
    size = torch.finfo(dtype).bits // 8
    return sum(p.numel() * size for p in model.parameters() if p.is_floating_point() and p.dtype != dtype)
