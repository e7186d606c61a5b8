"""The configured attention backend against eager on one padded batch (D1, D2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runner.preflight.batch.rows import deterministic, first_rows, untouched
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, not_needed

LONGEST = 64
"""Tokens that are kept of a row: enough for a padded batch, and cheap."""

SIDES = ("right", "left", "right")
"""Where each of three rows is padded; the first is the longest, the others are cut short."""

LIMITS = {"float32": 1e-3, "bfloat16": 0.3, "float16": 0.05}
"""Relative difference of a token's last hidden state, or of the input's gradient, above which two backends disagree, by
the format that computes. Rounding alone was measured at 1e-6 to 1e-5, 0.02 to 0.05 and 0.002 to 0.01."""


@dataclass(frozen=True)
class Passed:
    """One forward and backward pass of the backbone."""

    hidden: Tensor
    """Last hidden states, (rows, tokens, width), fp32."""

    gradient: Tensor
    """Gradient of a fixed sum over real tokens with respect to the input embeddings, same shape, fp32."""


def attention(c: Context) -> Result:
    """D1, D2: hidden states and input gradients of rows padded on the right and on the left, under both backends."""
    trainer: Any = c.trainer
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return not_needed("DeepSpeed and FSDP hold the weights in shards until training starts")
    model = trainer.model.get_base_model() if hasattr(trainer.model, "get_base_model") else trainer.model
    backend = model.config._attn_implementation
    if backend == "eager":
        return not_needed("attention is eager already")
    picked = first_rows(c, max(3, c.plan.per_device)).select(range(min(3, len(c.data.train))))
    rows = [list(row)[:LONGEST] for row in picked["input_ids"]]
    rows[1:] = [row[: max(2, len(rows[0]) // 4)] for row in rows[1:]]
    sides = SIDES[: len(rows)]
    pad = c.tokenizer.pad_token_id
    with untouched(c), deterministic(trainer.model):
        trainer.model.eval()
        ids, mask = padded(rows, pad, sides)
        ours = run(trainer, model, ids, mask)
        with attention_of(model, "eager") as switched:
            if not switched:
                return not_needed(f"{type(model).__name__} cannot switch its attention backend")
            eager = run(trainer, model, ids, mask)
        if not finite(eager):
            return not_needed("eager attention is not finite either")
        if not finite(ours):
            alone = all(finite(run(trainer, model, *padded([row], pad, ("right",)))) for row in rows)
            return found(f"{backend} is not finite", broken(backend, ours, mask, list(picked["row_id"]), alone))
    apart_hidden, apart_gradient = (apart(x, y, mask) for x, y in zip(pair(ours), pair(eager), strict=True))
    worst = max(apart_hidden, apart_gradient)
    limit = LIMITS[str(compute_dtype(c)).removeprefix("torch.")]
    said = f"{backend} and eager differ by {worst:.2g}"
    if worst <= limit:
        return found(said)
    return found(
        said,
        Finding(
            "kernels.attention_backend",
            "error",
            f"On {len(rows)} rows, padded on the right and on the left, {backend} attention and eager differ by "
            f"{apart_hidden:.2g} of a token's hidden state and {apart_gradient:.2g} of its gradient; rounding explains "
            f"{limit:g}.",
            ("model.attn_implementation",),
            {"backend": str(backend), "hidden": apart_hidden, "gradient": apart_gradient, "limit": limit},
            ("model.attn_implementation=eager",),
        ),
    )


def broken(backend: str, ours: Passed, mask: Tensor, row_ids: list[str], alone: bool) -> Finding:
    """The finding where the backend gives NaN or infinity and eager does not.

    `alone`: whether the backend is finite on each row without padding, which tells padding from the rest.
    """
    bad = ~(torch.isfinite(ours.hidden).all(-1) & torch.isfinite(ours.gradient).all(-1))
    shown = [i for i in range(len(bad)) if bool(bad[i].any())]
    what = "hidden states" if not bool(torch.isfinite(ours.hidden).all()) else "gradients"
    padding = sorted({SIDES[i] for i in shown if bool((mask[i] == 0).any())})
    where = f" (padded on the {' and '.join(padding)})" if padding else ""
    return Finding(
        "kernels.masked_rows" if alone else "kernels.attention_backend",
        "error",
        f"{backend} attention gives {what} that are not finite in {len(shown)} of {len(bad)} rows{where}; eager does "
        f"not{', and without padding neither does it' if alone else '; padding is not the cause'}.",
        tuple(row_ids[i] for i in shown),
        {"backend": str(backend), "padding": padding, "rows": shown, "positions": int(bad.sum())},
        ("model.attn_implementation=eager",),
    )


@contextmanager
def attention_of(model: Any, backend: str) -> Iterator[bool]:
    """Inside, `model` uses `backend`; yields False where it cannot. Afterwards its configuration is as before."""
    before = model.config._attn_implementation
    parts = {name: getattr(model.config, name)._attn_implementation for name in model.config.sub_configs}
    model.set_attn_implementation(backend)
    try:
        yield model.config._attn_implementation == backend
    finally:
        model.set_attn_implementation({"": before, **parts} if parts else before)


def padded(rows: Sequence[list[int]], pad: int, sides: Sequence[str]) -> tuple[Tensor, Tensor]:
    """(ids, mask), both int64 of shape (rows, longest); each row is padded on its side of `sides` (left or right)."""
    width = max(len(row) for row in rows)
    ids, mask = [], []
    for row, side in zip(rows, sides, strict=True):
        gap = width - len(row)
        ids.append([pad] * gap + row if side == "left" else row + [pad] * gap)
        mask.append([0] * gap + [1] * len(row) if side == "left" else [1] * len(row) + [0] * gap)
    return torch.tensor(ids), torch.tensor(mask)


def run(trainer: Any, model: Any, ids: Tensor, mask: Tensor) -> Passed:
    """One pass of the backbone, with the number formats of training. Tensors of the result lie on the CPU."""
    device = trainer.args.device
    with torch.no_grad():
        embeddings = model.get_input_embeddings()(ids.to(device))
    embeddings = embeddings.detach().requires_grad_(True)
    with trainer.accelerator.autocast():
        out = model.base_model(inputs_embeds=embeddings, attention_mask=mask.to(device), use_cache=False)
    hidden = out.last_hidden_state.float()
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(hidden.shape, generator=generator) * mask[..., None]
    (gradient,) = torch.autograd.grad((hidden * direction.to(device)).sum(), embeddings)
    return Passed(hidden.detach().cpu(), gradient.float().cpu())


def pair(passed: Passed) -> tuple[Tensor, Tensor]:
    """(hidden, gradient)."""
    return passed.hidden, passed.gradient


def finite(passed: Passed) -> bool:
    """Whether hidden states and gradients are finite, at padding too: what is NaN there is multiplied on."""
    return all(bool(torch.isfinite(x).all()) for x in pair(passed))


def apart(a: Tensor, b: Tensor, mask: Tensor) -> float:
    """Largest distance |a_t - b_t| over real tokens t, in units of the root mean square of |b_t|.

    a and b have shape (rows, tokens, width), mask (rows, tokens). NaN counts as infinity.
    """
    real = mask == 1
    a, b = a[real].double(), b[real].double()
    scale = float(b.square().sum(-1).mean().sqrt())
    distance = float((a - b).norm(dim=-1).amax())
    if not math.isfinite(distance):
        return math.inf
    return distance / scale if scale else (0.0 if distance == 0 else math.inf)


def compute_dtype(c: Context) -> torch.dtype:
    """The coarser of the compute format and that of the frozen weights."""
    from runner.model.formats import DTYPES

    formats = {DTYPES[c.formats.compute], DTYPES[c.formats.frozen if c.cfg.lora.method != "none" else "fp32"]}
    return max(formats, key=lambda d: torch.finfo(d).eps)
