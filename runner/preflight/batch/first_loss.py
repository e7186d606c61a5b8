"""The first loss against what guessing would give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from datasets import Dataset

from runner.preflight.batch.arithmetic import chosen, forward, run
from runner.preflight.batch.rows import collate, deterministic, first_rows, micro_batches, untouched
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found
from runner.training.truth import token_mean

AT_CHANCE = 0.9
"""A language model whose first loss is this share of ln(vocabulary) or more knows nothing of the text."""

JUNK_SFT = 1.5
JUNK_CLASSIFIER = 10.0
"""Multiples of chance that no usable start reaches: an untrained head of ordinary size stays within a few."""

NEAR = 0.1
"""A ratio counts as a whole number within this share of it."""


def multiple(loss: float, chance: float, counts: Mapping[str, int]) -> tuple[str, int] | None:
    """(name, n) of the first of `counts` with n >= 2 that `loss` is that many times `chance`; None where none is."""
    if not math.isfinite(loss) or chance <= 0:
        return None
    ratio = loss / chance
    return next(((name, n) for name, n in counts.items() if n >= 2 and abs(ratio / n - 1) <= NEAR), None)


def level(loss: float, choices: int, classification: bool) -> str | None:
    """What a first loss says by itself: "chance" (a language model that guesses), "junk" (far worse than guessing), or
    None; one that is not finite is explained by trainability.gradients.

    `choices` is the number of labels, or the size of the vocabulary.
    """
    if not math.isfinite(loss):
        return None
    ratio = loss / math.log(choices)
    if ratio > (JUNK_CLASSIFIER if classification else JUNK_SFT):
        return "junk"
    return "chance" if not classification and ratio >= AT_CHANCE else None


def first_loss(c: Context) -> Result:
    """A3, F1, F5: the first loss as the trainer computes it, beside ln K; of several micro-batches too."""
    loss = measured(c)
    choices = len(c.data.labels) if c.classification and c.data.labels else vocabulary(c)
    if choices < 2:
        return found(f"{loss:.4g}; one choice only, so that chance means nothing")
    chance, name = math.log(choices), f"ln {choices}"
    numbers: dict[str, Any] = {"loss": loss, "chance": chance, "ratio": loss / chance, "choices": choices}
    summary = f"{loss:.4g} = {loss / chance:.2f} x {name}"
    if c.classification and c.plan.accumulation > 1:
        rows = chosen(c, min(c.plan.accumulation, MOST_MICROS))
        whole = accumulated(c, rows)
        counts = {"micro-batches": len(rows), "processes": c.processes}
        hit = multiple(whole, chance, counts)
        # A head far from zero can reach such a ratio by accident: the rows' own mean decides.
        if hit is not None and multiple(whole, row_mean(c, rows), counts) is not None:
            return found(summary, multiplied(*hit, {**numbers, "loss": whole, "ratio": whole / chance}, whole, name))
    kind = level(loss, choices, c.classification)
    return found(summary, *(f for f in (said(c, kind, loss, name, numbers),) if f is not None))


def multiplied(what: str, n: int, numbers: Mapping[str, Any], loss: float, chance: str) -> Finding:
    """The loss of `n` micro-batches or processes was added up and not divided."""
    numbers = {**numbers, "factor": n}
    if what == "processes":
        return Finding(
            "trainer.different_quantity",
            "warning",
            f"the first loss {loss:.4g} is {n} x {chance}, and there are {n} processes: their losses are added up",
            numbers=numbers,
        )
    return Finding(
        "trainer.accumulation_not_divided",
        "warning",
        f"the first loss {loss:.4g} is {n} x {chance} with {n} micro-batches: their losses are added up, not averaged",
        ("batch.gradient_accumulation_steps",),
        numbers,
    )


def said(c: Context, kind: str | None, loss: float, chance: str, numbers: Mapping[str, Any]) -> Finding | None:
    """The finding for a `level`."""
    if kind == "chance":
        return Finding(
            "weights.keys_do_not_match",
            "warning",
            f"first loss {loss:.4g} at chance: {numbers['ratio']:.2f} x {chance}, so this model knows nothing of the "
            "text yet; a pretrained one starts far below",
            ("model.path",),
            numbers,
        )
    if kind == "junk":
        return Finding(
            "weights.damaged",
            "warning",
            f"first loss {loss:.4g} is {numbers['ratio']:.3g} x {chance}, far worse than guessing: some weights, or "
            "the head, are much too large",
            ("model.path",),
            numbers,
        )
    return None


def vocabulary(c: Context) -> int:
    """Rows of the output layer, which is what the loss chooses from."""
    model: Any = c.trainer.model
    head = model.get_output_embeddings()
    return int(head.weight.shape[0])


MOST_MICROS = 4
"""Micro-batches of one row that are run to see what the trainer makes of several."""


def measured(c: Context) -> float:
    """Loss of the first micro-batch, dropout off, as trainability.gradients has left it, or else by the same way."""
    if "first_loss" in c.facts:
        return float(c.facts["first_loss"]["loss"])
    with untouched(c), deterministic(c.trainer.model):
        return forward(c, collate(c, first_rows(c, c.plan.per_device)))


def accumulated(c: Context, rows: Dataset) -> float:
    """The trainer's loss of one step of which each row is a micro-batch, dropout off."""
    with untouched(c), deterministic(c.trainer.model):
        return run(c, micro_batches(c, rows, 1)).loss


def row_mean(c: Context, rows: Dataset) -> float:
    """Mean cross-entropy of the rows, one by one and free of any divisor of the trainer's."""
    trainer: Any = c.trainer
    held: list[tuple[str, float, int]] = []
    with untouched(c), torch.no_grad(), trainer.accelerator.autocast():
        trainer.model.eval()
        for i in range(len(rows)):
            inputs = collate(c, rows.select([i]))
            outputs = trainer.model(**{k: v for k, v in inputs.items() if k != "labels"}, use_cache=False)
            sums, counts = trainer.per_example(outputs, inputs)
            held.append(("", float(sums.sum()), int(counts.sum())))
    return token_mean(held)
