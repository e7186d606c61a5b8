"""The end of a run: curve, counts, paths, the next command."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from rich.table import Table

from runner.report.curve import text_curve
from runner.report.progress import clock
from runner.report.screen import Screen
from runner.report.summary import count_line, smooth_curve
from runner.runfolder import given_overrides, number, read_json


def shown_path(path: Path) -> str:
    """`path` relative to the working folder where it lies below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def close(
    screen: Screen, summary: dict[str, Any], folder: Path, state: str, reason: str | None, clip: str, next_command: str
) -> None:
    """Print what a run came to. `reason` says why it did not simply finish."""
    lines = text_curve(*smooth_curve(summary), marks=summary["counts"]["non_finite_steps_at"])
    if lines:
        screen.say("\ntrain loss, smoothed")
    for line in lines:
        screen.say(line)
    screen.say()
    loss, held_out = summary["train_loss"], summary["eval"]
    words = f"{state.upper()}  {summary['steps']} steps in {clock(summary['seconds'])}"
    if loss["first"] is not None:
        end = loss["smoothed_last"]
        how = " (smoothed)" if math.isfinite(end) else ""
        words += f", train loss {loss['first']:.4f} at the start, {end:.4f} at the end{how}"
        if not math.isfinite(loss["last"]) and math.isfinite(end):
            words += f", the last step's {loss['last']} was skipped"
    if "eval_loss" in held_out:
        words += f", held-out loss {float(held_out['eval_loss']):.4f}"
    screen.say(words, style="bold green" if state == "finished" else "bold red")
    if reason:
        screen.say(reason)
    worse = ended_above_its_start(summary)
    if worse:
        screen.say(worse, style="bold red")
    screen.say(f"Counted: {count_line(summary, clip)}.")
    if summary.get("clip_sentence"):
        screen.say(summary["clip_sentence"])
    best = summary.get("best")
    if best:
        screen.say(f"model/ is {best['checkpoint']}, the best by {best['metric']} ({best['value']:.4f}).")
    report = summary.get("classification")
    if report:
        class_table(screen, report)
    incident = summary["counts"]["first_incident"]
    for name in ("model", "plots/loss.png", "summary.json", "telemetry.jsonl", incident):
        if name and (folder / name).exists():
            screen.say(f"  {name:<16} {shown_path(folder / name)}")
    screen.say(f"Next: {next_command}")


def ended_above_its_start(summary: dict[str, Any]) -> str | None:
    """A sentence where the run made the model worse: the smoothed loss ends above its start by more than two standard
    deviations of a batch, or by a tenth where those are unknown."""
    loss, noise = summary["train_loss"], summary.get("noise") or {}
    start = number(noise.get("mean"))
    start = loss["first"] if start is None or not math.isfinite(start) else start
    end = loss["smoothed_last"]
    if start is None or end is None or not (math.isfinite(start) and math.isfinite(end)):
        return None
    deviation = number(noise.get("sd_step"))
    margin = 2 * deviation if deviation is not None and math.isfinite(deviation) else 0.1 * abs(start)
    if end <= start + margin:
        return None
    return (
        f"The loss ends above where it began ({start:.2f}, now {end:.2f}): the run made the model worse. Try a tenth "
        "of the learning rate first."
    )


def class_table(screen: Screen, report: dict[str, Any]) -> None:
    """Per-class report and confusion matrix of the held-out rows."""
    screen.say(
        f"Held out: accuracy {report['accuracy']:.3f} (always guessing the most frequent label: "
        f"{report['majority']:.3f}), macro-F1 {report['macro_f1']:.3f}"
    )
    labels = report["confusion"]["labels"]
    table = Table("label", "precision", "recall", "F1", "rows", *[f"as {label}" for label in labels], box=None)
    for label, counts in zip(labels, report["confusion"]["rows_are_truth"], strict=True):
        row = report["per_class"][label]
        scores = [f"{row[k]:.3f}" for k in ("precision", "recall", "f1")]
        table.add_row(label, *scores, str(row["support"]), *map(str, counts))
    screen.table(table)


def next_command(state: str, folder: Path) -> str:
    """The command that most people want after a run that ended in `state`."""
    said = given(folder)
    if state == "stopped":
        return f"{' '.join(['python -m runner', *said, f'checkpoint.resume={shown_path(folder)}'])}   goes on from here"
    incident = first_incident(folder)
    replay = "" if incident is None else f"python -m runner replay {shlex.quote(shown_path(incident))}"
    if state == "diverged":
        config = read_json(folder / "config.json") or {}
        half = config.get("precision", {}).get("compute") in ("fp16", "bf16")
        advice = f"{'precision=fp32 or ' if half else ''}a smaller optim.learning_rate may hold"
        if replay:
            return f"{replay}   which module broke first? {advice}"
        if not (folder / "telemetry.jsonl").exists():
            kept = [o for o in said if o.partition("=")[0].partition(".")[0] != "stability"]
            return f"{' '.join(['python -m runner', *kept, 'stability=observe'])}   which step broke, and where?"
        return f"the first broken step is in telemetry.jsonl; {advice}"
    if replay:
        return f"{replay}   what broke that step?"
    kept = [o for o in said if o.partition("=")[0] not in ("optim.learning_rate", "clip")]
    swept = "optim.learning_rate=1e-4,1e-3 clip=norm,none"
    return f"{' '.join(['python -m runner -m', *kept, swept])}   which setting learns best?"


def first_incident(folder: Path) -> Path | None:
    """The `incident-<step>` folder of `folder` with the lowest step; None without one."""
    found = [(int(p.name.removeprefix("incident-")), p) for p in folder.glob("incident-*") if p.name[9:].isdigit()]
    return min(found)[1] if found else None


def given(folder: Path) -> list[str]:
    """The overrides of this run as Hydra recorded them, quoted for a shell; folder and resume left out."""
    return [shlex.quote(o) for o in given_overrides(folder) if not o.startswith("~")]
