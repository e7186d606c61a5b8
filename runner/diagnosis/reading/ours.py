"""A run folder of this project (docs/telemetry.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runner.diagnosis.reading.assemble import evaluations, traces
from runner.diagnosis.reading.log import Log, Record, joined, keys_of, numbers
from runner.diagnosis.reading.order import in_order
from runner.diagnosis.reading.plan import steps_per_epoch
from runner.diagnosis.trace import Column, Family, RunFacts, Trace
from runner.runfolder import newest_checkpoint, read_json, read_rows

KEPT = (
    "step",
    "epoch",
    "loss",
    "grad_norm",
    "learning_rate",
    "skipped",
    "rolled_back_to",
    "spike",
    "incident",
    "sources",
)
EXTRA = ("clip_coef", "base_loss", "loss_scale", "update_rms", "weight_rms", "rms_t", "tokens", "seconds")


def is_run_folder(path: Path) -> bool:
    """Whether `path` is a run folder of this project, of a run of any state."""
    if (path / "telemetry.jsonl").is_file():
        return True
    run = read_json(path / "run.json") if (path / "config.json").is_file() else None
    return run is not None and "state" in run


def read_run(folder: Path) -> Trace:
    """The run in `folder`: from telemetry, or without one (`stability=off`) from what Trainer or the summary kept.

    A run that has not made a step yet is a trace without points.
    """
    facts = _facts(folder)
    checkpoint = newest_checkpoint(folder)
    state = (read_json(checkpoint / "trainer_state.json") if checkpoint else None) or {}
    if (folder / "telemetry.jsonl").is_file():
        trace = _telemetry(folder)
        trace.logging_steps = 1
    else:
        trace = _without_telemetry(folder, facts, state)
        trace.logging_steps = _whole(_part(facts.config, "tracking").get("logging_steps")) or trace.logging_steps
    held_out = facts.summary.get("evaluations")
    history = held_out if isinstance(held_out, list) and held_out else state.get("log_history", [])
    records = [r for r in history if isinstance(r, dict)]
    trace.evaluations = evaluations(records, keys_of(records))
    for incident in facts.incidents:
        step = _whole(incident.get("step"))
        if step and step not in trace.marks.setdefault("incidents", []):
            trace.marks["incidents"] = sorted([*trace.marks["incidents"], step])
    _plan(trace, facts, state)
    trace.labels = _labels(folder, facts) if trace.family == "classification" else None
    trace.facts = facts
    return trace


def _facts(folder: Path) -> RunFacts:
    summary = read_json(folder / "summary.json") or {}
    noise = (read_json(folder / "base_loss.json") or {}).get("noise") or summary.get("noise")
    incidents = [read_json(p) for p in folder.glob("incident-*/incident.json")]
    return RunFacts(
        config=read_json(folder / "config.json") or {},
        run=read_json(folder / "run.json") or {},
        summary=summary,
        probes=list(read_rows(folder / "probes.jsonl")),
        noise=noise if isinstance(noise, dict) else {},
        incidents=sorted((i for i in incidents if i), key=lambda i: _whole(i.get("step")) or 0),
    )


def _telemetry(folder: Path) -> Trace:
    rows, unreadable = [], 0
    for row in _lines(folder / "telemetry.jsonl"):
        if row is None or not isinstance(row.get("step"), int):
            unreadable += 1
            continue
        kept = {k: row[k] for k in (*KEPT, *EXTRA) if k in row}
        noise = row.get("noise_scale")
        kept["b_simple"] = noise.get("b_simple") if isinstance(noise, dict) else None
        rows.append(kept)
    order = in_order(
        np.array([r["step"] for r in rows], dtype=np.int64), _column(rows, "loss"), [None] * len(rows), True
    )
    rows = [rows[i] for i in order.kept]
    trace = Trace(
        path=folder,
        kind="run",
        tool="runner",
        step=np.array([r["step"] for r in rows], dtype=np.int64),
        epoch=_column(rows, "epoch").values,
        loss=_column(rows, "loss"),
        grad_norm=_column(rows, "grad_norm"),
        learning_rate=_column(rows, "learning_rate"),
        restarts=order.restarts,
        repeated=order.repeated,
        unreadable=unreadable,
    )
    columns = {name: _column(rows, name) for name in (*EXTRA, "b_simple")}
    trace.extra = {name: column for name, column in columns.items() if column.any}
    for name in sorted({name for r in rows for name in _part(r, "sources")}):
        trace.sources[name], trace.source_tokens[name] = _source([_part(r, "sources").get(name) for r in rows])
    for row in rows:
        for mark, there in (
            ("skipped", row.get("skipped") is not None),
            ("loss_scale_overflow", row.get("skipped") == "loss_scale_overflow"),
            ("rollbacks", row.get("rolled_back_to") is not None),
            ("spikes", row.get("spike") is not None),
            ("incidents", row.get("incident") is not None),
        ):
            if there:
                trace.marks.setdefault(mark, []).append(row["step"])
    return trace


def _lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """The rows of `path`, None for a line that is none."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError):
                row = None
            yield row if isinstance(row, dict) else None


def _column(rows: list[Record], name: str) -> Column:
    return numbers([r.get(name) for r in rows])


def _source(parts: list[Any]) -> tuple[Column, Column]:
    """Mean loss and tokens of one source, from [loss sum, tokens, rows] of each step; no tokens, no loss."""
    sums = numbers([p[0] if isinstance(p, list) and len(p) > 1 else None for p in parts])
    tokens = numbers([p[1] if isinstance(p, list) and len(p) > 1 else None for p in parts])
    there = sums.known & (tokens.values > 0)
    mean = np.divide(sums.values, tokens.values, out=np.full(len(parts), np.nan), where=there)
    return Column(mean, there), tokens


def _without_telemetry(folder: Path, facts: RunFacts, state: dict[str, Any]) -> Trace:
    """The longer of Trainer's own log in the newest checkpoint and the curve in summary.json (at most 500 points)."""
    curve = _part(facts.summary, "curve")
    size = len(curve.get("step") or [])
    columns = {k: v for k, v in curve.items() if isinstance(v, list) and len(v) == size}
    drawn = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    history = [r for r in state.get("log_history", []) if isinstance(r, dict)]
    logged = [r for r in history if r.get("loss") is not None]
    last = max((_whole(r.get("step")) or 0 for r in logged), default=0)
    longer = bool(drawn) and (len(drawn), _whole(drawn[-1].get("step")) or 0) > (len(logged), last)
    kept = drawn if longer else history
    facts_there: dict[str, Any] = {} if longer else {k: state[k] for k in ("epoch", "global_step") if k in state}
    trace = traces(Log(folder, "run", "runner", kept, facts_there))[0]
    if longer and history:  # the curve has no epochs
        at = joined(history, ["step"])
        good = at.finite
        trace.steps_per_epoch = steps_per_epoch(
            at.values[good].astype(np.int64), joined(history, ["epoch"]).values[good]
        )
    return trace


def _plan(trace: Trace, facts: RunFacts, state: dict[str, Any]) -> None:
    """Fill in what the config, run.json and Trainer's state say about the plan."""
    schedule, clip = _part(facts.config, "schedule"), _part(facts.config, "clip")
    known = steps_per_epoch(trace.step, trace.epoch)
    trace.steps_per_epoch = known or trace.steps_per_epoch
    epochs = numbers([schedule.get("num_train_epochs")]).values[0]
    trace.max_steps = _whole(schedule.get("max_steps")) or _whole(state.get("max_steps"))
    if trace.max_steps is None and trace.steps_per_epoch and np.isfinite(epochs):
        trace.max_steps = math.ceil(trace.steps_per_epoch * float(epochs) - 1e-6) or None
    if trace.max_steps and trace.steps_per_epoch:
        trace.epochs_planned = trace.max_steps / trace.steps_per_epoch
    elif np.isfinite(epochs) and not _whole(schedule.get("max_steps")):
        trace.epochs_planned = float(epochs)
    limit = numbers([clip.get("max_grad_norm")])
    trace.max_grad_norm = float(limit.values[0]) if clip.get("method") == "norm" and limit.any else None
    family: dict[Any, Family] = {"sft": "sft", "classification": "classification"}
    trace.family = family.get(_part(facts.config, "task").get("name"))
    named = facts.run.get("state")
    trace.ended = None if named is None else named == "finished"


def _labels(folder: Path, facts: RunFacts) -> int | None:
    """Classes, by the config, or by the model that the run saved."""
    labels = _part(facts.config, "task").get("labels")
    if isinstance(labels, list | dict) and labels:
        return len(labels)
    saved = (read_json(folder / "model" / "config.json") or {}).get("id2label")
    return len(saved) if isinstance(saved, dict) and saved else None


def _part(content: dict[str, Any], name: str) -> dict[str, Any]:
    part = content.get(name)
    return part if isinstance(part, dict) else {}


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value < 2**53 else None
