"""Experiments on the micro model, built up to a stage, for checks to look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def context(make_config: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """context("data" | "weights" | "batch", task="sft", level="deep", spoil=None, **changes) -> Context.

    Everything is built and no check is run. `changes` are make_config's; `spoil(cfg)` may plant a fault in the
    configuration or in the files it names before anything is loaded. The weights' stage comes before adapters are put
    in: ask for "weights" to see the start model.
    """
    from runner.preflight.examine import build
    from runner.preflight.flow import Preflight

    def make(stage: str, task: str = "sft", level: str = "deep", spoil: Any = None, **changes: Any) -> Any:
        cfg = make_config(task, **changes)
        if spoil is not None:
            spoil(cfg)
        pre = Preflight(cfg, level, tmp_path / "preflight", checks=())
        build(cfg, pre, stage)  # type: ignore[arg-type]
        return pre.context

    return make
