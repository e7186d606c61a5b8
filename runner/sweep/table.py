"""After a sweep: one table of all trials, sweep.json beside their folders, and the exit status."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from runner.errors import UserError
from runner.runfolder import SCHEMA, number, read_json, write_json
from runner.sweep import callback
from runner.sweep.record import losses_of, metric_of, one_line


@dataclass
class Row:
    """One trial as the table and sweep.json show it."""

    folder: str
    """Name of its run folder."""

    overrides: list[str]
    """All overrides of the trial, as Hydra recorded them."""

    changed: list[str]
    """Those that are not the same in every trial."""

    state: str
    """State of the run; unknown when run.json is missing or torn."""

    reason: str | None
    """Why it is not finished."""

    exit_code: int | None
    """Status of its process, negative for a signal."""

    steps: int | None
    """Optimizer steps."""

    train_loss: float | None
    """Last train loss."""

    eval_loss: float | None
    """Last eval loss."""

    metric_name: str
    """What the trial is judged by."""

    metric: float | None
    """Its value."""

    seconds: float | None
    """Wall-clock time."""


def run_sweep(multirun: Callable[[], Any]) -> int:
    """Call `multirun`, which lets Hydra run a sweep, show what became of its trials, and return the process status.

    A sweep that ends early, by Ctrl-C or because a trial's config does not compose, gets its table too. The status is
    that of `finish_sweep`, or what `multirun` returned or left with if that is worse news.
    """
    try:
        status = multirun()
    except KeyboardInterrupt as stop:
        return finish_sweep(getattr(stop, "signum", signal.SIGINT))
    except UserError:
        finish_sweep()
        raise
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return finish_sweep() or (status if isinstance(status, int) else 0)


def finish_sweep(signum: int = 0) -> int:
    """Print the table of the sweep that ended in this process and write its sweep.json.

    Args:
        signum: the signal that interrupted the sweep, 0 if none did.

    Returns:
        0 if every trial finished, 1 if one did not, 128 + `signum` after an interruption.
    """
    sweep = callback.current()
    if sweep is None:
        return 128 + signum if signum else 0
    rows = read_rows(sweep.folder)
    missing = max(0, (sweep.total or 0) - len(rows))
    print_table(sweep.folder, rows, missing)
    if signum:
        status = 128 + signum
    else:
        status = 0 if rows and not missing and all(row.state == "finished" for row in rows) else 1
    if sweep.folder.is_dir():
        content = {
            "schema": SCHEMA,
            "exit_code": status,
            "not_started": missing,
            "trials": [asdict(row) for row in rows],
        }
        write_json(sweep.folder / "sweep.json", content)
    return status


def read_rows(sweep: Path) -> list[Row]:
    """Return one row per trial folder under `sweep`, in the order the trials were started."""
    folders = [path.parent for name in ("config.json", ".hydra", "run.json") for path in sweep.glob(f"*/{name}")]
    trials = sorted(set(folders), key=lambda folder: (_started(folder), folder.name))
    overrides = {folder: _overrides(folder) for folder in trials}
    common = set.intersection(*map(set, overrides.values())) if len(trials) > 1 else set()
    return [_row(folder, overrides[folder], common) for folder in trials]


def _row(folder: Path, overrides: list[str], common: set[str]) -> Row:
    record, summary = read_json(folder / "run.json") or {}, read_json(folder / "summary.json") or {}
    state = str(record.get("state") or "unknown")
    reason = record.get("reason") or {
        "unknown": "run.json is missing or cut short",
        "running": "still running, or ended without a word",
    }.get(state)
    steps = number(record.get("steps"))
    steps = number(summary.get("steps")) if steps is None else steps
    name, metric = metric_of(folder, record)
    code = number(record.get("exit_code"))
    return Row(
        folder=folder.name,
        overrides=overrides,
        changed=[override for override in overrides if override not in common],
        state=state,
        reason=None if reason is None else str(reason),
        exit_code=None if code is None else int(code),
        steps=None if steps is None else int(steps),
        metric_name=name,
        metric=metric,
        seconds=_seconds(record, summary),
        **losses_of(summary),
    )


def _started(folder: Path) -> float:
    for name in (".hydra/overrides.yaml", "config.json", "run.json"):
        if (folder / name).exists():
            return (folder / name).stat().st_mtime
    return 0.0


def _overrides(folder: Path) -> list[str]:
    import yaml

    try:
        value = yaml.safe_load((folder / ".hydra" / "overrides.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return []
    return [str(item) for item in value] if isinstance(value, list) else []


def _seconds(record: dict[str, Any], summary: dict[str, Any]) -> float | None:
    seconds = number(summary.get("seconds"))
    if seconds is not None:
        return seconds
    try:
        start, end = datetime.fromisoformat(record["start"]), datetime.fromisoformat(record["end"])
        return (end - start).total_seconds()
    except (KeyError, TypeError, ValueError):
        return None


def print_table(sweep: Path, rows: list[Row], missing: int = 0) -> None:
    """Print one line per trial, then why each unfinished one did not finish, then where it all lies.

    Args:
        sweep: folder of the sweep.
        rows: its trials.
        missing: how many trials were never started.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # A log file has no width; folding names there would defeat grep.
    console = Console(width=None if sys.stdout.isatty() else 200, soft_wrap=False)
    wide = console.width >= 120
    table = Table(title=f"sweep of {len(rows) + missing} trials", title_justify="left")
    table.add_column("trial", overflow="fold")
    table.add_column("state")
    for name in ("steps", "train loss", "eval loss", "seconds"):
        table.add_column(name, justify="right")
    if wide:
        table.add_column("folder", overflow="fold")
    colours = {"finished": "green", "stopped": "yellow"}
    for row in rows:
        cells: list[str | Text] = [
            Text(" ".join(row.changed) or row.folder),
            Text(row.state, style=colours.get(row.state, "red")),
            "" if row.steps is None else str(row.steps),
            _short(row.train_loss, ".4g"),
            _short(row.eval_loss, ".4g"),
            _short(row.seconds, ".1f"),
            Text(row.folder),
        ]
        table.add_row(*cells[: len(table.columns)])
    console.print(table)
    finished = sum(row.state == "finished" for row in rows)
    for row in rows:
        if row.state != "finished":
            console.print(Text(f"{row.state}: {row.folder}: {one_line(row.reason, 400)}"))
    left = f", {missing} not started" if missing else ""
    console.print(Text(f"{finished} of {len(rows) + missing} trials finished{left}: {sweep}"))


def _short(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
