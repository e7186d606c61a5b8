"""`engine`: processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Engine:
    """How a run is spread over processes."""

    name: Literal["auto", "local"] = "auto"
    """auto = what accelerate or torchrun started, else one process; local = one process, refuses to run under a
    launcher."""
