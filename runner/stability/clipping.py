"""`clip`: the gradient before the optimizer step. One function for every method, with and without accumulation."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from runner.config.schema import Clip


def total_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Global L2 norm of the gradients, a scalar fp32 tensor; 0 where no parameter has a gradient."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    return torch.nn.utils.get_total_norm([g.float() for g in gradients])


def clip_gradients(parameters: Iterable[nn.Parameter], clip: Clip) -> tuple[Tensor, Tensor]:
    """Clip in place and return (norm before clipping, applied factor), both scalar tensors.

    The factor is norm after / norm before: 1 = not clipped. norm multiplies every gradient by
    min(1, max_grad_norm / (norm + 1e-6)), as `torch.nn.utils.clip_grads_with_norm_`; value clamps each element to
    [-clip_value, clip_value]. A non-finite norm leaves the gradient as it is, for the caller to judge: scaling by it
    would poison every element.
    """
    params = [p for p in parameters if p.grad is not None]
    norm = total_norm(params)
    one = torch.ones_like(norm)
    if not params or clip.method == "none" or not bool(torch.isfinite(norm)):
        return norm, one
    if clip.method == "value":
        torch.nn.utils.clip_grad_value_(params, clip.clip_value)
        after = total_norm(params)
        return norm, torch.where(norm > 0, after / norm, one)
    torch.nn.utils.clip_grads_with_norm_(params, clip.max_grad_norm, norm)
    return norm, torch.clamp(clip.max_grad_norm / (norm + 1e-6), max=1.0)
