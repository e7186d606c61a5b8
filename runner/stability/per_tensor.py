"""Clipping each tensor by itself: AGC and AdaGC. Both need whole gradients, so not under ZeRO or FSDP."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from runner.config.schema import Clip
from runner.stability.clipping import Clipper, Named, ratio, total_norm

HEADS = ("lm_head", "score", "classifier")
"""AGC's authors leave the last linear layer unclipped."""


def unit_norm(x: Tensor) -> Tensor:
    """L2 norm of each output unit: over all but the first dimension, kept for broadcasting; of a vector, the whole."""
    x = x.float()
    if x.ndim <= 1:
        return torch.linalg.vector_norm(x)
    return torch.linalg.vector_norm(x, dim=tuple(range(1, x.ndim)), keepdim=True)


class Agc(Clipper):
    """clip=agc: a unit's gradient is at most `clipping` times the norm of its weights.

    limit = clipping x max(|W_i|, agc_eps) for each row i (Brock et al. 2021, arXiv 2102.06171, eq. 3). Weights that
    start at zero, as LoRA's B, are held to clipping x agc_eps.
    """

    def change(self, named: Named, norm: Tensor) -> Tensor:
        """Scale row by row."""
        for name, parameter in named:
            if any(part in HEADS for part in name.split(".")):
                continue
            assert parameter.grad is not None
            allowed = unit_norm(parameter.detach()).clamp(min=self.clip.agc_eps) * self.clip.clipping
            scale = (allowed / unit_norm(parameter.grad).clamp(min=1e-6)).clamp(max=1.0)
            parameter.grad.mul_(scale.to(parameter.grad.dtype))
        return ratio(total_norm([p for _, p in named]), norm)


class AdaGC(Clipper):
    """clip=adagc: a tensor's gradient is at most `lambda_rel` times the EMA of its own clipped norms.

    In the first `warmup_steps` steps the whole gradient is clipped at `lambda_abs`, and each tensor's reference is the
    smallest clipped norm it had; then reference = beta x reference + (1 - beta) x clipped norm (Wang et al. 2025,
    arXiv 2502.11034, algorithm 1).
    """

    def __init__(self, clip: Clip):
        super().__init__(clip)
        self.steps = 0
        self.reference: dict[str, float] = {}

    def change(self, named: Named, norm: Tensor) -> Tensor:
        """Clip tensor by tensor, one synchronisation for all their norms."""
        gradients = [p.grad for _, p in named if p.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(g.float()) for g in gradients]).tolist()
        warm = self.steps < self.clip.warmup_steps
        whole = min(self.clip.lambda_abs / max(float(norm), 1e-12), 1.0)
        for (name, _), gradient, value in zip(named, gradients, norms, strict=True):
            before = self.reference.get(name)
            scale = whole if warm or before is None else min(self.clip.lambda_rel * before / max(value, 1e-12), 1.0)
            if scale < 1.0:
                gradient.mul_(scale)
            clipped = scale * value
            if before is None:
                self.reference[name] = clipped
            elif warm:
                self.reference[name] = min(before, clipped)
            else:
                self.reference[name] = self.clip.beta * before + (1 - self.clip.beta) * clipped
        self.steps += 1
        return ratio(total_norm([p for _, p in named]), norm)

    def state(self) -> dict[str, Any]:
        """Steps taken and each tensor's reference."""
        return {"steps": self.steps, "reference": dict(self.reference)}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.steps, self.reference = state["steps"], dict(state["reference"])
