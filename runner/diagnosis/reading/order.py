"""The order of a log's points: steps made twice, places where the log goes back, several runs in one file."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runner.diagnosis.trace import Column, Restart

ALIKE = 2e-3
"""Two ranks of one run differ by about 1e-4 in what they log of a step; two runs differ by more."""

ROUNDED = 0.006
"""Old versions of transformers print the epoch with two decimals."""

COMPARED = 20
"""Points compared to tell a second run from the same one once more."""


OUT_OF_ORDER = 200
"""A log that goes back more often than this has no order to learn from: writers that overtake one another."""


class Order(NamedTuple):
    """Which points count, and where the log went back."""

    kept: NDArray[np.int64]
    """Indices by increasing step; of a step made twice the last."""

    restarts: list[Restart]
    repeated: int


def run_starts(at: NDArray[np.float64], loss: Column) -> list[int]:
    """Indices at which a run begins, the first always 0.

    `at` is the step (or the epoch) of each point in the order of the file, shape (n,). A run begins where `at` falls
    back to the start: to where the run before began, or to its own logging interval. The losses that follow must be
    others than those logged there before: a repeated paste and the second of two ranks have the same ones.
    """
    starts = [0]
    for i in goes_back(at):
        start, following = starts[-1], at[i : i + COMPARED]
        ahead = following[: int(np.argmax(np.append(np.diff(following) < 0, True))) + 1]
        interval = float(ahead[-1] - ahead[0]) / max(ahead.size - 1, 1)
        from_start = at[i] <= at[start] or (interval > 0 and at[i] <= 1.5 * interval + ROUNDED)
        if from_start and not _same_values(at, loss, start, int(i)):
            starts.append(int(i))
    return starts if at.size else []


def goes_back(at: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices at which `at` is lower than one before; none for a log without any order."""
    back = np.flatnonzero(np.diff(at) < 0) + 1
    return back if back.size <= OUT_OF_ORDER else back[:0]


def _same_values(at: NDArray[np.float64], loss: Column, start: int, here: int) -> bool:
    before = dict(zip(at[start:here].tolist(), loss.values[start:here].tolist(), strict=True))
    pairs = [(before[a], b) for a, b in _points(at, loss, here) if a in before]
    alike = sum(a == b or abs(a - b) <= ALIKE * max(abs(a), abs(b)) or (a != a and b != b) for a, b in pairs)
    return bool(pairs) and alike > len(pairs) / 2


def _points(at: NDArray[np.float64], loss: Column, here: int) -> list[tuple[float, float]]:
    part = slice(here, here + COMPARED)
    return list(zip(at[part].tolist(), loss.values[part].tolist(), strict=True))


def in_order(step: NDArray[np.int64], loss: Column, clock: list[Any], appended: bool = False) -> Order:
    """Sort points by step; of a step made twice the last counts.

    `clock` holds what the log says about the time since its start (LLaMA-Factory's elapsed_time), None where nothing:
    a resumed run begins at 0 again, and two ranks that write out of order do not. `appended` = one writer only, so
    that a step that comes again is a resume as well.
    """
    gap = np.diff(step)
    backs = np.flatnonzero((gap < 0) | ((gap == 0) & appended)) + 1
    ahead = gap[gap > 0]
    spacing = float(np.median(ahead)) if ahead.size else 1.0
    resumes = []
    for i in backs.tolist():
        was, now = seconds(clock[i - 1]), seconds(clock[i])
        far = step[i - 1] - step[i] > 1.5 * spacing
        if step[i] <= step[0] and not appended:
            continue  # the same run once more: a second paste, a second rank
        if was is not None and now is not None:
            resumed = now < (was if far else 0.5 * was)
        else:
            resumed = appended or (far and backs.size <= OUT_OF_ORDER)
        if resumed:
            resumes.append(i)
    restarts = [_restart(step, loss, i, spacing) for i in resumes] if len(resumes) <= OUT_OF_ORDER else []
    _, last = np.unique(step[::-1], return_index=True)
    kept = (step.size - 1 - last).astype(np.int64)
    return Order(kept, restarts, int(step.size - kept.size))


def _restart(step: NDArray[np.int64], loss: Column, i: int, spacing: float) -> Restart:
    """The restart at index `i`; its losses come from the same step or the nearest within one logging interval."""
    before = np.flatnonzero(loss.known[:i] & (np.abs(step[:i] - step[i]) <= spacing))
    nearest = None
    if before.size:
        distance = np.abs(step[before] - step[i])
        nearest = float(loss.values[before[distance == distance.min()][-1]])
    return Restart(int(step[i - 1]), int(step[i]), nearest, float(loss.values[i]) if loss.known[i] else None)


def seconds(clock: Any) -> float | None:
    """Seconds of "1 day, 0:08:23" or "0:02:12", of ms-swift's "3m 3s", of a number; None for anything else."""
    if isinstance(clock, int | float) and not isinstance(clock, bool):
        return float(clock)
    if not isinstance(clock, str):
        return None
    found = re.fullmatch(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)(?:\.\d+)?", clock.strip())
    if found:
        days, hours, minutes, rest = (int(g or 0) for g in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    parts = re.findall(r"(\d+)\s*([dhms])", clock)
    return float(sum(int(n) * {"d": 86400, "h": 3600, "m": 60, "s": 1}[u] for n, u in parts)) if parts else None
