"""What happened to every row of every source, as numbers and as a few lines of text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Tally:
    """How often something happened to rows, and to which row first."""

    count: int = 0
    """Number of rows (or turns) concerned."""

    first: str | None = None
    """Row id of the first one."""

    def add(self, row_id: str, n: int = 1) -> None:
        """Count `n` more, and remember `row_id` if it is the first."""
        self.count += n
        if self.first is None:
            self.first = row_id


@dataclass
class SourceReport:
    """The fate of one source's rows.

    read = duplicates + dropped + beyond_max_samples + not_drawn + train + validation.
    """

    path: str
    """What was read."""

    format: str = ""
    """The format of its rows, as set or as recognised."""

    recognised: bool = False
    """True if the format was recognised by the columns rather than set."""

    read: int = 0
    """Rows in the files."""

    duplicates: int = 0
    """Rows dropped because an identical one came earlier (in this source or another)."""

    first_duplicate: str | None = None
    """Id of the first row dropped as a duplicate."""

    beyond_max_samples: int = 0
    """Rows not used because of max_samples."""

    not_drawn: int = 0
    """Training rows that mix=interleave left unused."""

    kept: int = 0
    """Rows used: train + validation."""

    train: int = 0
    """Rows trained on."""

    validation: int = 0
    """Rows held out."""

    dropped: dict[str, Tally] = field(default_factory=dict)
    """Reason -> rows lost by it."""

    adjusted: dict[str, Tally] = field(default_factory=dict)
    """What was changed in rows that were read -> how often."""

    truncated: int = 0
    """Used rows that were cut to max_length."""

    first_truncated: str | None = None
    """Id of the first of them."""

    longest: int = 0
    """Tokens of the longest row before anything was cut."""

    total_tokens: int = 0
    """Tokens of the training rows."""

    supervised_tokens: int = 0
    """Of these, tokens that carry loss (classification: none, the label is the signal)."""

    @property
    def unsupervised_tokens(self) -> int:
        """Tokens of the training rows that carry no loss."""
        return self.total_tokens - self.supervised_tokens

    def drop(self, reason: str, row_id: str) -> None:
        """Count a lost row."""
        self.dropped.setdefault(reason, Tally()).add(row_id)

    def adjust(self, what: str, row_id: str, n: int = 1) -> None:
        """Count a change made to a row."""
        self.adjusted.setdefault(what, Tally()).add(row_id, n)

    def as_dict(self) -> dict[str, Any]:
        """The counters for JSON."""
        plain = {k: v for k, v in vars(self).items() if k not in ("dropped", "adjusted")}
        plain["unsupervised_tokens"] = self.unsupervised_tokens
        for group in ("dropped", "adjusted"):
            plain[group] = {k: {"rows": t.count, "first": t.first} for k, t in getattr(self, group).items()}
        return plain


@dataclass
class DataReport:
    """Counters of all sources, class counts, and notes that belong to no row."""

    task: str = "sft"
    """sft or classification."""

    sources: dict[str, SourceReport] = field(default_factory=dict)
    """Name of the source -> its counters."""

    classes: dict[str, dict[str, int]] = field(default_factory=dict)
    """classification: {"train": {label: rows}, "validation": {label: rows}}."""

    notes: list[str] = field(default_factory=list)
    """Facts about the whole: cache state, an injected system prompt that was left out, ..."""

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def as_dict(self) -> dict[str, Any]:
        """Everything for JSON."""
        return {
            "task": self.task,
            "sources": {name: s.as_dict() for name, s in self.sources.items()},
            "classes": self.classes,
            "notes": self.notes,
        }

    def lines(self) -> list[str]:
        """A few lines for the console; nothing dropped, cut, changed or duplicated goes unmentioned."""
        out: list[str] = []
        for name, s in self.sources.items():
            out.append(f"{name}: {_fate(s)}")
            if self.task == "sft" and s.train:
                share = s.supervised_tokens / max(1, s.total_tokens)
                out.append(
                    f"  {s.supervised_tokens:,} of {s.total_tokens:,} training tokens carry loss ({share:.0%}), "
                    f"{s.unsupervised_tokens:,} do not"
                )
            if s.duplicates:
                out.append(f"  dropped {s.duplicates:,}: exact duplicate (first: {s.first_duplicate})")
            out += [f"  dropped {t.count:,}: {reason} (first: {t.first})" for reason, t in s.dropped.items()]
            if s.truncated:
                out.append(f"  cut {s.truncated:,}: longer than max_length (first: {s.first_truncated})")
            out += [f"  changed {t.count:,}: {what} (first: {t.first})" for what, t in s.adjusted.items()]
        for part, counts in self.classes.items():
            out.append(f"labels, {part}: " + ", ".join(f"{label} {n:,}" for label, n in counts.items()))
        return out + [f"note: {text}" for text in self.notes]


def _fate(s: SourceReport) -> str:
    how = f"{s.format}, recognised" if s.recognised else s.format
    text = f"{s.read:,} rows read ({how}): {s.train:,} train, {s.validation:,} validation"
    if s.beyond_max_samples:
        text += f", {s.beyond_max_samples:,} beyond max_samples"
    if s.not_drawn:
        text += f", {s.not_drawn:,} not drawn by interleave"
    return text
