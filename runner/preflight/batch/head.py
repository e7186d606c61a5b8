"""The head of a classifier: which modules it is, and whether it trains."""

from __future__ import annotations

from typing import Any

from torch import nn

from runner.model.load import head_names
from runner.preflight.context import Context
from runner.preflight.finding import MOST, Finding


def heads(model: Any) -> dict[str, nn.Module]:
    """{name: module} of a classifier's top-level modules beside its backbone that have parameters."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    parts = {name: getattr(base, name) for name in head_names(base)}
    return {name: part for name, part in parts.items() if next(part.parameters(), None) is not None}


def in_use(head: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters of a head that its forward pass uses: under PEFT not the untouched copy that it keeps."""
    return {name: p for name, p in head.named_parameters() if not name.startswith("original_module.")}


def frozen_heads(c: Context) -> list[Finding]:
    """One finding for each head of a classifier none of whose weights train."""
    if not c.classification:
        return []
    findings = []
    for name, head in heads(c.trainer.model).items():
        used = in_use(head)
        if any(p.requires_grad for p in used.values()):
            continue
        spread = max((float(p.detach().float().std()) for p in used.values() if p.ndim > 1), default=0.0)
        dead = ", and all its weights are equal, so nothing below it gets a gradient either" if spread == 0 else ""
        weights = [f"{name}.{part}" for part in used]
        findings.append(
            Finding(
                "trainability.head_frozen",
                "error",
                f"The classification head {name} does not train; standard deviation of its weights {spread:.2g}{dead}.",
                tuple(weights[:MOST]),
                {"std": spread, "parameters": sum(p.numel() for p in used.values())},
                ("lora.adapter=null",) if c.cfg.lora.method == "lora" and c.cfg.lora.adapter else (),
            )
        )
    return findings
