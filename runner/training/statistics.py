"""Size of weights and of the update that the optimizer is about to make, from its state and the final gradient.

Computed before the step, so that a broken optimizer state is seen before it reaches the weights, and no copy of the
weights is needed. The results stay on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from runner.stability.clipping import norms_of

PIECE = 2**20
"""Elements worked on at once: temporaries stay small, and in a CPU's cache."""


def weight_statistics(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Scalar fp32 tensors over all parameters that have a gradient.

    weight_rms = sqrt(mean(w^2)). update_rms = sqrt(mean(u^2)) of the update u about to be applied, weight decay
    included (Adam, AdamW, SGD; absent for other optimizers). rms_t = sqrt(mean(g^2 / max(v, eps^2))) with v Adam's
    second moment after this step, bias-corrected (Wortsman et al. 2023, arXiv 2304.13013, section 3.4): near 1 while v
    knows gradients of this size, above 2 where it lags behind them. {} where nothing has a gradient.
    """
    weights: list[Tensor] = []
    update: list[Tensor] = []
    ratio: list[Tensor] = []
    count = 0
    for group in optimizer.param_groups:
        parameters = [p for p in group["params"] if p.grad is not None]
        if not parameters:
            continue
        count += sum(p.numel() for p in parameters)
        weights.append(norms_of(parameters).square().sum())
        if isinstance(optimizer, torch.optim.Adam) and not group.get("amsgrad"):
            for part in _pieces(optimizer, parameters, ("exp_avg", "exp_avg_sq")):
                squares, ratios = _adam(group, *part)
                update += squares
                ratio += ratios
        elif isinstance(optimizer, torch.optim.SGD):
            for weight, gradient, state, first in _pieces(optimizer, parameters, ("momentum_buffer",)):
                update += _sgd(group, weight, gradient, state["momentum_buffer"], first)
    if not count:
        return {}
    found = {"weight_rms": weights, "update_rms": update, "rms_t": ratio}
    device = weights[0].device
    sums = {name: torch.stack([x.to(device) for x in parts]).sum() for name, parts in found.items() if parts}
    return {name: (total / count).sqrt() for name, total in sums.items()}


Piece = tuple[list[Tensor], list[Tensor], dict[str, list[Tensor]], Tensor]


def _pieces(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], keys: tuple[str, ...]) -> Iterator[Piece]:
    """(weights, gradients, state by key, steps taken before) in flat fp32 pieces of about PIECE elements together."""
    by_age: dict[int, list[nn.Parameter]] = {}
    for p in parameters:
        # Parameters that share a step count share its tensor's value; a young one (new in the group) has no state yet.
        by_age.setdefault(0 if optimizer.state.get(p) else 1, []).append(p)
    for same in by_age.values():
        batch: list[list[Tensor]] = []
        size = 0
        steps = _steps(optimizer, same[0])
        for p in same:
            assert p.grad is not None
            state = optimizer.state.get(p) or {}
            held = [state[k] if state.get(k) is not None else torch.zeros_like(p) for k in keys]
            flat = [x.detach().reshape(-1) for x in (p, p.grad, *held)]
            for cut in zip(*(x.split(PIECE) for x in flat), strict=True):
                batch.append([x.float() for x in cut])
                size += cut[0].numel()
                if size >= PIECE:
                    yield _columns(batch, keys, steps)
                    batch, size = [], 0
        if batch:
            yield _columns(batch, keys, steps)


def _columns(batch: list[list[Tensor]], keys: tuple[str, ...], steps: Tensor) -> Piece:
    columns = [list(c) for c in zip(*batch, strict=True)]
    return columns[0], columns[1], dict(zip(keys, columns[2:], strict=True)), steps


def _steps(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> Tensor:
    """Steps that this parameter's state has taken, a scalar tensor where the state keeps it: reading it would wait."""
    found = (optimizer.state.get(parameter) or {}).get("step")
    if found is None:
        return torch.tensor(0.0 if not optimizer.state.get(parameter) else 1.0)
    return found if torch.is_tensor(found) else torch.tensor(float(found))


def _adam(
    group: dict[str, Any], weight: list[Tensor], gradient: list[Tensor], state: dict[str, list[Tensor]], before: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Sums of squares of the update and of g^2 / v, one scalar per piece (torch.optim.Adam and AdamW)."""
    beta1, beta2 = (float(b) for b in group["betas"])
    decay, eps, rate = float(group["weight_decay"]), float(group["eps"]), float(group["lr"])
    decoupled = bool(group.get("decoupled_weight_decay"))
    if decay and not decoupled:
        gradient = list(torch._foreach_add(gradient, weight, alpha=decay))
    step = (before.to(weight[0].device) + 1).float()
    second = list(torch._foreach_mul(state["exp_avg_sq"], beta2))
    torch._foreach_addcmul_(second, gradient, gradient, value=1 - beta2)
    torch._foreach_div_(second, 1 - beta2**step)
    squares = list(torch._foreach_mul(gradient, gradient))
    torch._foreach_div_(squares, torch._foreach_clamp_min(second, max(eps**2, 1e-38)))
    ratios = list(torch._foreach_norm(squares, 1.0))
    first = list(torch._foreach_mul(state["exp_avg"], beta1))
    torch._foreach_add_(first, gradient, alpha=1 - beta1)
    torch._foreach_div_(first, 1 - beta1**step)
    torch._foreach_sqrt_(second)
    torch._foreach_add_(second, eps)
    torch._foreach_div_(first, second)
    if decay and decoupled:
        torch._foreach_add_(first, weight, alpha=decay)
    return [n.square() * rate**2 for n in torch._foreach_norm(first, 2.0)], ratios


def _sgd(
    group: dict[str, Any], weight: list[Tensor], gradient: list[Tensor], buffer: list[Tensor], before: Tensor
) -> list[Tensor]:
    """Sum of squares of the update, one scalar per piece (torch.optim.SGD)."""
    decay, momentum, rate = float(group["weight_decay"]), float(group["momentum"]), float(group["lr"])
    direction = list(torch._foreach_add(gradient, weight, alpha=decay)) if decay else gradient
    if momentum:
        # torch starts the buffer with the gradient itself, undamped.
        share = torch.where(before.to(weight[0].device) > 0, 1 - float(group["dampening"]), 1.0)
        moved = list(torch._foreach_mul(buffer, momentum))
        torch._foreach_add_(moved, torch._foreach_mul(direction, share))
        direction = list(torch._foreach_add(direction, moved, alpha=momentum)) if group["nesterov"] else moved
    return [n.square() * rate**2 for n in torch._foreach_norm(direction, 2.0)]
