"""Rows and tokens of a broken step, by their names; and what is kept of its batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from runner.training.attribution import clean_name


class Examined(Protocol):
    """What is used of the trainer (`runner.training.truth.Truth`)."""

    step_now: Any
    model: Any
    accelerator: Any
    instruments: Any

    def repeat_micro(self, i: int) -> Tensor:
        """Run micro-batch `i` of this step again; its detached loss."""

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters that train, by name."""


def by_loss(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Largest loss first, rows without one last."""
    return sorted(rows, key=lambda row: -math.inf if row["loss"] is None else row["loss"], reverse=True)


def named_rows(batch: dict[str, Any], indices: list[int]) -> list[str]:
    """Row ids of batch rows; [] where rows of the batch are not rows of the data (packed)."""
    names = batch.get("row_id")
    ids = batch.get("input_ids")
    if names is None or ids is None or len(names) != len(ids):
        return []
    return [str(names[i]) for i in indices]


def rows_of(trainer: Examined, i: int) -> list[dict[str, Any]]:
    """row_id, source, length, tokens, loss (mean per supervised token) of the rows of micro-batch `i`, and their text.

    Tokens and loss are None where the telemetry of the step does not have them.
    """
    step, batch = trainer.step_now, trainer.step_now.batches[i]
    names = list(batch.get("row_id") or [])
    sums: list[float] = []
    tokens: list[int] = []
    if len(step.micros) == len(step.batches) and len(step.micros[i].tokens) == len(names):
        sums, tokens = step.micros[i].loss_sums.float().tolist(), step.micros[i].tokens.int().tolist()
    decode = reader(trainer)
    ids, mask = batch.get("input_ids"), batch.get("attention_mask")
    rows = []
    for r, name in enumerate(names):
        row: dict[str, Any] = {
            "row_id": name,
            "source": batch["source"][r] if "source" in batch else None,
            "length": int(batch["length"][r]) if "length" in batch else None,
            "tokens": tokens[r] if tokens else None,
            "loss": sums[r] / max(tokens[r], 1) if tokens else None,
        }
        if decode is not None and ids is not None and len(ids) == len(names):
            kept = ids[r][mask[r].bool()] if mask is not None and mask.shape == ids.shape else ids[r][: row["length"]]
            row["text"] = decode(kept.tolist())
        rows.append(row)
    return rows


def reader(trainer: Examined) -> Callable[[list[int]], str] | None:
    """Turns token ids into text; None where the run keeps text out or has no tokenizer."""
    decode: Callable[[list[int]], str] | None = getattr(trainer.instruments, "decode", None)
    return decode if trainer.instruments.stability.incident.save_text else None


def token_of(trainer: Examined, parameter: dict[str, Any], micros: list[int]) -> dict[str, Any]:
    """For a bad embedding: {"row", "token": {id, in_rows, text}} of the first bad row whose token the micro-batches
    `micros` hold. {} where there is none, and for any other parameter."""
    named = {clean_name(n): p for n, p in trainer.model.named_parameters()}
    table = named.get(parameter["name"])
    if not any(isinstance(m, nn.Embedding) and m.weight is table for m in trainer.model.modules()) or table is None:
        return {}
    values = table.grad if parameter["what"] == "gradient" else table.detach()
    batches = [batch for batch in (trainer.step_now.batches[i] for i in micros) if "input_ids" in batch]
    if values is None or not batches:
        return {}
    ids = torch.cat([batch["input_ids"].reshape(-1) for batch in batches]).unique().to(values.device)
    bad = ids[~torch.isfinite(values[ids]).all(1)]
    if not len(bad):
        return {}
    row = int(bad[0])
    uses = [(batch, (batch["input_ids"] == row).any(1).nonzero().flatten().tolist()) for batch in batches]
    decode = reader(trainer)
    token = {
        "id": row,
        "in_rows": [name for batch, indices in uses for name in named_rows(batch, indices)],
        **({"text": decode([row])} if decode else {}),
    }
    return {"row": row, "token": token}


def batches_of(trainer: Examined, facts: dict[str, Any]) -> dict[str, Any]:
    """What this process needs to repeat the step: micro-batches, random states, and what scaled its loss."""
    step = trainer.step_now
    return {
        "step": int(facts["step"]),
        "batches": [on_cpu(batch) for batch in step.batches],
        "rng": list(step.rng),
        "num_items": on_cpu(step.num_items),
        "loss_scale": facts["loss_scale"],
        "accumulation": len(step.batches),
        "num_threads": torch.get_num_threads(),
        "processes": facts["processes"],
        **classes_of(trainer),
    }


def classes_of(trainer: Examined) -> dict[str, Any]:
    """Classification: names and weights of the labels, which the training rows of the run have decided."""
    if not hasattr(trainer, "class_weights"):
        return {}
    names: dict[int, str] = trainer.model.config.id2label
    return {"labels": [names[i] for i in sorted(names)], "class_weights": on_cpu(trainer.class_weights)}


def on_cpu(value: Any) -> Any:
    """`value` with every tensor copied to the CPU: of a view, only what it shows."""
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {key: on_cpu(item) for key, item in value.items()}
    return value
