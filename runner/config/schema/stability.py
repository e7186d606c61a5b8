"""`stability`: what is measured while the run trains. Never changes a number by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Stability:
    """observe writes every fact to the run folder; off measures nothing beyond HF's own log."""

    telemetry: bool = True
    """Write `telemetry.jsonl`, one row per optimizer step, flushed at once."""

    deterministic: bool = False
    """Ask torch for deterministic kernels (slower on a GPU)."""
