"""JSON: trainer_state.json, a project's own wrapping of it, bare lists, one record a line; whole or cut short."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from runner.diagnosis.reading.log import Log, Record, keys_of
from runner.diagnosis.trace import Kind, Tool

FACTS = ("max_steps", "global_step", "num_train_epochs", "logging_steps", "epoch")
LISTS = ("log_history", "trainer_state", "records", "history", "logs")
"""Where an object may hold the records, the usual place first."""


def read_json_text(text: str, path: Path) -> Log | None:
    """The log in `text`, or None where it is no JSON, or JSON without records of a training."""
    try:
        content = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return _lines(text, path) or _cut_short(text, path)
    if isinstance(content, list):
        records = [r for r in content if isinstance(r, dict)]
        if not any(is_record(r) for r in records):
            return None
        return Log(path, _kind(records), tool_of(records), records, unreadable=len(content) - len(records))
    return _object(content, path) if isinstance(content, dict) else None


def _object(content: dict[str, Any], path: Path) -> Log | None:
    """trainer_state.json, an object that wraps one, an object of columns, or a single record."""
    for name in LISTS:
        inner = content.get(name)
        if isinstance(inner, dict) and isinstance(inner.get("log_history"), list):
            return _object(inner, path)
        if isinstance(inner, list) and (name == "log_history" or any(isinstance(r, dict) for r in inner)):
            records = [r for r in inner if isinstance(r, dict)]
            kind: Kind = "records" if name not in ("log_history", "trainer_state") else "trainer_state"
            facts = {k: content[k] for k in FACTS if k in content}
            return Log(path, kind, tool_of(records), records, facts, len(inner) - len(records))
    lists = {k: v for k, v in content.items() if isinstance(v, list)}
    if isinstance(content.get("loss"), list):
        size = len(content["loss"])
        columns = {k: v for k, v in lists.items() if len(v) == size}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return Log(path, "records", "transformers", rows) if rows else None
    return Log(path, _kind([content]), tool_of([content]), [content]) if is_record(content) else None


def is_record(row: Record) -> bool:
    """Whether `row` is what a training logs: a loss, a step, or a summary."""
    return any(k in row for k in ("loss", "train/loss", "eval_loss", "train_loss", "current_steps", "training_loss"))


def _kind(records: list[Record]) -> Kind:
    return "trainer_log" if any("current_steps" in r for r in records[:50]) else "records"


def tool_of(records: list[Record]) -> Tool:
    """The tool that writes keys like these."""
    keys = set(keys_of(records[:200]))
    if keys & {"global_step/max_steps", "token_acc", "memory(GiB)", "train_speed(iter/s)", "train_speed(s/it)"}:
        return "ms_swift"
    return "llamafactory" if "current_steps" in keys else "transformers"


def _lines(text: str, path: Path) -> Log | None:
    """One object a line. Lines that are none are counted; None where they are the most."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not isinstance(_loads(lines[0]), dict):
        return None
    try:
        rows: list[Any] = json.loads("[" + ",".join(lines) + "]")
    except (json.JSONDecodeError, RecursionError):
        rows = []
    if len(rows) != len(lines):
        rows = [_loads(line) for line in lines]
    records = [r for r in rows if isinstance(r, dict)]
    if 2 * len(records) < len(lines) or not any(is_record(r) for r in records):
        return None
    return Log(path, _kind(records), tool_of(records), records, unreadable=len(lines) - len(records))


def _loads(line: str) -> Any:
    try:
        return json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return None


def _whole_ones(text: str, at: int) -> list[Any]:
    """The values of the list that begins at `at` and has no end: all at once up to one of the last braces, which is
    fast, else one by one."""
    end = len(text)
    for _ in range(8):
        end = text.rfind("}", at, end)
        if end < 0:
            return []
        try:
            return list(json.loads("[" + text[at : end + 1] + "]"))
        except (json.JSONDecodeError, RecursionError):
            continue
    found: list[Any] = []
    decoder = json.JSONDecoder()
    while True:
        at += len(text[at : at + 64]) - len(text[at : at + 64].lstrip(", \t\r\n"))
        try:
            value, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            return found
        found.append(value)


def _cut_short(text: str, path: Path) -> Log | None:
    """A file whose writer was killed: the records that are whole, and the facts that stand before them."""
    found = re.search(r'"(?:log_history|trainer_state)"\s*:\s*\[', text)
    bare = text.lstrip().startswith("[")
    if not found and not bare:
        return None
    at = found.end() if found else text.index("[") + 1
    records = [r for r in _whole_ones(text, at) if isinstance(r, dict)]
    if not found and not any(is_record(r) for r in records):
        return None
    head = text[: found.start()] if found else ""
    facts = {k: json.loads(v) for k, v in re.findall(r'"(\w+)"\s*:\s*(-?[\d.]+(?:e[+-]?\d+)?)', head) if k in FACTS}
    return Log(path, "trainer_state" if found else "records", tool_of(records), records, facts, unreadable=1)
