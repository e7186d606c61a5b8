"""What the catalogue holds about one cause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from runner.text import Text


@dataclass(frozen=True)
class Cause:
    """One way in which a run goes wrong (or looks as if it did)."""

    id: str
    """A readable slug: `room.what`, such as `precision.fp16_overflow`."""

    code: str | None
    """Code in the failure catalogue, A1 to G4; None for what it does not list."""

    title: Text
    """The cause as a sentence without a subject to blame, at most 90 characters in English."""

    severity: Literal["error", "warning", "note"]

    remedy: Text
    """What to do, one sentence."""

    would_change: Text
    """What observation would overturn it."""

    check: str
    """A command that checks the claim, in the runner's words; `{path}` is the run folder or log."""

    changes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """{tool: lines to paste}: runner (Hydra overrides), transformers (TrainingArguments / SFTConfig keywords),
    llamafactory (YAML lines), ms_swift (flags). A tool without an entry gets only the sentence. Lines may hold fields
    such as `{learning_rate_tenth}` that the diagnosis fills from the run; a line whose field is unknown is left out."""
