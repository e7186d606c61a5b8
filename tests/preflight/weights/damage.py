"""Copies of the micro model with one fault planted in their files, and all checks of the weights at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from runner.preflight.finding import Finding, Result
from runner.preflight.table import CHECKS
from runner.preflight.weights.disk import tensors_of

FILE = "model.safetensors"
EMBEDDING = "model.embed_tokens.weight"
UP = "model.layers.1.mlp.up_proj.weight"


def copy_of(model: Path, to: Path) -> Path:
    """The folder `to`, a copy of the model's."""
    shutil.copytree(model, to)
    return to


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Save the weights again after `change` was applied to {key: tensor}."""
    weights = load_file(folder / FILE)
    change(weights)
    save_file(weights, folder / FILE, metadata={"format": "pt"})


def overwrite(folder: Path, begin: int, data: bytes) -> None:
    """Put bytes into the weight file, its size left as it is."""
    with (folder / FILE).open("r+b") as content:
        content.seek(begin)
        content.write(data)


def data_range(folder: Path) -> tuple[int, int]:
    """(first byte, behind the last) of the data section."""
    stored = tensors_of(folder / FILE).values()
    return min(s.begin for s in stored), max(s.end for s in stored)


def shard(folder: Path) -> list[Path]:
    """Save the model in shards; their files."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / FILE).unlink()
    model.save_pretrained(folder, max_shard_size="100KB")
    return sorted(folder.glob("model-*.safetensors"))


def configure(folder: Path, **settings: Any) -> None:
    """Change config.json."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **settings}), encoding="utf-8")


def results(c: Any) -> dict[str, Result]:
    """{id of the check: result} of all checks of the weights, in their order."""
    return {check.id: check.function()(c) for check in CHECKS if check.stage == "weights"}


def grave(c: Any) -> list[Finding]:
    """Errors and warnings of all checks of the weights."""
    return [f for r in results(c).values() for f in r.findings if f.severity != "note"]
