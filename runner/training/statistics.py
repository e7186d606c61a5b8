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

PIECE = 2**18
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
                size, share = _adam(group, *part)
                update.append(size)
                ratio.append(share)
        elif isinstance(optimizer, torch.optim.SGD):
            for weight, gradient, state, first in _pieces(optimizer, parameters, ("momentum_buffer",)):
                update.append(_sgd(group, weight, gradient, state["momentum_buffer"], first))
    if not count:
        return {}
    found = {"weight_rms": weights, "update_rms": update, "rms_t": ratio}
    device = weights[0].device
    sums = {name: torch.stack([x.to(device) for x in parts]).sum() for name, parts in found.items() if parts}
    return {name: (total / count).sqrt() for name, total in sums.items()}


Piece = tuple[Tensor, Tensor, dict[str, Tensor], Tensor]


def _pieces(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], keys: tuple[str, ...]) -> Iterator[Piece]:
    """(weights, gradients, state by key, steps taken before), flat and in fp32, about PIECE elements at a time.

    Small tensors are joined: an adapter has hundreds of them, and calling an operation costs more than its arithmetic.
    """
    known: dict[bool, list[nn.Parameter]] = {}
    for p in parameters:
        # A parameter that is new to the optimizer has no state yet; the others share their count of steps.
        known.setdefault(bool(optimizer.state.get(p)), []).append(p)
    for same in known.values():
        steps = _steps(optimizer, same[0])
        batch: list[list[Tensor]] = []
        size = 0
        for p in same:
            assert p.grad is not None
            state = optimizer.state.get(p) or {}
            held = [state[k] if state.get(k) is not None else torch.zeros_like(p) for k in keys]
            flat = [x.detach().reshape(-1) for x in (p, p.grad, *held)]
            cuts = [flat] if p.numel() <= PIECE else zip(*(x.split(PIECE) for x in flat), strict=True)
            for cut in cuts:
                batch.append(list(cut))
                size += cut[0].numel()
                if size >= PIECE:
                    yield _joined(batch, keys, steps)
                    batch, size = [], 0
        if batch:
            yield _joined(batch, keys, steps)


def _joined(batch: list[list[Tensor]], keys: tuple[str, ...], steps: Tensor) -> Piece:
    columns = [torch.cat(c) if len(c) > 1 else c[0] for c in map(list, zip(*batch, strict=True))]
    columns = [c.float() for c in columns]
    return columns[0], columns[1], dict(zip(keys, columns[2:], strict=True)), steps.to(columns[0].device)


def _steps(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> Tensor:
    """Steps that this parameter's state has taken, a scalar tensor where the state keeps it: reading it would wait."""
    found = (optimizer.state.get(parameter) or {}).get("step")
    if found is None:
        return torch.tensor(0.0 if not optimizer.state.get(parameter) else 1.0)
    return found if torch.is_tensor(found) else torch.tensor(float(found))


def _adam(
    group: dict[str, Any], weight: Tensor, gradient: Tensor, state: dict[str, Tensor], before: Tensor
) -> tuple[Tensor, Tensor]:
    """Sums of squares of the update, and of g^2 / v (torch.optim.Adam and AdamW)."""
    beta1, beta2 = (float(b) for b in group["betas"])
    decay, eps, rate = float(group["weight_decay"]), float(group["eps"]), float(group["lr"])
    decoupled = bool(group.get("decoupled_weight_decay"))
    if decay and not decoupled:
        gradient = gradient.add(weight, alpha=decay)
    step = (before + 1).float()
    squared = gradient.square()
    second = state["exp_avg_sq"].lerp(squared, 1 - beta2).div_(1 - beta2**step)
    ratio = squared.div_(second.clamp(min=max(eps**2, 1e-38))).sum()
    first = state["exp_avg"].lerp(gradient, 1 - beta1).div_(1 - beta1**step)
    first.div_(second.sqrt_().add_(eps))
    if decay and decoupled:
        first.add_(weight, alpha=decay)
    return first.square_().sum() * rate**2, ratio


def _sgd(group: dict[str, Any], weight: Tensor, gradient: Tensor, buffer: Tensor, before: Tensor) -> Tensor:
    """Sum of squares of the update (torch.optim.SGD)."""
    decay, momentum, rate = float(group["weight_decay"]), float(group["momentum"]), float(group["lr"])
    direction = gradient.add(weight, alpha=decay) if decay else gradient
    if momentum:
        # torch starts the buffer with the gradient itself, undamped.
        share = torch.where(before > 0, 1 - float(group["dampening"]), 1.0)
        moved = buffer * momentum + direction * share
        direction = direction.add(moved, alpha=momentum) if group["nesterov"] else moved
    return direction.square().sum() * rate**2
