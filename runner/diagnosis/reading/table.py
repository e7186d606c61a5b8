"""Tables: CSV that W&B exports or people write, with comma, semicolon, tab or bar between, and a notebook's table."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from runner.diagnosis.reading.log import EVALUATION, NAMES, Log, Record, plain
from runner.runfolder import number

LIMITS = ("__MIN", "__MAX")
"""Columns of a W&B export beside the value itself."""

QUANTITIES = {name for names in NAMES.values() for name in names} | {"train_loss"}
OF_A_RUN = re.compile(r"(?P<run>.+) - (?P<key>\S(?:.*\S)?)")
RULE = re.compile(r"[-:|\s]+")


def read_table(text: str, path: Path) -> list[Log]:
    """One log for each run with a column of its own in `text` (W&B: `NAME - train/loss`); [] where it is no table."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return []
    between = max(",;\t|", key=lines[0].count)
    if between == "|":
        lines = [line.strip() for line in lines if not RULE.fullmatch(line)]
        lines = [line[1:].removesuffix("|") if line.startswith("|") else line for line in lines]
    if between not in lines[0]:
        return []
    try:
        rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=between, skipinitialspace=True))
    except csv.Error:
        return []
    header = [cell.strip() for cell in rows[0]]
    logs = []
    for columns in _runs(header):
        keys = {plain(key) for key in columns.values()}
        if not keys & {*NAMES["loss"], "train_loss", "value"} and not any(
            EVALUATION.fullmatch(k) for k in columns.values()
        ):
            continue
        if keys == {"wall time", "step", "value"}:
            value = "eval_loss" if "eval" in path.name.lower() else "loss"
            columns = {i: value if plain(key) == "value" else key for i, key in columns.items()}
        records, unreadable = _records(rows[1:], columns, len(header), decimal_comma=between != ",")
        losses = [k for k in columns.values() if plain(k) in {*NAMES["loss"], "train_loss"} or EVALUATION.fullmatch(k)]
        if any(number(r.get(k)) is not None for r in records for k in losses):
            logs.append(Log(path, "csv", "transformers", records, unreadable=unreadable))
    return logs


def _runs(header: list[str]) -> list[dict[int, str]]:
    """{index of a column: its key} of each run; columns of no run (the step) belong to all of them."""
    shared: dict[int, str] = {}
    own: dict[str, dict[int, str]] = {}
    for i, name in enumerate(header):
        if name.endswith(LIMITS):
            continue
        match = OF_A_RUN.fullmatch(name)
        if match and (plain(match["key"]) in QUANTITIES or EVALUATION.fullmatch(match["key"])):
            own.setdefault(match["run"], {})[i] = match["key"]
        elif not match and name:
            shared[i] = name
    return [{**shared, **columns} for columns in own.values()] or [shared]


def _records(
    rows: list[list[str]], columns: dict[int, str], width: int, decimal_comma: bool
) -> tuple[list[Record], int]:
    """The rows as records without their empty cells, and how many rows were too short or too long."""
    names = [columns.get(i, "") for i in range(width)]
    kept = [row for row in rows if len(row) == width]
    if decimal_comma and any("," in cell for row in kept[:50] for cell in row):
        kept = [[re.sub(r"^(-?\d+),(\d+(?:e-?\d+)?)$", r"\1.\2", c, flags=re.I) for c in row] for row in kept]
    records = [{n: c for n, c in zip(names, row, strict=True) if n and c} for row in kept]
    return records, len(rows) - len(kept)
