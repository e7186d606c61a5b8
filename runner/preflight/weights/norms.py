"""Normalisation layers, judged by what they multiply with: Gemma and others store the distance from 1."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch
from torch import nn


def norm_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """(name of its weight, layer) of each layer whose class is called a norm and that has a 1-D weight of its own."""
    for name, module in model.named_modules():
        weight = module._parameters.get("weight")
        named = "norm" in type(module).__name__.lower()
        if named and weight is not None and weight.dim() == 1 and not weight.is_meta and weight.numel():
            yield f"{name}.weight" if name else "weight", module


@torch.no_grad()
def effective_scale(norm: nn.Module) -> torch.Tensor | None:
    """What a norm multiplies each normalised feature with, (features,) fp32; None where it cannot be asked.

    The input +1, -1, +1, ... has mean 0 and root mean square 1, so it is already normalised; half the difference of the
    outputs of it and its opposite is the scale, whatever is added to it. A layer that normalises over a batch or over
    groups, or wants further arguments, is not asked.
    """
    if isinstance(norm, nn.modules.batchnorm._NormBase | nn.GroupNorm):
        return None
    needed = [
        p
        for p in inspect.signature(norm.forward).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if len(needed) != 1 or needed[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return None
    weight = norm._parameters["weight"]
    assert weight is not None
    signs = torch.ones(1, 1, len(weight), dtype=weight.dtype, device=weight.device)
    signs[..., 1::2] = -1
    scale: torch.Tensor = (norm(signs) - norm(-signs)).float() / (2 * signs.float())
    return scale.reshape(-1)
