"""What a check found: one cause of the catalogue, with numbers, a place, and overrides to paste."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from runner.causes.catalogue import CAUSES
from runner.text import Text

Severity = Literal["error", "warning", "note"]
ORDER: tuple[Severity, ...] = ("error", "warning", "note")
"""The gravest first."""


@dataclass(frozen=True)
class Finding:
    """One cause that a check saw, in this model, data or configuration."""

    id: str
    """Id of a cause in `runner.causes.catalogue`, such as weights.zero_filled."""

    severity: Severity
    """error = training refuses to start, warning = likely to spoil the run, note = good to know."""

    sentence: str
    """What was seen, with its numbers and where."""

    where: tuple[str, ...] = ()
    """Tensors, row ids, sources, files or config keys it was seen at, the worst first."""

    numbers: Mapping[str, Any] = field(default_factory=dict)
    """The evidence for machines: plain numbers and short texts by name."""

    overrides: tuple[str, ...] = ()
    """Hydra overrides that mend it, ready to paste; empty where nothing that can be set does."""

    advice: tuple[Text, ...] = ()
    """What is true of popular advice that the configuration follows here; the flow fills it in."""

    @property
    def code(self) -> str | None:
        """Code in the failure catalogue, A1 to G4."""
        return CAUSES[self.id].code

    @property
    def title(self) -> Text:
        """The cause as a sentence."""
        return CAUSES[self.id].title

    @property
    def remedy(self) -> Text:
        """What to do, as a sentence."""
        return CAUSES[self.id].remedy

    def as_json(self, allowed: bool) -> dict[str, Any]:
        """The finding of `preflight.json`."""
        return {
            "id": self.id,
            "code": self.code,
            "severity": self.severity,
            "allowed": allowed,
            "title": self.title.as_json(),
            "sentence": self.sentence,
            "where": list(self.where[:MOST]),
            "places": len(self.where),
            "numbers": dict(self.numbers),
            "advice": [text.as_json() for text in self.advice],
            "remedy": {**self.remedy.as_json(), "overrides": list(self.overrides)},
        }


MOST = 8
"""Places of one finding that preflight.json lists."""


def places(names: Sequence[str], most: int = 3) -> str:
    """ "a, b, c and 5 more" for a sentence."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


@dataclass(frozen=True)
class Result:
    """What one check came to."""

    summary: str
    """A few words with the measured numbers, shown behind "ok" or the finding: "median 61, 0 rows empty"."""

    findings: tuple[Finding, ...] = ()
    """Empty where all is well."""

    skipped: bool = False
    """The check does not apply here; `summary` says why."""


def ok(summary: str) -> Result:
    """Nothing found."""
    return Result(summary)


def not_needed(why: str) -> Result:
    """The check has nothing to look at; `why` in a few words."""
    return Result(why, skipped=True)


def found(summary: str, *findings: Finding) -> Result:
    """Something found (or, without findings, nothing)."""
    return Result(summary, tuple(findings))
