"""Which reader a path is for."""

from __future__ import annotations

from pathlib import Path

from runner.diagnosis.reading.assemble import traces
from runner.diagnosis.reading.console import read_console
from runner.diagnosis.reading.events import is_events, read_events
from runner.diagnosis.reading.folder import STATE, WRITTEN, candidates, labels, max_grad_norm
from runner.diagnosis.reading.jsonfile import read_json_text
from runner.diagnosis.reading.log import Log
from runner.diagnosis.reading.ours import is_run_folder, read_run
from runner.diagnosis.reading.source import UNDERSTOOD, decode, load
from runner.diagnosis.reading.table import read_table
from runner.diagnosis.trace import Trace
from runner.errors import UserError
from runner.text import Text

OURS = ("telemetry.jsonl", "summary.json", "run.json", "probes.jsonl")
"""Files of a run folder that mean the whole of it."""


def read(path: Path) -> Trace:
    """The log at `path`, a file or a folder, or - for the standard input; of several runs in one file the last.

    Raises `UserError` where there is nothing that can be read; the message names what can.
    """
    return _last(read_all(path))


def _last(found: list[Trace]) -> Trace:
    """The last of the runs in a file, with a note where there are others."""
    last = found[-1]
    if len(found) > 1:
        steps = f", from step {last.step[0]} to {last.step[-1]}" if last.points else ""
        zh = f"，步数 {last.step[0]} 到 {last.step[-1]}" if last.points else ""
        last.notes.append(
            Text(
                f"{len(found)} runs in one file: this is the last{steps}.",
                f"一个文件里有 {len(found)} 次训练：这里读的是最后一次{zh}。",
            )
        )
    return last


def read_all(path: Path) -> list[Trace]:
    """Every run at `path`, in the order of the file; a folder is one run. Raises `UserError` as `read` does."""
    path = Path(path)
    if path.is_dir():
        return [read_run(path)] if is_run_folder(path) else [_folder(path)]
    if path.is_file() and path.name in OURS and is_run_folder(path.parent):
        return [read_run(path.parent)]
    return _file(path)


def _file(path: Path) -> list[Trace]:
    found = [t for log in _logs(path) for t in traces(log)]
    found = [t for t in found if t.points or t.evaluations] or found[-1:]
    for trace in found:
        if str(path) != "-":
            trace.max_grad_norm = max_grad_norm(path)
            if path.name == STATE and any((p / "trainer_log.jsonl").is_file() for p in _homes(path)):
                trace.tool = "llamafactory"
            if any(is_run_folder(p) for p in list(path.absolute().parents)[:3]):
                trace.tool = "runner"
            trace.labels = labels(path)
            if trace.labels and trace.family is None:
                trace.family = "classification"
    return found


def _homes(path: Path) -> list[Path]:
    """The folder of `path`, and that of the run where it is a checkpoint's."""
    return [path.parent, path.parent.parent] if path.parent.name.startswith("checkpoint-") else [path.parent]


def _logs(path: Path) -> list[Log]:
    content = load(path)
    if is_events(content):
        events = read_events([content], path)
        if not events.records:
            raise UserError(f"{path} is an event file of TensorBoard without any number in it yet. Name another log.")
        return [events]
    text = decode(content)
    if text is None:
        raise UserError(f"{path} is binary and no log. What is read: {UNDERSTOOD}.")
    log = read_json_text(text, path) if text.lstrip()[:1] in ("{", "[") else None
    log = log or read_console(text, path)
    logs = [log] if log else read_table(text, path)
    if not logs:
        what = "is empty" if not text.strip() else "holds nothing that looks like the log of a training"
        raise UserError(f"{path} {what}. What is read: {UNDERSTOOD}.")
    return logs


def _folder(folder: Path) -> Trace:
    """The longest log in an output folder of another tool."""
    try:
        inside = [p for p in sorted(folder.iterdir()) if p.is_dir() and is_run_folder(p)]
    except OSError as error:
        raise UserError(
            f"{folder} cannot be read ({error.strerror or error}). Name a log that you may read."
        ) from error
    if inside:
        raise UserError(f"{folder} holds {len(inside)} run folders. Name one of them, such as {inside[0]}.")
    states, written, events, other = candidates(folder)
    state, log = _longest(_traces(states)), _longest(_traces(written))
    best = log if state is None or (log is not None and _length(log) > _length(state)) else state
    if best is not None and log is not None:
        best.tool = log.tool
    if best is None and events:
        best = _longest(_event_traces(events))
    best = best or _longest(_traces(other))
    if best is None:
        raise UserError(f"{folder} holds no log of a training. What is read: {UNDERSTOOD}.")
    return best


def _traces(paths: list[Path]) -> list[Trace]:
    """The last run of each of `paths`; a file that cannot be read is passed over."""
    found = []
    for path in paths:
        try:
            found.append(_last(_file(path)))
        except UserError:
            continue
    return found


def _event_traces(paths: list[Path]) -> list[Trace]:
    """One run for each folder with event files of TensorBoard: a run that was resumed has several."""
    found = []
    for folder in sorted({p.parent for p in paths}):
        contents = [load(p) for p in paths if p.parent == folder]
        log = read_events([c for c in contents if is_events(c)], folder)
        found += [_last(traces(log))] if log.records else []
    return found


def _longest(found: list[Trace]) -> Trace | None:
    """The trace that goes furthest, with a note where there are some of other runs."""
    best = max(found, key=_length, default=None)
    runs = {_homes(t.path)[-1] if t.path.name in (STATE, *WRITTEN) else t.path for t in found}
    if best is not None and len(runs) > 1:
        best.notes.append(
            Text(
                f"{len(runs)} logs in this folder: this is the longest, {best.path}.",
                f"该文件夹里有 {len(runs)} 份日志：这里读的是最长的一份，{best.path}。",
            )
        )
    return best


def _length(trace: Trace) -> tuple[int, int]:
    return (int(trace.step[-1]) if trace.step.size else 0, trace.points)
