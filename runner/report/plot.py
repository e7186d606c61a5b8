"""`plots/loss.png`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from runner.report.summary import smoothed

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
    """Draw training loss raw and smoothed, and the evaluations, as `summary` holds them.

    A title in a script that no installed font has is left out rather than drawn as boxes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curve = summary["curve"]
    steps = np.asarray(curve["step"], dtype=float)
    loss = np.asarray(curve["loss"], dtype=float)
    figure = Figure(figsize=(9, 5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(steps, loss, color="#9db7d5", linewidth=0.8, label="train, each step")
    axes.plot(steps, smoothed(loss), color="#1f5fa8", linewidth=2, label="train, smoothed")
    broken = steps[~np.isfinite(loss)]
    if broken.size:
        axes.plot(broken, np.zeros_like(broken), "x", color="#c0392b", transform=axes.get_xaxis_transform(),
                  clip_on=False, label=f"not finite ({broken.size} steps)")  # fmt: skip
    held_out = [(e["step"], e["eval_loss"]) for e in summary["evaluations"] if "eval_loss" in e]
    if held_out:
        axes.plot(*zip(*held_out, strict=True), "o-", color="#d9822b", linewidth=1.5, markersize=5, label="held out")
    finite = loss[np.isfinite(loss)]
    if finite.size:
        values = np.concatenate([finite, [v for _, v in held_out if np.isfinite(v)]])
        low, high = float(values.min()), float(np.quantile(values, 0.995))
        margin = 0.06 * (high - low) or 0.1
        axes.set_ylim(low - margin, high + margin)
    axes.set(xlabel="optimizer step", ylabel="loss")
    family = fonts()
    if title.isascii() or len(family) > 1:
        axes.set_title(title, fontfamily=family)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
