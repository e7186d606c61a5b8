"""What is counted in every summary, and the line that says it."""

from __future__ import annotations

from typing import Any

import numpy as np

from runner.report.broken import SEARCH, broken, gradient_broken, loss_broken, taken
from runner.report.clip import clipped
from runner.runfolder import number
from runner.signals.smooth import thin

MARKS = 500
"""Longest list of steps in a summary; a longer one is thinned evenly, first and last kept."""


def few(steps: list[Any]) -> list[Any]:
    """At most `MARKS` of `steps`."""
    return [steps[i] for i in thin(len(steps), MARKS)]


def count(source: list[dict[str, Any]], measured: bool) -> dict[str, Any]:
    """Counts over rows: of telemetry where `measured`, else of Trainer's log, which knows loss and norm only."""
    bad = [int(r["step"]) for r in source if loss_broken(r)]
    incidents = [str(r["incident"]) for r in source if r.get("incident")]
    return {
        "non_finite_steps": len(bad),
        "first_non_finite_step": bad[0] if bad else None,
        "non_finite_steps_at": few(bad),
        "first_broken_step": next((int(r["step"]) for r in source if broken(r)), None),
        "non_finite_gradients": sum(gradient_broken(r) for r in source),
        "skipped_steps": sum(bool(r.get("skipped")) for r in source),
        "last_step_skipped": bool(source and source[-1].get("skipped")),
        "loss_scale_backoffs": sum(r.get("skipped") == SEARCH for r in source),
        "clipped_steps": int(clipped([number(r.get("clip_coef")) or np.nan for r in source if taken(r)]).sum()),
        "spikes": sum(bool(r.get("spike")) for r in source),
        "warned": sum(r.get("action") == "warn" for r in source),
        "rollbacks": sum(r.get("action") == "rollback" for r in source),
        "incidents": len(incidents),
        "first_incident": incidents[0] if incidents else None,
        "steps_measured": len(source),
        "telemetry": measured,
        "health": lights(source),
    }


def lights(source: list[dict[str, Any]]) -> dict[str, Any] | None:
    """{"green", "yellow", "red": steps, "first_red_step"}; None where no row knows a light."""
    found = [h if isinstance(h := r.get("health"), dict) else {} for r in source]
    if not any(found):
        return None
    shown = [h.get("light", "green") for h in found]
    counted: dict[str, Any] = {light: shown.count(light) for light in ("green", "yellow", "red")}
    first = next((int(r["step"]) for r, light in zip(source, shown, strict=True) if light == "red"), None)
    return {**counted, "first_red_step": first}


def marks(source: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Steps that pictures mark, at most 500 of each: thinning a curve must not hide them."""
    return {
        "gradients": few([r["step"] for r in source if gradient_broken(r)]),
        "skipped": few([r["step"] for r in source if r.get("skipped")]),
        "spikes": few([r["step"] for r in source if r.get("spike")]),
        "rollbacks": few([r["step"] for r in source if r.get("action") == "rollback"]),
        "incidents": few([{"step": r["step"], "folder": r["incident"]} for r in source if r.get("incident")]),
    }


def count_line(summary: dict[str, Any], clip: str) -> str:
    """The counted truths in one sentence; nothing is left out because it is zero."""
    counts = summary["counts"]
    parts = [f"{counts['non_finite_steps']} of {counts['steps_measured']} steps with a non-finite loss"]
    if counts["first_non_finite_step"] is not None:
        parts[0] += f" (first at step {counts['first_non_finite_step']})"
    if not counts["telemetry"]:
        shown = parts[0].replace(" steps ", " logged values ")
        return f"{shown}; gradients, skips, clips and spikes were not measured (no telemetry)"
    if counts["non_finite_gradients"]:
        parts.append(f"{counts['non_finite_gradients']} with a non-finite gradient")
    skipped = f"{counts['skipped_steps']} skipped"
    if counts["loss_scale_backoffs"]:
        skipped += f" (by the loss scale: {counts['loss_scale_backoffs']})"
    parts += [skipped, f"{counts['clipped_steps']} clipped ({clip})"]
    parts += [f"{counts['spikes']} spikes", f"{counts['rollbacks']} roll-backs", f"{counts['incidents']} incidents"]
    if counts["first_incident"] is not None:
        parts[-1] += f" (first: {counts['first_incident']})"
    health = counts.get("health")
    if health and (health["yellow"] or health["red"]):
        parts.append(f"{health['yellow']} steps at risk, {health['red']} doomed")
    return ", ".join(one(part) for part in parts)


def one(part: str) -> str:
    """ "1 spikes" -> "1 spike"."""
    number_, _, rest = part.partition(" ")
    noun, _, after = rest.partition(" ")
    return f"1 {noun.removesuffix('s')} {after}".rstrip() if number_ == "1" and noun.endswith("s") else part
