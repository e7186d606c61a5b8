"""Names of classes that give a mistake away, and how even the classes are, from names and counts alone."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from runner.preflight.finding import Finding, Severity, places

FEW = 5
"""Rows of a class below which it may be a slip rather than a class."""

UNEVEN, ONE_SIDED = 10.0, 0.95
"""Rows of the most frequent class per row of the rarest that are worth a note; accuracy of always saying the most
frequent one from which a run that learns nothing looks good."""

MANY = 10
"""Classes from which numbers with a decimal point, or names that hardly repeat, are no classes."""


def number(name: str) -> float | None:
    """`name` as a finite number, None where it is text."""
    try:
        value = float(name)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def continuous(names: Sequence[str]) -> bool:
    """Whether the names are measurements rather than classes: numbers, more than `MANY`, some with a decimal point."""
    values = [number(n) for n in names]
    return len(names) > MANY and None not in values and any(v != int(v) for v in values if v is not None)


def hardly_repeat(counts: np.ndarray) -> bool:
    """Whether most classes have one row only: the column is no label. `counts` has shape (classes,)."""
    seen = counts[counts > 0]
    return len(seen) > MANY and 2 * int((seen == 1).sum()) > len(seen)


def unlabelled(names: Sequence[str]) -> Severity | None:
    """warning or note where the class -1 stands for "no label": other whole numbers from 0 on. {-1, 1} are two classes,
    and {-1, 0, 1} may be three."""
    values = [number(n) for n in names]
    if any(v is None or v != int(v) for v in values) or -1 not in values:
        return None
    others = sorted(int(v) for v in values if v is not None and v != -1)
    if not others or others[0] != 0:
        return None
    return "note" if others == [0, 1] else "warning"


def gaps(names: Sequence[str]) -> list[int]:
    """Whole numbers from 0 on that no name has although a larger one is there; only where every name is one."""
    values = [number(n) for n in names]
    if any(v is None or v != int(v) or v < 0 for v in values):
        return []
    there = {int(v) for v in values if v is not None}
    return [n for n in range(max(there, default=0)) if n not in there] if max(there, default=0) < 1000 else []


def look_alike(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Names that differ in case, width, or spaces only: written in two ways, most likely."""
    groups: dict[str, list[str]] = {}
    for name in names:
        plain = "".join(unicodedata.normalize("NFKC", name).casefold().split()).replace("_", "").replace("-", "")
        groups.setdefault(plain, []).append(name)
    return [tuple(group) for plain, group in groups.items() if len(group) > 1 and number(group[0]) is None]


def share_of_largest(counts: np.ndarray) -> float:
    """Accuracy of always saying the most frequent class; `counts` has shape (classes,)."""
    return float(counts.max() / max(1, counts.sum()))


def no_classes(names: Sequence[str], counts: np.ndarray) -> bool:
    """Whether the label column holds measurements or free text."""
    return continuous(names) or hardly_repeat(counts)


def name_findings(names: Sequence[str], counts: np.ndarray, keys: Sequence[str]) -> list[Finding]:
    """What is wrong with the labels themselves. `counts` are training rows, shape (classes,); `keys` name the label
    columns in the configuration. A column that holds no classes is the only finding then."""
    rows, out = int(counts.sum()), list[Finding]()

    def add(severity: Severity, sentence: str, where: Sequence[str], **numbers: int) -> None:
        out.append(Finding("labels.ids_or_dtype", severity, sentence, tuple(where), numbers))

    if no_classes(names, counts):
        what = "numbers with a decimal point" if continuous(names) else "texts of which most come once"
        said = f"the label column holds {len(names):,} different {what} in {rows:,} rows ({places(names)}): no classes"
        add("error", said, keys, classes=len(names), rows=rows)
        return out
    if (severity := unlabelled(names)) is not None:
        marked = [(n, int(k)) for n, k in zip(names, counts, strict=True) if number(n) == -1]
        said = (
            f"{marked[0][1]:,} of {rows:,} rows have the label -1, often a mark of rows without one; it is a class here"
        )
        add(severity, said, [marked[0][0]], rows_minus_one=marked[0][1], rows=rows)
    for group in look_alike(names):
        each = ", ".join(f"{n!r} {counts[list(names).index(n)]:,}" for n in group)
        add("warning", f"labels that differ only in how they are written are classes of their own: {each}", group)
    if unused := [n for n, k in zip(names, counts, strict=True) if k == 0]:
        said = f"{len(unused)} of {len(names)} labels have no training row: {places(unused)}"
        add("warning", said, unused, without_rows=len(unused), classes=len(names))
    if missing := gaps(names):
        lacking = places([str(m) for m in missing])
        said = f"labels are whole numbers without {lacking}: class ids have no gap, so id {missing[0]} is label "
        add("note", said + names[missing[0]], ["task.labels"], missing=len(missing))
    return out


def balance_findings(names: Sequence[str], counts: np.ndarray) -> list[Finding]:
    """A class so frequent, or one so rare, that accuracy says little; classes without a row are left aside."""
    seen = counts[counts > 0]
    if len(seen) < 2:
        return []
    share = share_of_largest(counts)
    if seen.max() < UNEVEN * seen.min() and share < ONE_SIDED:
        return []
    rarest = names[int(np.argmin(np.where(counts > 0, counts, counts.max() + 1)))]
    largest = names[int(np.argmax(counts))]
    said = (
        f"{largest} has {seen.max():,} rows, {rarest} {seen.min():,}: always saying {largest} is right in {share:.0%} "
        "of them; judge by macro-F1"
    )
    return [
        Finding(
            "data.class_balance",
            "warning" if share >= ONE_SIDED else "note",
            said,
            (rarest,),
            {"rows": {n: int(k) for n, k in zip(names, counts, strict=True)}, "share_of_largest": share},
            # A class of a few rows may be a misspelt label: weighting it up would teach the mistake.
            ("task.class_weights=balanced",) if seen.min() >= FEW else (),
        )
    ]
