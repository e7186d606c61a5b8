"""Settings that popular advice recommends, and what is true of them. Notes only: none of them spoils a run."""

from __future__ import annotations

from typing import Any

from runner.config.advice import Advice, applying, value_of
from runner.config.schema import Config
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, ok


def popular(c: Context) -> Result:
    """A note for each entry of advice.yaml that the configuration follows and that no other check speaks about."""
    entries = applying(c.cfg)
    if not entries:
        return ok("none of it is followed")
    notes = [note_of(entry, c.cfg) for entry in entries]
    return found(", ".join(entry.id for entry in entries), *notes)


def note_of(entry: Advice, cfg: Config) -> Finding:
    """The entry as a note, behind the settings it is about; a key at null is left out."""
    values = {key: value for key in entry.where if (value := value_of(cfg, key)) is not None}
    settings = ", ".join(f"{key}={_shown(value)}" for key, value in values.items())
    return Finding(
        "advice.popular",
        "note",
        f"{settings}: {entry.text.en}",
        tuple(values),
        {"advice": entry.id, "verdict": entry.verdict, **values},
        entry.overrides,
    )


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
