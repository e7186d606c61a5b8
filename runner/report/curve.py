"""A loss curve in characters, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Braille bits of a cell, 4 rows by 2 columns."""


def text_curve(
    steps: ArrayLike, values: ArrayLike, width: int = 64, height: int = 8, marks: Sequence[float] = ()
) -> list[str]:
    """Lines of a chart of `values` over `steps` with the value axis at the left and the step axis below.

    Each column shows the mean of its points. The line has a gap where a value is not finite; `marks` are steps that get
    an x on the axis, and a line that says what it means. Fewer than two finite points give [].
    """
    x, y = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    kept = np.isfinite(x)
    x, y = x[kept], y[kept]
    if np.isfinite(y).sum() < 2:
        return []
    last = 2 * width - 1

    def column_of(at: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.clip(((at - x[0]) / max(x[-1] - x[0], 1e-12) * last).round(), 0, last).astype(np.int64)

    finite, columns = np.isfinite(y), column_of(x)
    means = np.full(2 * width, np.nan)
    for column in np.unique(columns[finite]):
        means[column] = y[finite & (columns == column)].mean()
    lost = np.setdiff1d(columns[~finite], columns[finite])
    known = np.flatnonzero(np.isfinite(means))
    for left, right in pairwise(known):
        # Columns between two points are drawn, unless a step without a value lies there.
        if not ((lost > left) & (lost < right)).any():
            means[left : right + 1] = np.linspace(means[left], means[right], right - left + 1)
    low, high = float(np.nanmin(means)), float(np.nanmax(means))
    span = high - low or 1.0
    cells = np.zeros((height, width), dtype=int)
    before: int | None = None
    for column, value in enumerate(means):
        if not np.isfinite(value):
            before = None
            continue
        row = round(float((high - value) / span * (4 * height - 1)))
        # Steep parts are drawn through, so that the line does not fall apart into dots.
        for filled in range(*((row, row + 1) if before is None else (min(before, row), max(before, row) + 1))):
            cells[filled // 4, column // 2] |= DOTS[filled % 4][column % 2]
        before = row
    axis = [
        f"{high - span * i / (height - 1):9.4g}" if i in (0, height // 2, height - 1) else " " * 9
        for i in range(height)
    ]
    lines = [f"{label} ┤{''.join(chr(0x2800 + c) for c in line)}" for label, line in zip(axis, cells, strict=True)]
    first, end = f"{x[0]:g}", f"step {x[-1]:g}"
    marked = set((column_of(np.asarray(marks, dtype=float)) // 2).tolist())
    ground = "".join("x" if cell in marked else "─" for cell in range(width))
    lines += [" " * 10 + "└" + ground, " " * 11 + first + end.rjust(width - len(first))]
    return [*lines, " " * 11 + "x = the loss of a step there is not finite"] if marked else lines
