"""The shapes that pictures of a run are made of: lines, levels, charts, events.

A line keeps its extremes when it is thinned; values that are not finite are no gaps that nobody sees but `Stretch`es,
drawn as marks at the top edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from runner.diagnosis.trace import Column, Trace
from runner.report.thinning import Stretch, lost_stretches, thin_extremes
from runner.text import Text

MOST = 4000
"""Points of a line in a picture."""

Style = Literal["line", "points", "both", "step"]


@dataclass(frozen=True)
class Line:
    """One quantity over the steps."""

    name: Text
    role: str
    """What it stands for; decides the colour: raw, smooth, adjusted, held_out, neutral, clipped, s0, s1, ..."""

    x: NDArray[np.int64]
    """Steps, shape (n,), increasing."""

    y: NDArray[np.float64]
    """Shape (n,); NaN where the line breaks."""

    style: Style = "line"
    low: NDArray[np.float64] | None = None
    """With `high`, shape (n,): a band, or the ends of an error bar where the style is `points` or `both`."""

    high: NDArray[np.float64] | None = None
    lost: list[Stretch] = field(default_factory=list)
    of: int = 0
    """Points before thinning."""

    faint: bool = False
    """Drawn thin and pale: the background of another line."""

    derived: bool = False
    """Computed from what was logged, by smoothing or adjusting."""


@dataclass(frozen=True)
class Level:
    """A horizontal line that the values are read against."""

    value: float
    name: Text
    role: str = "clipped"


@dataclass(frozen=True)
class Chart:
    """Lines that share a value axis."""

    key: str
    """File name of its PNG, and id in the page."""

    title: Text
    about: Text
    """How to read it, one sentence."""

    lines: list[Line]
    levels: list[Level] = field(default_factory=list)
    scale: Literal["linear", "log", "linear_only"] = "linear"
    """The axis it opens with; linear_only = zero and negative values matter."""


@dataclass(frozen=True)
class Event:
    """Something that happened at steps, marked on every chart."""

    kind: str
    """incident, rollback, restart, spike, skipped, overflow."""

    name: Text
    steps: list[int]
    """At most 400."""

    count: int
    """How many there were."""


def events(trace: Trace, most: int = 400) -> list[Event]:
    """What happened, in the order of weight; nothing that did not happen."""
    marks = trace.marks
    overflow = marks.get("loss_scale_overflow", [])
    skipped = sorted(set(marks.get("skipped", [])) - set(overflow))
    incidents = sorted({*marks.get("incidents", []), *(int(i["step"]) for i in of_steps(trace, "incidents"))})
    found = [
        ("incident", Text("incident", "事故"), incidents),
        ("rollback", Text("rolled back", "回滚"), marks.get("rollbacks", [])),
        ("restart", Text("resumed", "续训"), [r.step for r in trace.restarts]),
        ("spike", Text("spike", "尖峰"), marks.get("spikes", [])),
        ("skipped", Text("no update", "未更新"), skipped),
        ("overflow", Text("loss scale overflow", "loss scale 溢出"), overflow),
    ]
    return [Event(kind, name, fewer(steps, most), len(steps)) for kind, name, steps in found if steps]


def fewer(steps: list[int], most: int) -> list[int]:
    """At most `most` of the steps, spread evenly, first and last included."""
    if len(steps) <= most:
        return list(steps)
    return [steps[i] for i in np.linspace(0, len(steps) - 1, most).round().astype(int)]


def of_steps(trace: Trace, what: Literal["incidents", "probes"], probe: str | None = None) -> list[dict[str, Any]]:
    """Rows of a run folder's incidents or probes that name their step, in the order of the steps."""
    rows = getattr(trace.facts, what) if trace.facts is not None else []
    kept = [r for r in rows if isinstance(r.get("step"), int) and probe in (None, r.get("probe"))]
    return sorted(kept, key=lambda r: int(r["step"]))


def line(
    name: Text,
    role: str,
    x: NDArray[np.int64],
    values: NDArray[np.float64],
    most: int,
    style: Style = "line",
    keep: list[int] | None = None,
    faint: bool = False,
    spread: NDArray[np.float64] | None = None,
) -> Line:
    """A line of `values` at the steps `x`, both of shape (n,), thinned; the points at the steps `keep` stay. `spread`,
    shape (n,), is half the height of a band or error bar."""
    lost = lost_stretches(x, values, apart=style == "points")
    finite = np.isfinite(values)
    there, y = x[finite], values[finite]
    chosen = thin_extremes(y, most, np.isin(there, keep) if keep else None)
    breaks = np.array([s.first for s in lost], dtype=np.int64)
    steps = np.concatenate([there[chosen], breaks])
    order = np.argsort(steps, kind="stable")

    def arranged(of: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([of[finite][chosen], np.full(len(breaks), np.nan)])[order]

    low, high = (None, None) if spread is None else (arranged(values - spread), arranged(values + spread))
    return Line(name, role, steps[order], arranged(values), style, low, high, lost, len(values), faint)


def of_column(
    trace: Trace, column: Column | None, name: Text, role: str, most: int, style: Style = "line", faint: bool = False
) -> Line | None:
    """The line of a column where it has values; None where it has none."""
    if column is None or not column.any:
        return None
    keep = [*trace.marks.get("spikes", []), *trace.marks.get("incidents", [])]
    return line(name, role, trace.step[column.known], column.values[column.known], most, style, keep, faint)
