"""Output folders of other tools: which of the logs in them to read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from runner.runfolder import number, read_json

SKIPPED = {"model", "tokenizer", "node_modules", ".git", "__pycache__", "wandb"}
STATE = "trainer_state.json"
WRITTEN = ("trainer_log.jsonl", "logging.jsonl")
NEIGHBOURS = (
    "training_args.yaml", "training_args.json", "trainer_config.yaml", "trainer_config.json", "args.json",
    "llamaboard_config.yaml", "train_config.yaml", "train_args.json",
)  # fmt: skip
"""Files of settings that lie beside a log; training_args.bin is a pickle and is never opened."""


def candidates(folder: Path) -> list[list[Path]]:
    """Files of `folder` that may be its log, in groups, the best group first.

    First Trainer's states (its own and those of checkpoints), then the logs that LLaMA-Factory and ms-swift write
    beside them, event files of TensorBoard, and last anything that may be a log. Two folders deep.
    """
    files = _files(folder, 2)
    states = _newest([p for p in files if p.name in (STATE, STATE + ".gz")])
    written = [p for p in files if p.name.removesuffix(".gz") in WRITTEN]
    events = [p for p in files if "tfevents" in p.name]
    suffixes = (".log", ".txt", ".out", ".jsonl", ".csv", ".tsv", ".json")
    other = [p for p in files if p.parent == folder and p.name.removesuffix(".gz").endswith(suffixes)]
    return [states, written, events, [p for p in other if p not in states and p not in written]]


def _newest(states: list[Path]) -> list[Path]:
    """Without the checkpoints older than the two newest of their run: their states are prefixes of those."""
    numbered: dict[Path, list[tuple[int, Path]]] = {}
    for path in states:
        step = path.parent.name.removeprefix("checkpoint-")
        if step.isdigit() and path.parent.name != step:
            numbered.setdefault(path.parent.parent, []).append((int(step), path))
    old = {path for group in numbered.values() for _, path in sorted(group)[:-2]}
    return [p for p in states if p not in old]


def _files(folder: Path, depth: int) -> list[Path]:
    found: list[Path] = []
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return found
    for path in inside:
        if path.is_file():
            found.append(path)
        elif depth and path.is_dir() and path.name not in SKIPPED:
            found += _files(path, depth - 1)
    return found


def max_grad_norm(log: Path) -> float | None:
    """The clip that a file of settings beside `log` (or one folder up) names; None where there is none."""
    for folder in (log.parent, log.parent.parent):
        for name in NEIGHBOURS:
            path = folder / name
            if not path.is_file():
                continue
            value: Any = (read_json(path) or {}).get("max_grad_norm") if name.endswith(".json") else _of_yaml(path)
            found = number(value)
            if found is not None:
                return found
        if not log.parent.name.startswith("checkpoint-"):
            break
    return None


def _of_yaml(path: Path) -> str | None:
    text = path.read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^\s*(?:train\.)?max_grad_norm:\s*['\"]?([-+.\deE]+)", text, re.M)
    return found[1] if found else None


def labels(log: Path) -> int | None:
    """Classes of the classifier whose checkpoint lies beside `log`."""
    config = read_json(log.parent / "config.json") or {}
    if not any("Classification" in str(a) for a in config.get("architectures") or []):
        return None
    named = config.get("id2label")
    return len(named) if isinstance(named, dict) and named else 2
