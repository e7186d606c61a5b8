"""From the records of a log to a `Trace`: points, evaluations, and what can be inferred about the run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runner.diagnosis.reading.log import EVALUATION, Log, Record, joined, keys_for, keys_of, plain
from runner.diagnosis.reading.order import goes_back, in_order, run_starts
from runner.diagnosis.reading.plan import family_of, fill_plan
from runner.diagnosis.trace import Column, Evaluations, Trace

SUMMARY = ("train_runtime", "train/train_runtime")
"""Keys of the record that ends a training; its train_loss is the mean of the run."""


def traces(log: Log) -> list[Trace]:
    """One `Trace` for each run in `log`, in the order of the file."""
    log.records = _in_training(log.records)
    return [_trace(log, part) for part in _runs(log)]


def _in_training(records: list[Record]) -> list[Record]:
    """Leaves out what LLaMA-Factory logs of an evaluation after the training: it counts batches as steps."""
    totals = {r.get("total_steps") for r in records if r.get("loss") is not None}
    if not totals or None in totals:
        return records
    return [r for r in records if r.get("total_steps", None) in totals or "current_steps" not in r]


def _runs(log: Log) -> list[list[Record]]:
    """The records of each run. A trainer_state.json holds one run, whatever its steps do."""
    if log.kind in ("run", "trainer_state"):
        return [log.records]
    keys = keys_of(log.records)
    positions = [joined(log.records, keys_for(keys, name)) for name in ("step", "epoch")]
    if not any(goes_back(p.values[p.known]).size for p in positions):
        return [log.records]
    rows, loss = _points(log.records, keys)
    at = joined(rows, keys_for(keys, "step"))
    if not at.known.all():
        at = joined(rows, keys_for(keys, "epoch"))
    if not at.known.all() or not rows:
        return [log.records]
    cuts = [_index(log.records, rows[i]) for i in run_starts(at.values, loss)[1:]]
    return [log.records[a:b] for a, b in zip([0, *cuts], [*cuts, len(log.records)], strict=True)]


def _index(records: list[Record], first: Record) -> int:
    """Where the run whose first point is `first` begins: an evaluation before its first step belongs to it."""
    at = next(i for i, r in enumerate(records) if r is first)
    while at and (records[at - 1].get("step", records[at - 1].get("epoch")) == 0 and "loss" not in records[at - 1]):
        at -= 1
    return at


def _points(records: list[Record], keys: list[str]) -> tuple[list[Record], Column]:
    """The records with a training loss, and the losses. `train_loss` is one only where it is no summary's."""
    names = keys_for(keys, "loss")
    loss = joined(records, names)
    if not loss.any:
        named = [k for k in keys if plain(k) == "train_loss"]
        found = joined(records, named)
        summary = np.array([any(k in r for k in SUMMARY) for r in records], dtype=bool)
        if named and (found.known & ~summary).sum() > 1:
            loss = Column(found.values, found.known & ~summary)
    rows = [r for r, known in zip(records, loss.known.tolist(), strict=True) if known]
    return rows, Column(loss.values[loss.known], np.ones(len(rows), dtype=bool))


def _trace(log: Log, records: list[Record]) -> Trace:
    keys = keys_of(records)
    rows, loss = _points(records, keys)
    at = _steps(rows, keys_for(keys, "step"))
    epoch = joined(rows, keys_for(keys, "epoch")).values
    counted = not at.finite.all()
    unreadable = log.unreadable
    if counted and at.finite.mean() > 0.5:  # a few torn records among good ones
        good = at.finite
        unreadable += int((~good).sum())
        rows = [r for r, g in zip(rows, good.tolist(), strict=True) if g]
        loss, epoch, at, counted = Column(loss.values[good], loss.known[good]), epoch[good], _pick(at, good), False
    step = _counted(epoch) if counted else np.asarray(at.values, dtype=np.int64)
    held_out = [k for used in _sets(keys).values() for k in used]
    places = _places(records, rows, step, held_out) if counted and held_out else None
    clock = [r.get("elapsed_time") for r in rows]
    order = in_order(step, loss, clock)
    kept = order.kept
    trace = Trace(
        path=log.path,
        kind=log.kind,
        tool=log.tool,
        step=step[kept],
        epoch=epoch[kept],
        loss=_pick(loss, kept),
        grad_norm=_pick(joined(rows, keys_for(keys, "grad_norm")), kept),
        learning_rate=_pick(joined(rows, keys_for(keys, "learning_rate")), kept),
        restarts=order.restarts,
        repeated=order.repeated,
        unreadable=unreadable,
        steps_counted=counted and bool(rows),
        family=family_of(records, keys, log.tool),
        notes=list(log.notes),
    )
    trace.evaluations = evaluations(records, keys, places)
    fill_plan(trace, log.state, records, any(k in keys for k in SUMMARY))
    return trace


def _steps(rows: list[Record], names: list[str]) -> Column:
    """The steps of `rows`; a number beyond what a step can be counts as none."""
    at = joined(rows, names)
    return Column(at.values, at.finite & (np.abs(at.values) < 2**53))


def _pick(column: Column, kept: NDArray[np.int64] | NDArray[np.bool_]) -> Column:
    return Column(column.values[kept], column.known[kept])


def _counted(epoch: NDArray[np.float64]) -> NDArray[np.int64]:
    """Steps 1, 2, 3, ... for points without any. Where the epoch goes back, points made again get their steps again."""
    step = np.arange(1, epoch.size + 1, dtype=np.int64)
    for i in goes_back(epoch):
        earlier = np.flatnonzero(epoch[:i] < epoch[i])
        first = int(step[earlier].max()) + 1 if earlier.size else 1
        step[i:] = np.arange(first, first + epoch.size - i)
    return step


def _places(records: list[Record], rows: list[Record], step: NDArray[np.int64], held_out: list[str]) -> list[int]:
    """The step of each record of a log without steps: that of the last point before it.

    Where a log has more evaluations than points, those that follow one another are counted on.
    """
    of_row = {id(r): int(s) for r, s in zip(rows, step, strict=True)}
    several = sum(any(r.get(k) is not None for k in held_out) for r in records) > max(len(rows), 1)
    found, last = [], 0
    for record in records:
        if id(record) in of_row:
            last = of_row[id(record)] if not several else last + 1
            of_row[id(record)] = last
        elif several and any(record.get(k) is not None for k in held_out):
            last += 1
        found.append(last)
    step[:] = [of_row[id(r)] for r in rows]
    return found


def evaluations(records: list[Record], keys: list[str], places: list[int] | None = None) -> list[Evaluations]:
    """Every held-out loss in `records`, one `Evaluations` a set, that without a name first.

    `places` gives each record's step where the log has none. Of two at one step the later counts, unless it was made
    after the end of the training: that one may be of the best weights, not of the last.
    """
    steps, epochs = keys_for(keys, "step"), keys_for(keys, "epoch")
    ended = next((i for i, r in enumerate(records) if any(k in r for k in SUMMARY)), len(records))
    found = []
    for name, used in sorted(_sets(keys).items()):
        values = joined(records, used)
        if not values.any:
            continue
        indices = np.flatnonzero(values.known)
        rows = [records[i] for i in indices]
        at, epoch = _steps(rows, steps), joined(rows, epochs)
        by_step: dict[int, int] = {}
        for j, i in enumerate(indices.tolist()):
            step = places[i] if places is not None else int(at.values[j]) if at.finite[j] else j + 1
            if i < ended or step not in by_step:
                by_step[step] = j
        order = sorted(by_step)
        chosen = np.array([by_step[s] for s in order], dtype=np.int64)
        losses = values.values[indices][chosen]
        found.append(Evaluations(name, np.array(order, dtype=np.int64), epoch.values[chosen], losses))
    return found


def _sets(keys: list[str]) -> dict[str, list[str]]:
    """{name of a validation set: the keys that hold its loss}."""
    sets: dict[str, list[str]] = {}
    for key in keys:
        match = EVALUATION.fullmatch(key.strip())
        if match:
            sets.setdefault(match["before"] or match["after"] or "", []).append(key)
    return sets
