"""`summary.json`: what a run came to, with curves of at most 500 points, so that sweeps need not parse telemetry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.runfolder import SCHEMA, number
from runner.signals.smooth import ema, thin

POINTS = 500


def smoothed(loss: NDArray[np.float64]) -> NDArray[np.float64]:
    """The smoothing that pictures and summaries show: an EMA whose half-life is 2 % of the run, at least 3 points."""
    return ema(loss, max(3.0, 0.02 * len(loss)))


def summarize(rows: list[dict[str, Any]], log_history: list[dict[str, Any]], facts: dict[str, Any]) -> dict[str, Any]:
    """Statistics and curves of a run.

    `rows` are telemetry rows, or [] under stability=off, when Trainer's own log lines stand in. `log_history` is
    Trainer's. `facts` (data report, trainable parameters, ...) are passed on unchanged.
    """
    source = rows or [r for r in log_history if "loss" in r]
    steps = [int(r["step"]) for r in source]
    loss = np.array([number(r["loss"]) for r in source], dtype=float)
    norms = np.array([number(r.get("grad_norm")) for r in source], dtype=float)
    smooth = smoothed(loss)
    coefficients = np.array([number(r.get("clip_coef")) for r in source], dtype=float)
    evaluations = [
        {k: v for k, v in r.items() if k.startswith("eval_") or k in ("step", "epoch")}
        for r in log_history
        if "eval_loss" in r
    ]
    kept = thin(len(steps), POINTS)
    finite = loss[np.isfinite(loss)]
    bad = [s for s, x in zip(steps, loss, strict=True) if not math.isfinite(x)]
    return {
        "schema": SCHEMA,
        "steps": steps[-1] if steps else 0,
        "seconds": sum(number(r.get("seconds")) or 0.0 for r in rows),
        "tokens": sum(int(r.get("tokens", 0)) for r in rows),
        "train_loss": {
            "first": float(loss[0]) if loss.size else None,
            "last": float(loss[-1]) if loss.size else None,
            "smoothed_last": float(smooth[-1]) if loss.size else None,
            "lowest": float(finite.min()) if finite.size else None,
        },
        "grad_norm": {
            "median": float(np.nanmedian(norms)) if np.isfinite(norms).any() else None,
            "largest": float(norms[np.isfinite(norms)].max()) if np.isfinite(norms).any() else None,
        },
        "counts": {
            "non_finite_steps": len(bad),
            "first_non_finite_step": bad[0] if bad else None,
            "non_finite_gradients": int((~np.isfinite(norms)).sum()) if rows else 0,
            "skipped_steps": sum(bool(r.get("skipped")) for r in rows),
            "last_step_skipped": bool(rows and rows[-1].get("skipped")),
            "clipped_steps": int((coefficients < 1).sum()),
            "steps_measured": len(source),
        },
        "eval": evaluations[-1] if evaluations else {},
        "evaluations": evaluations[-POINTS:],
        "curve": {
            "step": [steps[i] for i in kept],
            "loss": [float(loss[i]) for i in kept],
            "grad_norm": [float(norms[i]) for i in kept],
            "learning_rate": [source[i].get("learning_rate") for i in kept],
        },
        **facts,
    }


def count_line(summary: dict[str, Any], clip: str) -> str:
    """The counted truths in one sentence; nothing is left out because it is zero."""
    counts = summary["counts"]
    n = counts["steps_measured"]
    parts = [f"{counts['non_finite_steps']} of {n} steps with a non-finite loss"]
    if counts["first_non_finite_step"] is not None:
        parts[0] += f" (first at step {counts['first_non_finite_step']})"
    if counts["non_finite_gradients"]:
        parts.append(f"{counts['non_finite_gradients']} with a non-finite gradient")
    parts.append(f"{counts['skipped_steps']} skipped")
    parts.append(f"{counts['clipped_steps']} clipped ({clip})")
    return ", ".join(parts)
