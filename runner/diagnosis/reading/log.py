"""What every format is first read into: records in the order of the file, and what the file says about the run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from runner.diagnosis.trace import Column, Kind, Tool
from runner.runfolder import number
from runner.text import Text

Record = dict[str, Any]

NAMES = {
    "step": ("global_step", "step", "current_steps", "global_step/max_steps", "steps", "iteration", "iter", "_step"),
    "epoch": ("epoch",),
    "loss": ("loss", "training loss", "training_loss"),
    "grad_norm": ("grad_norm", "gradient_norm", "gnorm"),
    "learning_rate": ("learning_rate", "lr"),
}
"""Names of a quantity in lower case, the best first; `train/` before any of them is left out."""

EVALUATION = re.compile(
    r"eval[_/](?:(?P<before>.+)[_/])?loss(?:_(?P<after>.+))?|(?P<plain>validation loss|val_loss)", re.I
)
"""eval_loss, eval_<set>_loss, eval_loss_<set> (this project), eval/loss (TensorBoard, W&B), a notebook's column."""


@dataclass
class Log:
    """One log of one or more runs, nothing sorted or joined yet."""

    path: Path
    kind: Kind
    tool: Tool
    records: list[Record]
    state: dict[str, Any] = field(default_factory=dict)
    """max_steps, global_step, num_train_epochs, logging_steps, as far as the file says them beside the records."""

    unreadable: int = 0
    notes: list[Text] = field(default_factory=list)


def plain(key: str) -> str:
    """`key` in lower case, without `train/`."""
    return key.strip().lower().removeprefix("train/")


def keys_of(records: Iterable[Record]) -> list[str]:
    """Every key of `records`, in the order of their first appearance."""
    found: dict[str, None] = {}
    for record in records:
        found.update(dict.fromkeys(record))
    return list(found)


def keys_for(keys: Iterable[str], quantity: str) -> list[str]:
    """Those of `keys` that hold `quantity` (a key of `NAMES`), the best first."""
    names = NAMES[quantity]
    return sorted((k for k in keys if plain(k) in names), key=lambda k: (names.index(plain(k)), k))


def numbers(values: list[Any]) -> Column:
    """A `Column` of what a log wrote: numbers, numbers in quotes, NaN and Infinity in any spelling, None for nothing.

    Anything else counts as nothing.
    """
    try:
        read = np.array(values, dtype=np.float64)
        if read.ndim == 1:
            return Column(read, np.array([v is not None for v in values], dtype=bool))
    except (ValueError, TypeError, OverflowError):
        pass
    each = [_number(v) for v in values]
    known = np.array([v is not None for v in each], dtype=bool)
    return Column(np.array([np.nan if v is None else v for v in each], dtype=np.float64), known)


def _number(value: Any) -> float | None:
    try:
        return number(value)
    except OverflowError:
        return None


def joined(records: list[Record], keys: list[str]) -> Column:
    """One quantity over `records`, shape (n,): of the first of `keys` that a record has a number under."""
    column = Column(np.full(len(records), np.nan), np.zeros(len(records), dtype=bool))
    for key in keys:
        found = numbers([_first_part(r.get(key)) if "/max_steps" in key else r.get(key) for r in records])
        take = found.known & ~column.known
        column = found if take.all() else Column(np.where(take, found.values, column.values), column.known | take)
    return column


def _first_part(value: Any) -> Any:
    """601 of ms-swift's "601/2161"."""
    return value.partition("/")[0] if isinstance(value, str) else value
