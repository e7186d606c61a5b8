"""Which telemetry rows are of broken steps, and the words for what was done about them."""

from __future__ import annotations

import math
from typing import Any

from runner.runfolder import number

SEARCH = "loss_scale_overflow"
"""`skipped` of a step that fp16's loss scale took back."""


def loss_broken(row: dict[str, Any]) -> bool:
    """True where the row has a loss and it is NaN or infinite."""
    loss = number(row.get("loss"))
    return loss is not None and not math.isfinite(loss)


def gradient_broken(row: dict[str, Any]) -> bool:
    """True where the gradient norm is NaN or infinite, unless that is the loss scale's own search."""
    norm = number(row.get("grad_norm"))
    searching = row.get("skipped") == SEARCH and not row.get("action")
    return norm is not None and not math.isfinite(norm) and not searching


def taken(row: dict[str, Any]) -> bool:
    """True where the step reached the weights and stayed there."""
    return not row.get("skipped") and row.get("action") != "rollback"


def broken(row: dict[str, Any]) -> bool:
    """True for every step a person has to see: non-finite, a spike, or one the guard acted on."""
    return loss_broken(row) or gradient_broken(row) or bool(row.get("spike")) or bool(row.get("action"))


def rolled_back(row: dict[str, Any]) -> str:
    """ "rolled back by 12 steps" where the row says how far; the batches of those steps are not seen again."""
    to = row.get("rolled_back_to")
    if to is None:
        return "rolled back"
    lost = int(row["step"]) - 1 - int(to)
    return f"rolled back to the weights after step {to}: what {lost} step{'' if lost == 1 else 's'} had learnt is gone"


def what_happened(row: dict[str, Any]) -> list[str]:
    """["spike (loss 14 sd)", "skipped (spike)", "rolled back", "see incident-12"]; [] for an ordinary step."""
    words = []
    spike = row.get("spike")
    if spike:
        # Infinity where all steps before were equal; None where that value could not be judged.
        named = [("loss", number(spike.get("loss_z"))), ("grad norm", number(spike.get("norm_z")))]
        words.append(f"spike ({', '.join(f'{name} {z:+.3g} sd' for name, z in named if z is not None)})")
    if row.get("skipped"):
        words.append(f"skipped ({row['skipped']})")
    warned = "warned" if row.get("skipped") else "taken, with a warning"
    action = {"warn": warned, "rollback": rolled_back(row), "stop": "ends the run"}.get(str(row.get("action")))
    if action:
        words.append(action)
    if row.get("incident"):
        words.append(f"see {row['incident']}")
    return words
