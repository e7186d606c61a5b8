"""The end of a run: curve, counts, paths, the next command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from runner.report.curve import text_curve
from runner.report.progress import clock
from runner.report.screen import Screen
from runner.report.summary import count_line, smoothed


def shown_path(path: Path) -> str:
    """`path` relative to the working folder where it lies below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def close(screen: Screen, summary: dict[str, Any], folder: Path, state: str, reason: str | None, clip: str, next_command: str) -> None:
    """Print what a run came to. `reason` says why it did not simply finish."""
    curve = summary["curve"]
    lines = text_curve(curve["step"], smoothed(np.asarray(curve["loss"], dtype=float)))
    if lines:
        screen.say("\ntrain loss, smoothed")
    for line in lines:
        screen.say(line)
    screen.say()
    loss, held_out = summary["train_loss"], summary["eval"]
    words = f"{state.upper()}  {summary['steps']} steps in {clock(summary['seconds'])}"
    if loss["first"] is not None:
        words += f", train loss {loss['first']:.4f} at the start, {loss['smoothed_last']:.4f} at the end (smoothed)"
    if "eval_loss" in held_out:
        words += f", held-out loss {float(held_out['eval_loss']):.4f}"
    screen.say(words, style="bold green" if state == "finished" else "bold red")
    if reason:
        screen.say(reason)
    screen.say(f"Counted: {count_line(summary, clip)}.")
    report = summary.get("classification")
    if report:
        class_table(screen, report)
    for name in ("model", "plots/loss.png", "summary.json", "telemetry.jsonl"):
        if (folder / name).exists():
            screen.say(f"  {name:<16} {shown_path(folder / name)}")
    screen.say(f"Next: {next_command}")


def class_table(screen: Screen, report: dict[str, Any]) -> None:
    """Per-class report and confusion matrix of the held-out rows."""
    screen.say(
        f"Held out: accuracy {report['accuracy']:.3f} (always guessing the most frequent label: {report['majority']:.3f}), "
        f"macro-F1 {report['macro_f1']:.3f}"
    )
    labels = report["confusion"]["labels"]
    table = Table("label", "precision", "recall", "F1", "rows", *[f"as {label}" for label in labels], box=None)
    for label, counts in zip(labels, report["confusion"]["rows_are_truth"], strict=True):
        row = report["per_class"][label]
        scores = [f"{row[k]:.3f}" for k in ("precision", "recall", "f1")]
        table.add_row(label, *scores, str(row["support"]), *map(str, counts))
    screen.table(table)


def next_command(state: str, folder: Path, multi: bool = False) -> str:
    """The command that most people want after a run that ended in `state`."""
    if state == "stopped":
        return f"python -m runner checkpoint.resume={shown_path(folder)} with the same settings goes on where this stopped"
    if state == "diverged":
        return "python -m runner with a smaller optim.learning_rate; the first broken step is in telemetry.jsonl"
    command = os.environ.get("RUNNER_COMMAND", "python -m runner")
    return f"{command} -m optim.learning_rate=1e-4,1e-3 clip=norm,none      which setting learns best?"
