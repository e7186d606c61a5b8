"""A loss curve in characters, for the terminal."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Braille bits of a cell, 4 rows by 2 columns."""


def text_curve(steps: ArrayLike, values: ArrayLike, width: int = 64, height: int = 8) -> list[str]:
    """Lines of a chart of `values` over `steps` with the value axis at the left and the step axis below.

    Each column shows the mean of its points; non-finite values are left out. Fewer than two finite points give [].
    """
    x, y = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    kept = np.isfinite(x) & np.isfinite(y)
    x, y = x[kept], y[kept]
    if len(x) < 2:
        return []
    columns = np.minimum(((x - x[0]) / max(x[-1] - x[0], 1e-12) * (2 * width - 1)).round().astype(int), 2 * width - 1)
    means = np.full(2 * width, np.nan)
    for column in np.unique(columns):
        means[column] = y[columns == column].mean()
    known = np.flatnonzero(np.isfinite(means))
    means[known[0] : known[-1] + 1] = np.interp(np.arange(known[0], known[-1] + 1), known, means[known])
    low, high = float(np.nanmin(means)), float(np.nanmax(means))
    span = high - low or 1.0
    cells = np.zeros((height, width), dtype=int)
    before: int | None = None
    for column, value in enumerate(means):
        if not np.isfinite(value):
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
    first, last = f"{x[0]:g}", f"step {x[-1]:g}"
    return [*lines, " " * 10 + "└" + "─" * width, " " * 11 + first + last.rjust(width - len(first))]
