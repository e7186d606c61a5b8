"""`plots/loss.png`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.report.clip import clipped
from runner.report.summary import broken_apart, smooth_curve
from runner.runfolder import number

CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "SimHei",
)


def fonts() -> list[str]:
    """The default font, and behind it the first installed one that has Chinese characters."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *[name for name in CHINESE_FONTS if name in installed][:1]]


def plot_loss(summary: dict[str, Any], path: Path, title: str) -> None:
    """Draw `summary`: above, training loss raw, smoothed and adjusted for difficulty, the evaluations, and how far
    sampling alone moves the loss; below, the gradient norm. Every broken step is marked, whatever was thinned out.

    A title in a script that no installed font has is left out rather than drawn as boxes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    has_norms = any(np.isfinite(column(summary, "grad_norm")))
    figure = Figure(figsize=(9, 7 if has_norms else 5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    if has_norms:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
        draw_norms(below, summary)
    else:
        above = below = figure.add_subplot()
    draw_loss(above, summary)
    below.set_xlabel("optimizer step")
    family = fonts()
    if title.isascii() or len(family) > 1:
        above.set_title(title, fontfamily=family)
    for axes in {above, below}:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        # Beside the lines, not on them: a mark must not hide behind the words that explain it.
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def column(summary: dict[str, Any], name: str) -> NDArray[np.float64]:
    """A column of the curve, NaN where unknown; all NaN for a summary that has none of this name."""
    curve = summary["curve"]
    return np.array([number(v) for v in curve.get(name, [None] * len(curve["step"]))], dtype=float)


def draw_loss(axes: Any, summary: dict[str, Any]) -> None:
    """Loss panel."""
    steps, loss, counts = column(summary, "step"), column(summary, "loss"), summary["counts"]
    lost = counts["non_finite_steps_at"]
    axes.plot(*broken_apart(steps, loss, lost), color="#9db7d5", linewidth=0.8, label="train, each step")
    x, smooth = smooth_curve(summary)
    # Without telemetry the points are log lines, each a mean over its window.
    spread = number((summary.get("noise") or {}).get("sd_step" if counts["telemetry"] else "sd_log"))
    if spread is not None and np.isfinite(spread) and np.isfinite(smooth).any():
        axes.fill_between(x, smooth - 2 * spread, smooth + 2 * spread, color="#1f5fa8", alpha=0.12, linewidth=0,
                          label="expected from\nsampling alone (2 sd)")  # fmt: skip
    axes.plot(x, smooth, color="#1f5fa8", linewidth=2, label="train, smoothed")
    adjusted = column(summary, "adjusted")
    known = np.isfinite(adjusted)
    if known.any():
        # A line where most steps are known; where a sample is, single points.
        dense, size = known.sum() > len(known) / 2, 4 if known.sum() > 60 else 8
        axes.plot(steps[known], adjusted[known], "-" if dense else ".", color="#2a8c4a", linewidth=1, markersize=size,
                  label="train, at equal\ndifficulty of batches")  # fmt: skip
    measured = [(e["step"], number(e.get("eval_loss"))) for e in summary["evaluations"]]
    held_out = [(step, value) for step, value in measured if value is not None]
    if held_out:
        shape = "o-" if len(held_out) <= 40 else "-"
        axes.plot(*zip(*held_out, strict=True), shape, color="#d9822b", linewidth=1.5, markersize=5, label="held out")
    no_value = [step for step, value in held_out if not np.isfinite(value)]
    mark(axes, no_value, "x", "#d9822b", "held-out loss not finite", 0.06)
    mark(axes, lost, "x", "#c0392b", not_finite("loss", counts["non_finite_steps"], lost), 0.0)
    marks = summary.get("marks", {})
    mark(axes, marks.get("spikes", []), "v", "#8e44ad", f"spike ({plural(counts.get('spikes', 0))})", 1.0)
    mark(axes, marks.get("rollbacks", []), "<", "#444444", f"rolled back ({counts.get('rollbacks', 0)})", 0.04)
    incidents = marks.get("incidents", [])
    for i, incident in enumerate(incidents):
        axes.axvline(incident["step"], color="#c0392b", linewidth=0.8, linestyle=":",
                     label=f"incident folder ({len(incidents)})" if i == 0 else None)  # fmt: skip
    ordinary = np.isfinite(loss) & ~np.isin(steps, [*marks.get("spikes", []), *marks.get("skipped", [])])
    values = loss[ordinary] if ordinary.any() else loss[np.isfinite(loss)]
    values = np.concatenate([values, [v for _, v in held_out if np.isfinite(v)]])
    if values.size:
        axes.set_ylim(*limits(values))
    else:
        axes.text(0.5, 0.5, "no step has a finite loss", transform=axes.transAxes, ha="center", color="#c0392b")
        axes.set_yticks([])
    axes.set_ylabel("loss")


def limits(values: NDArray[np.float64]) -> tuple[float, float]:
    """A range that shows `values`, shape (n,), except for a few that would flatten all the others."""
    low, usual, high = float(values.min()), float(np.quantile(values, 0.99)), float(values.max())
    if high - low > 2 * (usual - low) > 0:
        high = usual
    margin = 0.06 * (high - low) or 0.1
    return low - margin, high + margin


def draw_norms(axes: Any, summary: dict[str, Any]) -> None:
    """Panel of the gradient norm before clipping, on a logarithmic scale."""
    steps, norms, factors = column(summary, "step"), column(summary, "grad_norm"), column(summary, "clip_coef")
    marks, counts = summary.get("marks", {}), summary["counts"]
    lost = sorted({*marks.get("gradients", []), *counts["non_finite_steps_at"]})
    positive = np.where(norms > 0, norms, np.nan)
    axes.plot(
        *broken_apart(steps, positive, lost), color="#6c7a89", linewidth=0.9, label="gradient norm\n(before clipping)"
    )
    hit = clipped(factors) & np.isfinite(positive)
    if hit.any():
        axes.plot(steps[hit], positive[hit], ".", color="#d9822b", markersize=4,
                  label=f"clipped ({plural(counts['clipped_steps'])})")  # fmt: skip
    clip = summary.get("clip") or {}
    if clip.get("method") == "norm":
        axes.axhline(clip["max_grad_norm"], color="#d9822b", linewidth=1, linestyle="--",
                     label=f"clip at {clip['max_grad_norm']:g}")  # fmt: skip
    bad = marks.get("gradients", [])
    mark(axes, bad, "x", "#c0392b", not_finite("gradient", counts["non_finite_gradients"], bad), 0.0)
    mark(axes, marks.get("skipped", []), "|", "#444444", f"skipped ({plural(counts['skipped_steps'])})", 0.97)
    if np.isfinite(positive).any():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(lambda x, _: between_decades(x, *axes.get_ylim()))
    axes.set_ylabel("gradient norm")


def between_decades(x: float, low: float, high: float) -> str:
    """Label of a tick between two powers of ten: 0.2, 0.3 and 0.5 where the axis is short, all where it is very
    short, else none."""
    digit = round(x / 10 ** np.floor(np.log10(x)))
    return f"{x:g}" if high < 3 * low or (high < 20 * low and digit in (2, 3, 5)) else ""


def mark(axes: Any, steps: list[int], shape: str, colour: str, label: str, height: float) -> None:
    """A mark at each of `steps`, at `height` (0 bottom, 1 top) of the panel."""
    if steps:
        axes.plot(steps, np.full(len(steps), height), shape, color=colour, markersize=7, markeredgewidth=1.5,
                  transform=axes.get_xaxis_transform(), clip_on=False, label=label, zorder=5)  # fmt: skip


def not_finite(what: str, n: int, steps: list[int]) -> str:
    """ "loss not finite (step 77)", "loss not finite (3 steps, first 77)"."""
    first = steps[0] if steps else None
    return f"{what} not finite ({f'step {first}' if n == 1 else f'{plural(n)}, first {first}'})"


def plural(n: int) -> str:
    """ "1 step", "2 steps"."""
    return f"{n:,} step{'s' if n != 1 else ''}"
