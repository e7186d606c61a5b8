"""The trainer's loss against arithmetic done by hand, and against itself on other splits of the same rows."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from runner.causes.catalogue import CAUSES
from runner.preflight.batch.rows import (
    collate,
    deterministic,
    drop_gradients,
    first_rows,
    loss_and_gradients,
    micro_batches,
    prepared,
    untouched,
)
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, Severity, found, not_needed, ok
from runner.stability.clipping import total_norm
from runner.training.build import class_weights

TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2, "fp16": 2e-2}
"""Relative difference of two losses that are the same on paper."""

TENSOR_CORES = 5e-3
"""The same where a GPU multiplies fp32 matrices in TF32."""

LOOSER = 5.0
"""A gradient norm may differ this many times more than the loss."""

TOKENS = 256
"""Tokens of the rows that are split, at most; two rows are taken however long they are."""

ROWS = 8
FP16_SCALE = 256.0
"""Loss scale of these passes: gradients of one batch neither overflow nor vanish."""


@dataclass(frozen=True)
class Pass:
    """One way of computing the loss of the same rows."""

    loss: float
    norm: float = math.nan
    """Norm of the gradient over all that trains; NaN where it was not computed."""


def close(a: float, b: float, tolerance: float) -> bool:
    """Whether two numbers are equal within a share of the larger one; not where one of them is not finite."""
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


def tolerance(c: Context) -> float:
    """What rounding may do to a loss in the coarsest number format of the run."""
    largest = max(TOLERANCE[name] for name in (c.formats.compute, c.formats.frozen, c.formats.trainable))
    tf32 = torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32
    return max(largest, TENSOR_CORES) if tf32 else largest


def wrong_loss(ours: Pass, plain: Pass, share: float, counts: Mapping[str, int], fused: bool) -> tuple[str, str] | None:
    """(cause id, what it is) where the trainer's loss is not the plain one within `share`; None where it is.

    A ratio that is one of `counts` names another quantity; any other difference is the kernel's where it is `fused`.
    """
    ratio = ours.loss / plain.loss if plain.loss else math.inf
    if not close(ours.loss, plain.loss, share):
        for name, n in counts.items():
            if n >= 2 and close(ratio, n, 0.01):
                return "trainer.different_quantity", f"{n} times as large, which is the number of {name}"
            if n >= 2 and close(ratio, 1 / n, 0.01):
                return "trainer.different_quantity", f"1/{n} of it, and {n} is the number of {name}"
        return ("kernels.fused_loss" if fused else "trainer.different_quantity"), f"{ratio:.4g} times the plain one"
    if not close(ours.norm, plain.norm, LOOSER * share):
        return "kernels.fused_loss", f"equal, and its gradient is {ours.norm:.4g} instead of {plain.norm:.4g}"
    return None


def loss(c: Context) -> Result:
    """D4, F5: value and gradient norm of one micro-batch, by the trainer and by torch's cross-entropy."""
    trainer: Any = c.trainer
    why = other_objective(trainer)
    if why is not None:
        return not_needed(why)
    with untouched(c), deterministic(trainer.model):
        rows = chosen(c, min(c.plan.per_device, ROWS), least=1)
        batch = collate(c, rows)
        ours = run(c, [batch])
        drop_gradients(list(trainer.model.parameters()))
        plain, tokens = by_hand(c, batch)
    if not (math.isfinite(ours.loss) and math.isfinite(plain.loss)):
        return ok(f"not finite ({ours.loss:.4g}, plain {plain.loss:.4g}): nothing to compare")
    counts = {
        "supervised tokens": tokens,
        "rows": len(rows),
        "micro-batches in a step": c.plan.accumulation,
        "processes": c.processes,
    }
    fused = not c.classification or bool(trainer.args.use_liger_kernel)
    wrong = wrong_loss(ours, plain, tolerance(c), counts, fused)
    summary = f"{ours.loss:.5g} and plain {plain.loss:.5g}, gradient norms {ours.norm:.4g} and {plain.norm:.4g}"
    if wrong is None:
        return ok(summary)
    sentence = f"the trainer's loss {ours.loss:.5g} of {len(rows)} rows is {wrong[1]} (torch: {plain.loss:.5g})"
    numbers = {
        "loss": ours.loss,
        "plain_loss": plain.loss,
        "grad_norm": ours.norm,
        "plain_grad_norm": plain.norm,
        "rows": len(rows),
        "supervised_tokens": tokens,
    }
    severity = CAUSES[wrong[0]].severity if wrong[0] == "kernels.fused_loss" else "warning"
    return found(summary, Finding(wrong[0], severity, sentence, ("trainer.compute_loss",), numbers))


def other_objective(trainer: Any) -> str | None:
    """Why the trainer's loss is meant to differ from cross-entropy; None where it is not."""
    arguments = trainer.args
    if arguments.label_smoothing_factor:
        return f"label_smoothing_factor={arguments.label_smoothing_factor} asks for another loss"
    kind = getattr(arguments, "loss_type", "nll")
    if kind == "dft":
        return "loss_type=dft asks for another loss"
    if getattr(trainer, "aux_loss_enabled", False):
        return "the router's loss is part of it"
    return None


def by_hand(c: Context, batch: Mapping[str, Any]) -> tuple[Pass, int]:
    """Cross-entropy of the model's logits over the supervised tokens (classification: the weighted mean over rows), and
    the number of them. Gradients are left in `.grad`."""
    trainer: Any = c.trainer
    scale = FP16_SCALE if trainer.accelerator.scaler is not None else 1.0
    labels = batch["labels"]
    trainer.model.train()
    outputs = prepared(c)(**{k: v for k, v in batch.items() if k != "labels"}, use_cache=False)
    logits = outputs.logits.float()
    if c.classification:
        weight = class_weights(c.cfg, c.data)
        weight = None if weight is None else weight.to(labels.device)
        value, count = F.cross_entropy(logits, labels, weight=weight), labels.numel()
    else:
        flat, target = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        count = int((target != -100).sum())
        value = F.cross_entropy(flat, target, ignore_index=-100, reduction="sum") / max(count, 1)
    (value * scale).backward()
    return Pass(float(value.detach()), gradient_norm(c) / scale), count


def gradient_norm(c: Context) -> float:
    """Norm of all that lies in `.grad` of what trains; 0 where there is none."""
    gradients = [p for _, p in c.trainer.trainable() if p.grad is not None]
    return float(total_norm(gradients)) if gradients else 0.0


def run(c: Context, micros: Sequence[dict[str, Any]]) -> Pass:
    """The trainer's own loss and gradient of a step of these micro-batches; `.grad` is None afterwards."""
    value = loss_and_gradients(c, micros, scale=FP16_SCALE)[0]
    norm = gradient_norm(c)
    drop_gradients(list(c.trainer.model.parameters()))
    return Pass(value, norm)


def chosen(c: Context, most: int, least: int = 2) -> Any:
    """Up to `most` rows of the first ones, the shortest first, of `TOKENS` tokens in all but for the first `least`.

    Short rows, since what is looked for does not depend on length; rows of several lengths, since it depends on that.
    """
    rows = first_rows(c, 2 * ROWS)
    order = sorted(range(len(rows)), key=lambda i: int(rows[i]["length"]))
    # Every second one where there are enough: neighbours in length may all be equally long.
    order = order[::2] + order[1::2]
    taken: list[int] = []
    for i in order:
        if len(taken) < least or (len(taken) < most and sum(int(rows[j]["length"]) for j in (*taken, i)) <= TOKENS):
            taken.append(i)
    return rows.select(taken)


def padded_left(c: Context, batch: Mapping[str, Any]) -> dict[str, Any]:
    """The same rows with their padding on the left, two columns more than they need.

    Positions are given where the model takes them: they count the tokens that are not masked.
    """
    mask = batch["attention_mask"]
    fill = {"input_ids": c.tokenizer.pad_token_id, "labels": -100}
    wide = mask.shape[1]
    moved: dict[str, Any] = {}
    for key, value in batch.items():
        if not torch.is_tensor(value) or value.ndim != 2 or value.shape[1] != wide:
            moved[key] = value
            continue
        new = torch.full((len(value), wide + 2), int(fill.get(key, 0)), dtype=value.dtype, device=value.device)
        for row, (content, kept) in enumerate(zip(value, mask, strict=True)):
            real = content[kept.bool()]
            new[row, wide + 2 - len(real) :] = real
        moved[key] = new
    if takes(c.trainer.model, "position_ids"):
        moved["position_ids"] = (moved["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return moved


def takes(model: Any, argument: str) -> bool:
    """Whether the forward pass of the model below an adapter has this argument."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return argument in inspect.signature(type(base).forward).parameters


def grows(whole: float, parts: float, pieces: int) -> bool:
    """Whether `parts`, of `pieces` micro-batches, is nearer to `pieces` x `whole` than to `whole`."""
    if whole <= 0 or parts <= 0 or pieces < 2:
        return False
    return math.log(parts / whole) > math.log(pieces) / 2


def judge_split(runs: Mapping[str, Pass], pieces: Mapping[str, int], share: float) -> str | None:
    """Cause id of a loss that depends on how its rows are laid out; None where it does not.

    `runs` are "whole" (one micro-batch), "left" (padded left), "reversed", and the names of `pieces` (number of
    micro-batches), each of the same rows. The padding side is asked first: where it matters, every split differs too.
    """
    whole = runs["whole"]
    if not close(runs["left"].loss, whole.loss, share):
        return "labels.pad_token"
    differs = [name for name in pieces if not same(runs[name], whole, share)]
    if differs:
        added = all(
            grows(whole.loss, runs[name].loss, n) or grows(whole.norm, runs[name].norm, n) for name, n in pieces.items()
        )
        return "trainer.accumulation_not_divided" if added else "trainer.mean_of_means"
    return None if close(runs["reversed"].loss, whole.loss, share) else "trainer.different_quantity"


def same(a: Pass, b: Pass, share: float) -> bool:
    """Whether loss and gradient norm agree."""
    return close(a.loss, b.loss, share) and close(a.norm, b.norm, LOOSER * share)


SAID = {
    "labels.pad_token": "the loss of the same {rows} rows is {whole.loss:.5g} padded right and {left.loss:.5g} padded "
    "left: what is read depends on the padding",
    "trainer.accumulation_not_divided": "the same {rows} rows give loss {whole.loss:.5g} as one micro-batch and "
    "{singles.loss:.5g} as {rows}, gradient norm {whole.norm:.4g} and {singles.norm:.4g}: micro-batches are added up, "
    "not averaged",
    "trainer.mean_of_means": "the same {rows} rows give loss {whole.loss:.5g} as one micro-batch and "
    "{singles.loss:.5g} as {rows}, gradient norm {whole.norm:.4g} and {singles.norm:.4g}: rows of unequal length do "
    "not weigh alike",
    "trainer.different_quantity": "the same {rows} rows give loss {whole.loss:.5g}, and {reversed.loss:.5g} in reverse "
    "order",
}
PLACE = {
    "labels.pad_token": "model.config.pad_token_id",
    "trainer.accumulation_not_divided": "batch.gradient_accumulation_steps",
    "trainer.mean_of_means": "trainer.compute_loss",
    "trainer.different_quantity": "trainer.compute_loss",
}


def split(c: Context) -> Result:
    """E6, F1, F2: the same rows as one micro-batch, as two, one by one, padded left, and in reverse order."""
    trainer: Any = c.trainer
    if getattr(trainer, "aux_loss_enabled", False):
        return not_needed("the router's loss is a mean over each micro-batch")
    rows = chosen(c, min(ROWS, max(2, c.plan.per_device)))
    n = len(rows)
    if n < 2:
        return not_needed("one row only")
    with untouched(c), deterministic(trainer.model):
        whole = collate(c, rows)
        runs = {"whole": run(c, [whole])}
        if not math.isfinite(runs["whole"].loss):
            return ok(f"loss {runs['whole'].loss}: nothing to compare")
        pieces = {"halves": 2, "singles": n} if n > 2 else {"singles": n}
        if n > 2:
            runs["halves"] = run(c, micro_batches(c, rows, -(-n // 2)))
        runs["singles"] = run(c, micro_batches(c, rows, 1))
        runs["left"] = Pass(forward(c, padded_left(c, whole)))
        runs["reversed"] = Pass(forward(c, {k: backwards(v, n) for k, v in whole.items()}))
    wrong = judge_split(runs, pieces, tolerance(c))
    farthest = max((r.loss for r in runs.values()), key=lambda x: abs(x - runs["whole"].loss))
    packing = ", packing is on" if getattr(trainer, "packing", False) else ""
    summary = f"{n} rows in {len(runs)} layouts, loss {runs['whole'].loss:.5g}, farthest {farthest:.5g}{packing}"
    if wrong is None:
        return ok(summary)
    numbers = {"rows": n, **{f"loss_{name}": r.loss for name, r in runs.items()}}
    numbers |= {f"grad_norm_{name}": r.norm for name, r in runs.items() if math.isfinite(r.norm)}
    severity: Severity = "error" if wrong == "labels.pad_token" else "warning"
    sentence = SAID[wrong].format(rows=n, **runs)
    return found(summary, Finding(wrong, severity, sentence, (PLACE[wrong],), numbers))


def backwards(value: Any, rows: int) -> Any:
    """A tensor with its rows in reverse order; anything else as it is."""
    return value.flip(0) if isinstance(value, Tensor) and value.ndim and len(value) == rows else value


def forward(c: Context, batch: dict[str, Any]) -> float:
    """The trainer's own loss of one micro-batch that is a whole step, without gradients."""
    trainer: Any = c.trainer
    trainer.model.train()
    count = trainer._get_num_items_in_batch([batch], trainer.args.device)
    with torch.no_grad(), trainer.compute_loss_context_manager():
        return float(trainer.compute_loss(prepared(c), dict(batch), num_items_in_batch=count))
