"""The charts as the JSON that `charts.js` draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.diagnosis.trace import Trace
from runner.report.charts import charts
from runner.report.series import MOST, Chart, Line, events, of_steps

DIGITS = 9
"""Significant digits of what was logged: a 32-bit float has no more."""

DERIVED_DIGITS = 6


def chart_data(trace: Trace, redact: bool, most: int = MOST) -> dict[str, Any]:
    """{"charts", "events", "sentences", "range"}: texts as {"en", "zh"}, values as numbers, null where a line breaks.

    `sentences` are those of incidents, by step; left out by `redact`, since one may quote a token of a row.
    """
    drawn, happened = charts(trace, most), events(trace)
    ends = [x for chart in drawn for line in chart.lines for x in (line.x[0], line.x[-1]) if len(line.x)]
    ends += [s for e in happened for s in (e.steps[0], e.steps[-1])]
    return {
        "charts": [chart_json(chart) for chart in drawn],
        "events": [{"kind": e.kind, "name": e.name.as_json(), "steps": e.steps, "count": e.count} for e in happened],
        "sentences": {} if redact else sentences(trace),
        "range": [int(min(ends)), int(max(ends))] if ends else [0, 1],
    }


def sentences(trace: Trace) -> dict[str, str]:
    """{step: what an incident's file says about it}."""
    return {str(i["step"]): str(i["sentence"]) for i in of_steps(trace, "incidents") if i.get("sentence")}


def chart_json(chart: Chart) -> dict[str, Any]:
    """One chart."""
    return {
        "key": chart.key,
        "title": chart.title.as_json(),
        "about": chart.about.as_json(),
        "scale": chart.scale,
        "levels": [{"value": v.value, "name": v.name.as_json(), "role": v.role} for v in chart.levels],
        "lines": [line_json(line) for line in chart.lines],
    }


def line_json(line: Line) -> dict[str, Any]:
    """One line."""
    digits = DERIVED_DIGITS if line.derived else DIGITS
    made: dict[str, Any] = {
        "name": line.name.as_json(),
        "role": line.role,
        "style": line.style,
        "faint": line.faint,
        "x": line.x.tolist(),
        "y": rounded(line.y, digits),
        "of": line.of,
        "lost": [list(s) for s in line.lost],
    }
    if line.low is not None and line.high is not None:
        made |= {"low": rounded(line.low, digits), "high": rounded(line.high, digits)}
    return made


def rounded(values: NDArray[np.float64], digits: int) -> list[float | None]:
    """Values to `digits` significant digits, None where not finite."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values.tolist()]
