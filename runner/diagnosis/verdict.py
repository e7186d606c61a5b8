"""The shape of a verdict (DESIGN section 5): three answers, ranked causes with their evidence, what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from runner.text import Text

Stability = Literal["normal", "at_risk", "broken", "cannot_tell"]
Learning = Literal["yes", "slow", "no", "cannot_tell"]
Action = Literal["keep", "change_next_run", "stop"]
Confidence = Literal["certain", "proven", "likely", "possible"]
"""certain = a law; proven = a paired rerun; likely = calibrated at 80 % or more; possible = less."""

SCHEMA = 1


@dataclass(frozen=True)
class Evidence:
    """One observation with its numbers."""

    text: Text
    values: dict[str, Any] = field(default_factory=dict)
    steps: tuple[int, ...] = ()
    """The steps it comes from, at most ten of them."""

    def as_json(self) -> dict[str, Any]:
        """Text in both languages, values, steps."""
        return {"text": self.text.as_json(), "values": self.values, "steps": list(self.steps)}


@dataclass(frozen=True)
class Finding:
    """One cause that fits, with what speaks for it and what to do about it."""

    id: str
    code: str | None
    """Code in the failure catalogue, A1 to G4; None for causes it does not list."""

    title: Text
    confidence: Confidence
    probability: float
    """0 to 1, among the causes that fit."""

    severity: Literal["error", "warning", "note"]
    """note = nothing is wrong: information, or a normal thing that looks frightening."""

    evidence: tuple[Evidence, ...]
    would_change: Text
    """What would overturn this finding."""

    check: str
    """A command that checks the claim."""

    remedy: Text
    changes: dict[str, tuple[str, ...]]
    """{tool: lines to paste}, for every tool whose words are known: runner, transformers, llamafactory, ms_swift."""

    def as_json(self) -> dict[str, Any]:
        """Everything, texts in both languages."""
        return {
            "id": self.id,
            "code": self.code,
            "title": self.title.as_json(),
            "confidence": self.confidence,
            "probability": round(self.probability, 4),
            "severity": self.severity,
            "evidence": [e.as_json() for e in self.evidence],
            "would_change": self.would_change.as_json(),
            "check": self.check,
            "remedy": {"text": self.remedy.as_json(), "changes": {k: list(v) for k, v in self.changes.items()}},
        }


@dataclass(frozen=True)
class Verdict:
    """What is the matter with a run, if anything."""

    stability: Stability
    learning: Learning
    action: Action
    confidence: Confidence
    """Of the headline."""

    headline: Text
    """One sentence, or two short ones."""

    saw: tuple[Text, ...]
    """What the log shows, most telling first."""

    findings: tuple[Finding, ...]
    """Causes, the most likely first; notes last."""

    learns: Text | None
    """What is known about learning, with numbers."""

    not_it: Text | None
    """What it is not, although people would try that first."""

    separate: Text | None
    """Where several causes fit: the one experiment that separates them."""

    missing: tuple[Text, ...]
    """What to switch on so that the next verdict can say more."""

    unknown: Text
    """What this verdict does not know, and what would overturn it."""

    do: tuple[str, ...]
    """Commands or settings to paste, in the words of the tool that wrote the log; a comment may follow two spaces."""

    tool: str
    """Whose words `do` is in."""

    source: dict[str, Any]
    """What was read: path, kind, points, steps, evaluations."""

    numbers: dict[str, Any]
    """Every statistic behind it, by name."""

    control: dict[str, Any] | None = None
    """Comparison with a control run (`--control`)."""

    def as_json(self) -> dict[str, Any]:
        """The content of verdict.json."""
        return {
            "schema": SCHEMA,
            "stability": self.stability,
            "learning": self.learning,
            "action": self.action,
            "confidence": self.confidence,
            "headline": self.headline.as_json(),
            "saw": [t.as_json() for t in self.saw],
            "causes": [f.as_json() for f in self.findings],
            "learns": self.learns.as_json() if self.learns else None,
            "not_it": self.not_it.as_json() if self.not_it else None,
            "separate": self.separate.as_json() if self.separate else None,
            "missing": [t.as_json() for t in self.missing],
            "unknown": self.unknown.as_json(),
            "do": list(self.do),
            "tool": self.tool,
            "source": self.source,
            "numbers": self.numbers,
            "control": self.control,
        }
