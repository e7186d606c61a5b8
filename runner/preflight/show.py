"""The table of checks on the console."""

from __future__ import annotations

from collections.abc import Sequence

from runner.causes.dialects import command
from runner.config.rules import allowed
from runner.preflight.finding import ORDER, Finding
from runner.preflight.flow import Line, Preflight
from runner.text import Language, Text
from runner.text import language as spoken

WIDTH = 62
"""Columns before the result."""

WORDS = {
    "error": Text("ERROR", "错误"),
    "warning": Text("WARNING", "警告"),
    "note": Text("note", "提示"),
    "mend": Text("mend", "修改"),
    "allowed": Text("allowed by checks.allow", "checks.allow 已放行"),
}


def row(line: Line, total: int) -> str:
    """ "[ 7/42] labels: supervised tokens per row ......... ok, median 61, 0 rows empty"."""
    room = line.check.id.partition(".")[0]
    head = f"[{line.number:>{len(str(total))}}/{total}] {room}: {line.check.title} "
    status = {"error": "ERROR", "warning": "WARNING", "failed": "FAILED"}.get(line.status, line.status)
    return f"{head:.<{WIDTH}} {status}{', ' if line.result.summary else ''}{line.result.summary}"


def finding_lines(finding: Finding, language: Language, permitted: bool, indent: str = "        ") -> list[str]:
    """What was found, what to do, and the overrides to paste."""
    word = WORDS[finding.severity].within(language)
    code = f" {finding.code}" if finding.code else ""
    more = f" ({WORDS['allowed'].within(language)})" if permitted and finding.severity == "error" else ""
    lines = [
        f"{indent}{word}{code} {finding.id}{more}: {finding.sentence}",
        f"{indent}  {finding.remedy.within(language)}",
    ]
    lines += [f"{indent}  {text.within(language)}" for text in finding.advice]
    if finding.overrides:
        lines.append(f"{indent}  {WORDS['mend'].within(language)}: {' '.join(finding.overrides)}")
    return lines


def line_lines(line: Line, total: int, language: Language, permitted: Sequence[str]) -> list[str]:
    """The row of a check, and below it what it found."""
    lines = [row(line, total)]
    for finding in line.result.findings:
        lines += finding_lines(finding, language, finding.id in permitted)
    return lines


def counts(pre: Preflight) -> str:
    """ "42 checks in 3.1 s: 0 errors, 1 warning, 2 notes"."""
    ran = [line for line in pre.lines if line.status not in ("not run", "not needed", "failed")]
    of = {s: sum(f.severity == s for f in pre.findings) for s in ORDER}
    said = ", ".join(f"{n} {s}{'' if n == 1 else 's'}" for s, n in of.items())
    failed = [line.check.id for line in pre.lines if line.status == "failed"]
    more = f"; could not run: {', '.join(failed)}" if failed else ""
    late = [line.check.id for line in pre.lines if "used up" in line.result.summary]
    more += f"; no time for {', '.join(late)}" if late else ""
    return f"{len(ran)} checks in {pre.seconds:.1f} s: {said}{more}"


def mended(pre: Preflight, given: Sequence[str]) -> str | None:
    """The command line that applies every override of errors and warnings to `given`; None where there is none."""
    changes = [o for f in pre.findings if f.severity != "note" for o in f.overrides]
    return command("runner", _last_of_each(changes), given) if changes else None


def _last_of_each(overrides: Sequence[str]) -> list[str]:
    """One override per key: the first that was given, since the gravest finding comes first."""
    kept: dict[str, str] = {}
    for override in overrides:
        kept.setdefault(override.lstrip("+~").partition("=")[0], override)
    return list(kept.values())


def short(pre: Preflight) -> list[str]:
    """For the header of a training: the counts, then what was found; nothing with level off."""
    if pre.level == "off":
        return []
    language = spoken()
    lines = [f"{'preflight':<10} {counts(pre)}"]
    permitted = allowed(pre.cfg)
    for finding in pre.findings:
        if finding.severity == "note":
            lines.append(f"  {WORDS['note'].within(language)} {finding.id}: {finding.sentence}")
        else:
            lines += finding_lines(finding, language, finding.id in permitted, "  ")
    for line in pre.lines:
        if line.status == "failed":
            lines.append(f"  {line.check.id}: {line.result.summary}")
    return lines
