"""Class names of a classification run, and the id of each row's label."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from runner.data.rows import Labelled, Row
from runner.errors import DataError

CAUSE = "labels.ids_or_dtype"
"""What wrong labels are in `runner.causes.catalogue`."""


def label_names(rows: Iterable[Row], configured: Sequence[str] | None) -> list[str]:
    """Label names in id order: as configured, else those in the data, sorted (whole numbers by value).

    Raises DataError for a label in the data that is not among the configured ones, for a label named twice, and for
    fewer than two labels.
    """
    present: dict[str, str] = {}
    for row in rows:
        assert isinstance(row.example, Labelled)
        present.setdefault(row.example.label, row.row_id)
    if configured is None:
        names = sorted(present, key=lambda n: (0, int(n), n) if _is_whole(n) else (1, 0, n))
        if len(names) < 2:
            raise DataError(
                f"All rows have the label {names[0]!r}: a classifier needs at least two. Set task.labels if "
                "others come later.",
                finding=CAUSE,
                where=(next(iter(present.values())),),
            )
        return names
    names = [str(n) for n in configured]
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise DataError(f"task.labels names {twice[0]!r} twice.", finding=CAUSE, where=("task.labels",))
    if len(names) < 2:
        raise DataError(
            f"task.labels={names}: a classifier needs at least two labels.", finding=CAUSE, where=("task.labels",)
        )
    unknown = {label: row_id for label, row_id in present.items() if label not in names}
    if unknown:
        label, row_id = next(iter(unknown.items()))
        others = f" ({len(unknown) - 1} more unknown labels)" if len(unknown) > 1 else ""
        near = difflib.get_close_matches(label, names, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise DataError(
            f"row {row_id}: unknown label {label!r}{others}; task.labels has {', '.join(names)}.{hint} Add it "
            "to task.labels, or correct the row.",
            finding=CAUSE,
            where=tuple(unknown.values()),
        )
    return names


def _is_whole(name: str) -> bool:
    return name.isascii() and name.removeprefix("-").isdigit()
