"""`summary.json`: what a run came to, with curves of at most 500 points, so that sweeps need not parse telemetry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.report.broken import taken
from runner.report.clip import clip_sentence
from runner.report.counts import count, count_line, marks
from runner.runfolder import SCHEMA, number
from runner.signals.smooth import ema, thin

__all__ = ["broken_apart", "count_line", "smooth_curve", "smoothed", "summarize"]

POINTS = 500

DIFFICULTY_POINTS = 8
"""Steps with a known base loss from which the loss is adjusted for difficulty."""


def smoothed(loss: NDArray[np.float64]) -> NDArray[np.float64]:
    """The smoothing that pictures and summaries show: an EMA whose half-life is 2 % of the run, at least 3 points."""
    return ema(loss, max(3.0, 0.02 * len(loss)))


def thin_keeping(worth: NDArray[np.int64], most: int) -> list[int]:
    """Indices of at most `most` of the points, evenly spaced but for this: within its stretch a point gives way to the
    nearest one of higher `worth`, shape (n,). First and last stay."""
    places = thin(len(worth), most)
    if len(places) < 3 or len(places) == len(worth):
        return [int(i) for i in places]
    borders = (places[:-1] + places[1:] + 1) // 2
    kept = [int(places[0])]
    for place, start, end in zip(places[1:-1], borders[:-1], borders[1:], strict=True):
        stretch = np.arange(start, end)
        best = stretch[worth[stretch] == worth[stretch].max()]
        kept.append(int(best[np.abs(best - place).argmin()]))
    return [*kept, int(places[-1])]


def broken_apart(
    steps: NDArray[np.float64], values: NDArray[np.float64], at: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(steps, values) with NaN at each step of `at`, so that no line is drawn through a step that has no value."""
    lost = np.isin(steps, at)
    extra = np.setdiff1d(np.asarray(at, dtype=float), steps)
    x = np.concatenate([steps, extra])
    y = np.concatenate([np.where(lost, np.nan, values), np.full(len(extra), np.nan)])
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def smooth_curve(summary: dict[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(steps, smoothed loss) of a summary's curve for the eye: steps that did not reach the model do not move it, and
    it has a gap at every step whose loss is not finite, also at those that thinning left out."""
    curve, counts = summary["curve"], summary["counts"]
    steps = np.asarray(curve["step"], dtype=float)
    undone = np.isin(steps, [*summary["marks"]["skipped"], *summary["marks"]["rollbacks"]])
    loss = np.array([number(x) for x in curve["loss"]], dtype=float)
    return broken_apart(steps, smoothed(np.where(undone, np.nan, loss)), counts["non_finite_steps_at"])


def at_the_end(loss: NDArray[np.float64], went: NDArray[np.bool_]) -> float:
    """The smoothed loss at the end; the loss itself where the last step that was taken has none that is finite.

    `loss` and `went` (the step was taken) have shape (n,). A skipped step did not touch the model, so the smoothed
    value before it stands.
    """
    if went.any() and not math.isfinite(loss[went][-1]):
        return float(loss[went][-1])
    return float(smoothed(np.where(went, loss, np.nan))[-1])


def summarize(rows: list[dict[str, Any]], log_history: list[dict[str, Any]], facts: dict[str, Any]) -> dict[str, Any]:
    """Statistics and curves of a run.

    `rows` are telemetry rows, or [] under stability=off, when Trainer's own log lines stand in. `log_history` is
    Trainer's. `facts` (data report, trainable parameters, predicted `noise`, ...) are passed on unchanged; its `clip`
    {"method", "max_grad_norm"} and `optimizer` (a name) give the sentence about clipping.
    """
    source = rows or [r for r in log_history if "loss" in r]
    steps = [int(r["step"]) for r in source]
    series = {
        key: [number(r.get(key)) for r in source]
        for key in ("loss", "grad_norm", "clip_coef", "learning_rate", "base_loss")
    }
    loss, norms, factors, base = (
        np.array(series[key], dtype=float) for key in ("loss", "grad_norm", "clip_coef", "base_loss")
    )
    went = np.array([taken(r) for r in source], dtype=bool)
    series["adjusted"], difficulty = for_difficulty(loss, base)
    evaluations = [
        {k: v for k, v in r.items() if k.startswith("eval_") or k in ("step", "epoch")}
        for r in log_history
        if "eval_loss" in r
    ]
    kept = thin_keeping(np.where(np.isfinite(loss), np.isfinite(base).astype(int), 2), POINTS)
    finite, finite_norms = loss[np.isfinite(loss)], norms[np.isfinite(norms)]
    sentence = None
    if "clip" in facts and "optimizer" in facts:
        sentence = clip_sentence(facts["clip"]["method"], facts["optimizer"], factors[went], norms[went])
    return {
        "schema": SCHEMA,
        "steps": steps[-1] if steps else 0,
        "seconds": sum(number(r.get("seconds")) or 0.0 for r in rows),
        "tokens": sum(int(r.get("tokens", 0)) for r in rows),
        "train_loss": {
            "first": float(loss[0]) if loss.size else None,
            "last": float(loss[-1]) if loss.size else None,
            "smoothed_last": at_the_end(loss, went) if loss.size else None,
            "lowest": float(finite.min()) if finite.size else None,
        },
        "grad_norm": {
            "median": float(np.median(finite_norms)) if finite_norms.size else None,
            "largest": float(finite_norms.max()) if finite_norms.size else None,
        },
        "counts": count(source, bool(rows)),
        "marks": marks(source),
        "clip_sentence": sentence,
        "difficulty": difficulty,
        "eval": evaluations[-1] if evaluations else {},
        "evaluations": evaluations[-POINTS:],
        "curve": {"step": [steps[i] for i in kept], **{k: [v[i] for i in kept] for k, v in series.items()}},
        **facts,
    }


def for_difficulty(
    loss: NDArray[np.float64], base: NDArray[np.float64]
) -> tuple[list[float | None], dict[str, Any] | None]:
    """(adjusted loss, {"slope", "r_squared", "points"}) of step losses, shape (n,), and the start model's on the same
    batches, NaN where unknown; all None where too few are known or the start model finds all batches equally hard."""
    known = np.isfinite(loss) & np.isfinite(base)
    if known.sum() < DIFFICULTY_POINTS:
        return [None] * len(loss), None
    from runner.signals.difficulty import adjusted, r_squared, slope

    steep = float(slope(loss[known], base[known]))
    if not math.isfinite(steep):
        return [None] * len(loss), None
    values = np.full(loss.shape, np.nan)
    values[known] = adjusted(loss[known], base[known], steep)
    fit = {"slope": steep, "r_squared": float(r_squared(loss[known], base[known])), "points": int(known.sum())}
    return [float(v) if k else None for v, k in zip(values, known, strict=True)], fit
