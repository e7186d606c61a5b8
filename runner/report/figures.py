"""The charts of a run as PNG files: the pictures of the page, for papers and for machines without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from runner.diagnosis.trace import Trace
from runner.diagnosis.verdict import Verdict
from runner.report.charts import charts
from runner.report.plot import between_decades, fonts, limits
from runner.report.series import Chart, Event, Line, events

MOST = 2000
"""Points of a line; a picture is about 1,000 pixels wide."""

COLOURS = {
    "raw": "#86a8cf", "smooth": "#164f99", "adjusted": "#d96c00", "held_out": "#17803d", "neutral": "#3b5a80",
    "clipped": "#c2410c", "zero": "#77808f", "incident": "#c81e1e", "rollback": "#6d28d9", "restart": "#0f766e",
    "spike": "#a21caf", "skipped": "#4b5563", "overflow": "#b45309",
}  # fmt: skip
CYCLE = ("#1d5fae", "#c2410c", "#17803d", "#8b2fb5", "#0f7d8c", "#a16207", "#be185d", "#475569")

LOST = "#c81e1e"


def write_plots(trace: Trace, verdict: Verdict, folder: Path) -> list[Path]:
    """Write a PNG for each chart that has data and return their paths: grad_norm, learning_rate, sources, update_ratio,
    loss_scale, noise_scale, second_moment, probes, replay, line_probe. loss.png is written only where there is none:
    the end of a training has drawn its own. Each title says what the verdict is."""
    found = [c for c in charts(trace, MOST) if c.key != "loss" or not (folder / "loss.png").exists()]
    if not found:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    happened, written = events(trace), []
    for chart in found:
        path = folder / f"{chart.key}.png"
        draw(chart, happened, f"{trace.path.name}: {verdict.action.replace('_', ' ')}", path)
        written.append(path)
    return written


def colour(role: str) -> str:
    """Colour of a role; s0, s1, ... repeat after eight."""
    return COLOURS.get(role) or CYCLE[int(role[1:]) % len(CYCLE)]


def draw(chart: Chart, happened: list[Event], title: str, path: Path) -> None:
    """One chart into one file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), dpi=120)
    # A fixed frame: letting matplotlib lay out eleven pictures would double the time they take.
    figure.subplots_adjust(left=0.1, right=0.75, top=0.9, bottom=0.14)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    family = fonts()

    def readable(words: str) -> str:
        """Without a Chinese font, a question mark instead of a box."""
        return words if len(family) > 1 else "".join(c if ord(c) < 0x2E80 else "?" for c in words)

    log = chart.scale == "log" and any((line.y > 0).any() for line in chart.lines)
    for line in chart.lines:
        draw_line(axes, line, readable(line.name.en), log)
    for level in chart.levels:
        axes.axhline(level.value, color=colour(level.role), linewidth=1, linestyle="--", label=level.name.en)
    for event in happened:
        draw_event(axes, event)
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(lambda x, _: between_decades(x, *axes.get_ylim()))
    elif chart.scale == "linear":
        shown = np.concatenate([line.y[np.isfinite(line.y)] for line in chart.lines] or [np.zeros(0)])
        if shown.size:
            axes.set_ylim(*limits(np.concatenate([shown, [v.value for v in chart.levels]])))
    if not any(np.isfinite(line.y).any() for line in chart.lines):
        axes.text(0.5, 0.5, "no finite value", transform=axes.transAxes, ha="center", color=LOST)
        axes.set_yticks([])
    axes.set_xlabel("optimizer step")
    axes.set_ylabel(chart.title.en)
    axes.set_title(readable(title), fontfamily=family, fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    legend = axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for text in legend.get_texts():
        text.set_fontfamily(family)
    figure.savefig(path)


def draw_line(axes: Any, line: Line, name: str, log: bool) -> None:
    """Line, points, band or error bars of one quantity, and a cross at the top for what is not finite."""
    y = np.where(line.y > 0, line.y, np.nan) if log else line.y
    shape = {"line": "-", "points": ".", "both": "o-", "step": "-"}[line.style]
    paint, width = colour(line.role), 0.8 if line.faint else 2.0 if line.role == "smooth" else 1.2
    style = "steps-post" if line.style == "step" else "default"
    axes.plot(line.x, y, shape, color=paint, linewidth=width, markersize=4, label=name, drawstyle=style)
    if line.low is not None and line.high is not None:
        if line.style == "line":
            axes.fill_between(line.x, line.low, line.high, color=paint, alpha=0.15, linewidth=0,
                              label="expected from\nsampling alone (2 sd)")  # fmt: skip
        else:
            axes.vlines(line.x, line.low, line.high, color=paint, linewidth=1)
    if line.lost:
        n = sum(stretch.points for stretch in line.lost)
        label = f"not finite ({n:,} {'point' if n == 1 else 'points'}, first {line.lost[0].first})"
        place = axes.get_xaxis_transform()
        axes.plot([s.first for s in line.lost], np.ones(len(line.lost)), "x", color=LOST, markersize=7, label=label,
                  markeredgewidth=1.5, transform=place, clip_on=False, zorder=5)  # fmt: skip
        axes.hlines(np.ones(len(line.lost)), [s.first for s in line.lost], [s.last for s in line.lost], color=LOST,
                    linewidth=1.5, transform=place, clip_on=False)  # fmt: skip


def draw_event(axes: Any, event: Event) -> None:
    """An upright line for what changed the run, a mark at the edge for what only happened."""
    label, paint, place = f"{event.name.en} ({event.count:,})", colour(event.kind), axes.get_xaxis_transform()
    if event.kind in ("incident", "rollback", "restart"):
        axes.vlines(event.steps, 0, 1, color=paint, linewidth=0.9, linestyle=":", transform=place, label=label)
    else:
        high, shape = (0.97, "v") if event.kind == "spike" else (0.02, "|")
        axes.plot(event.steps, np.full(len(event.steps), high), shape, color=paint, markersize=6, label=label,
                  transform=place, clip_on=False)  # fmt: skip
