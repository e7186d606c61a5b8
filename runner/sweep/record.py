"""What a trial left behind, read with tolerance and completed where the trial could not do it itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.runfolder import FINAL, SCHEMA, now, number, read_json, write_json


def own_record(folder: Path, pid: int) -> dict[str, Any]:
    """Return run.json if process `pid` wrote it, else nothing: a record left by an earlier try says nothing."""
    record = read_json(folder / "run.json") or {}
    return record if record.get("pid", pid) == pid else {}


def settle(folder: Path, pid: int, state: str, reason: str, exit_code: int) -> dict[str, Any]:
    """Return the final record of the trial that ran as `pid`, writing one if it ended without.

    Args:
        folder: the trial's run folder.
        pid: process id of the trial.
        state: what to record if the trial left none: failed or stopped.
        reason: why, in words.
        exit_code: status of the process, negative for a signal.
    """
    record = own_record(folder, pid)
    if record.get("state") in FINAL:
        return record
    record = {
        "schema": SCHEMA,
        "start": None,
        "seed": None,
        "steps": None,
        "metric": None,
        "metric_name": None,
    } | record
    record |= {"state": state, "reason": reason, "pid": pid, "exit_code": exit_code, "end": now()}
    write_json(folder / "run.json", record)
    return record


def metric_of(folder: Path, record: dict[str, Any]) -> tuple[str, float | None]:
    """Return name and value of what a trial is judged by: its metric, else the last eval loss, else the train loss."""
    value = number(record.get("metric"))
    if value is not None:
        return str(record.get("metric_name") or "metric"), value
    losses = losses_of(read_json(folder / "summary.json") or {})
    if losses["eval_loss"] is not None:
        return "eval_loss", losses["eval_loss"]
    return "loss", losses["train_loss"]


def losses_of(summary: dict[str, Any]) -> dict[str, float | None]:
    """Return the last train loss and the last eval loss that a summary holds."""
    train, held_out = summary.get("train_loss"), summary.get("eval")
    return {
        "train_loss": number(train.get("last") if isinstance(train, dict) else train),
        "eval_loss": number(held_out.get("eval_loss") if isinstance(held_out, dict) else None),
    }


def one_line(reason: Any, longest: int = 160) -> str:
    """Return a reason, which may hold a problem a line, as one line of at most `longest` characters."""
    text = " ".join(str(reason or "no reason given").split())
    return text if len(text) <= longest else text[: longest - 1] + "…"
