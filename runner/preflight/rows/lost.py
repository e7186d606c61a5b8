"""Rows that the data room dropped, by reason and source, as findings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from runner.data.report import DataReport
from runner.preflight.finding import Finding, Severity


@dataclass(frozen=True)
class Lost:
    """Rows of one source that were lost for the same reasons."""

    source: str
    rows: int
    of: int
    """Rows there would be without this loss."""

    first: tuple[str, ...]
    """Row ids, the first of each reason."""

    reasons: tuple[str, ...]

    @property
    def share(self) -> float:
        """Of the rows there would be."""
        return self.rows / self.of

    @property
    def severity(self) -> Severity:
        """error from half of a source on, else warning."""
        return "error" if 2 * self.rows >= self.of else "warning"


def lost(report: DataReport, reasons: Collection[str] | None, but: Collection[str] = ()) -> list[Lost]:
    """Losses of each source for any of `reasons` (None = all), those in `but` aside; the largest share first."""
    found = []
    for name, source in report.sources.items():
        tallies = {r: t for r, t in source.dropped.items() if (reasons is None or r in reasons) and r not in but}
        rows = sum(t.count for t in tallies.values())
        if rows:
            first = tuple(t.first for t in tallies.values() if t.first is not None)
            found.append(Lost(name, rows, rows + source.kept + source.not_drawn, first, tuple(tallies)))
    return sorted(found, key=lambda one: -one.share)


def finding_of(id: str, losses: Sequence[Lost], overrides: tuple[str, ...] = (), grave: bool = True) -> Finding:
    """One finding for losses of one cause, at least one; `grave` False keeps it a warning."""
    said = "; ".join(
        f"{one.source} loses {one.rows:,} of {one.of:,} rows ({one.share:.1%}): {', '.join(one.reasons)} "
        f"(first: {one.first[0]})"
        for one in losses[:3]
    )
    worst = losses[0]
    return Finding(
        id,
        worst.severity if grave else "warning",
        said,
        tuple(row for one in losses for row in one.first),
        {"rows_lost": {one.source: one.rows for one in losses}, "rows": {one.source: one.of for one in losses}},
        overrides,
    )
