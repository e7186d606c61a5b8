"""Console logs: the dicts that Trainer prints, among progress bars, warnings and whatever else a terminal shows."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from runner.diagnosis.reading.jsonfile import is_record, tool_of
from runner.diagnosis.reading.log import Log, Record
from runner.runfolder import number

BRACES = re.compile(r"\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}")
INNER = re.compile(r"\{[^{}]*+\}")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BAR = re.compile(r"%\|[^|\r\n]*\| *(\d+)/(\d+) \[")
"""tqdm: ` 12%|#2   | 10/81 [00:10<01:11, 1.00s/it]`."""

TOLD = re.compile(r"loss['\"]|reward['\"]|train_runtime['\"]|current_steps['\"]")
TOGETHER = 512
"""Dicts parsed at once; one that is broken costs a second look at that many."""

TOOLS = re.compile(r"llamafactory|LLaMA-?Factory|LlamaFactory|\[INFO:swift\]")

BEGUN = re.compile(r"\{\s*['\"](?:train/)?(?:loss|eval_loss)['\"]\s*:")
WORDS = (
    ("(", re.compile(r"\b(?:tensor|(?:np|numpy|torch)\.\w+|float|int)\(([^()]*?)(?:,[^()]*)?\)"), r"\1"),
    ("nan", re.compile(r"\bnan\b", re.I), "NaN"),
    ("inf", re.compile(r"\binf(?:inity)?\b", re.I), "Infinity"),
    ("none", re.compile(r"\bNone\b"), "null"),
    ("true", re.compile(r"\bTrue\b"), "true"),
    ("false", re.compile(r"\bFalse\b"), "false"),
)
"""Python's words and those of its libraries, and what JSON says instead. Inside of quotes the change does no harm."""


def read_console(text: str, path: Path) -> Log | None:
    """The records printed in `text`, or None where there are none."""
    if "\x1b" in text:
        text = COLOURS.sub("", text)
    found = [(m.start(), m.end(), m.group()) for m in BRACES.finditer(text) if TOLD.search(m.group())]
    parsed, unreadable = _parse([f[2] for f in found]), 0
    places: list[tuple[int, int]] = []
    records: list[Record] = []
    for (start, end, words), record in zip(found, parsed, strict=True):
        if record is not None and is_record(record):
            records.append(record)
            places.append((start, end))
        elif record is None:
            inner = [(m.span(), _one(m.group())) for m in INNER.finditer(words) if TOLD.search(m.group())]
            good = [(span, r) for span, r in inner if r is not None and is_record(r)]
            records += [r for _, r in good]
            places += [(start + a, start + b) for (a, b), _ in good]
            unreadable += not good
    begun = len(BEGUN.findall(text))
    if not records:
        return None
    unreadable = max(unreadable, begun - sum("loss" in r or "eval_loss" in r for r in records))
    tool = tool_of(records)
    if tool == "transformers" and (named := TOOLS.search(text)):
        tool = "ms_swift" if "swift" in named[0] else "llamafactory"
    log = Log(path, "console", tool, records, unreadable=unreadable)
    if "%|" in text and not any("step" in r or "current_steps" in r or "global_step/max_steps" in r for r in records):
        _steps_of_bar(log, text, places)
    return log


def _parse(dicts: list[str]) -> list[Record | None]:
    """Each of `dicts` read, None where it is no dict. Many at once where that succeeds, which is fast."""
    read: list[Record | None] = []
    for at in range(0, len(dicts), TOGETHER):
        part = dicts[at : at + TOGETHER]
        try:
            rows: list[Any] = json.loads("[" + _as_json(",\n".join(part)) + "]")
        except (json.JSONDecodeError, RecursionError):
            rows = []
        whole = len(rows) == len(part) and all(isinstance(r, dict) for r in rows)
        read += rows if whole else [_one(words) for words in part]
    return read


def _as_json(words: str) -> str:
    changed = words.replace("'", '"')
    lower = changed.lower()
    for sign, pattern, replacement in WORDS:
        if sign in lower:
            changed = pattern.sub(replacement, changed)
    return changed


def _one(words: str) -> Record | None:
    for read in (lambda: json.loads(_as_json(words)), lambda: json.loads(words), lambda: ast.literal_eval(words)):
        try:
            row = read()
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        if isinstance(row, dict):
            return {str(k): v for k, v in row.items()}
    return None


def _steps_of_bar(log: Log, text: str, places: list[tuple[int, int]]) -> None:
    """Give the records the steps of the progress bar that follows them, where these make sense for all of them.

    Trainer prints a record after its bar has moved and tqdm draws the bar again below it. Where a file collects bars
    and records at different times they do not fit: then nothing is set.
    """
    every = [(m.start(), int(m[1]), int(m[2])) for m in BAR.finditer(text)]
    points = [i for i, r in enumerate(log.records) if number(r.get("loss")) is not None]
    if not every or not points:
        return
    limits = [places[i][0] for i in points[1:]] + [len(text)]
    for total, _ in Counter(b[2] for b in every).most_common(4):  # evaluations and the reading of data have bars too
        bars = [b for b in every if b[2] == total]
        starts = np.array([b[0] for b in bars])
        following = np.searchsorted(starts, [places[i][1] for i in points]).tolist()
        before = [bars[j - 1][1] if j else None for j in following]
        later = [
            bars[j][1] if j < len(bars) and bars[j][0] < end else None for j, end in zip(following, limits, strict=True)
        ]
        steps = _plausible(later) or (_plausible(before) if before[0] else None)
        if steps is None and later[-1] is None and (steps := _plausible(later[:-1])):
            steps.append(steps[-1] + steps[1] - steps[0])  # the run died before its bar was drawn again
        if steps:
            break
    else:
        return
    at = dict(zip(points, steps, strict=True))
    last = 0
    for i, record in enumerate(log.records):
        last = at.get(i, last)
        record["step"] = last
    log.state["max_steps"] = total


def _plausible(counts: list[int | None]) -> list[int] | None:
    """`counts` as steps, where they rise by the same number nearly always; else None.

    Logging every 10 steps, a bar that stands at 9, 19, ... was drawn one step before the record.
    """
    steps = [c for c in counts if c is not None]
    gaps = np.diff(steps)
    if len(steps) < len(counts) or not gaps.size or (gaps <= 0).any():
        return None
    gap, often = Counter(gaps.tolist()).most_common(1)[0]
    if often < 0.8 * gaps.size:
        return None
    early = gap > 1 and sum((s + 1) % gap == 0 for s in steps) > 0.8 * len(steps)
    return [s + 1 for s in steps] if early else steps
