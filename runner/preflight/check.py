"""One line of the table of checks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from runner.preflight.context import Context
from runner.preflight.finding import Result

Stage = Literal["config", "data", "weights", "batch"]
STAGES: tuple[Stage, ...] = ("config", "data", "weights", "batch")
"""Cheapest first. config knows only the configuration, and is free of torch; data adds tokenizer, rows and plan;
weights the loaded model; batch the trainer."""


@dataclass(frozen=True)
class Check:
    """One check. What it does is in the function that `runs` names, imported only when it is run."""

    id: str
    """`room.what`; findings have ids of their own, those of the causes."""

    title: str
    """What is looked at, a few words."""

    stage: Stage
    codes: tuple[str, ...]
    """Catalogue codes it can find."""

    runs: str
    """`module:function` below runner.preflight; the function takes a `Context` and returns a `Result`."""

    deep: bool = False
    """Only with checks.level=deep."""

    alone: bool = False
    """Runs the trainer on a batch, which several processes would have to do in step: left out under a launcher."""

    def function(self) -> Callable[[Context], Result]:
        """The function."""
        module, _, name = self.runs.partition(":")
        found: Callable[[Context], Result] = getattr(importlib.import_module(f"runner.preflight.{module}"), name)
        return found
