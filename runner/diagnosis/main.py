"""`python -m runner diagnose PATH` and `python -m runner report PATH`. Imports no torch."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UserError
from runner.runfolder import to_json, write_json
from runner.text import Language, language

if TYPE_CHECKING:
    from runner.diagnosis.trace import Trace
    from runner.diagnosis.verdict import Verdict


def parser(verb: str) -> argparse.ArgumentParser:
    """The arguments of `diagnose` or `report`."""
    found = argparse.ArgumentParser(
        prog=f"python -m runner {verb}",
        description={
            "diagnose": "Say whether a run is healthy, why not, and what to change. PATH: a run folder, a sweep, "
            "or a log of another tool (trainer_state.json, trainer_log.jsonl, a console log, TensorBoard events, CSV; "
            "- reads the standard input).",
            "report": "Write report.html: the verdict and every chart in one offline page.",
        }[verb],
    )
    found.add_argument("path", metavar="PATH")
    found.add_argument("--control", metavar="LOG", help="a run on the same batches, at best with learning rate 0")
    found.add_argument("--lang", choices=("auto", "en", "zh"), default="auto", help="language (default: the locale's)")
    if verb == "diagnose":
        found.add_argument("--json", action="store_true", help="print verdict.json instead of the summary")
        found.add_argument("--report", metavar="FILE", help="also write the page to FILE")
    else:
        found.add_argument("--output", "-o", metavar="FILE", help="default: report.html in the run folder, else here")
        found.add_argument("--redact", action="store_true", help="leave out everything that may quote training text")

    def refuse(message: str) -> None:
        raise UserError(f"{verb}: {message}; python -m runner {verb} --help shows all options")

    found.error = refuse  # type: ignore[method-assign, assignment]
    return found


def diagnose(arguments: Sequence[str]) -> int:
    """Print the verdict; a run folder of ours also gets verdict.json and report.html. Status 0 whatever the verdict."""
    args = parser("diagnose").parse_args(list(arguments))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character gets a question mark, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    path, lang = _path(args.path), language(args.lang)
    from runner.diagnosis.many import is_sweep, sweep_lines

    if is_sweep(path):
        lines, content = sweep_lines(path, lang, _width())
        print(json.dumps(to_json(content), ensure_ascii=False, indent=2) if args.json else "\n".join(lines))
        return 0
    from runner.report.verdict_lines import lines as summary

    trace, verdict = judged(path, args.control)
    content = verdict.as_json()
    page: Path | None = None
    if args.report:
        page = Path(args.report)
        write(trace, verdict, page, lang)
    elif trace.kind == "run" and os.access(trace.path, os.W_OK) and trace.path.is_dir():
        page = trace.path / "report.html"
        write_json(trace.path / "verdict.json", content)
        write(trace, verdict, page, lang)
    if args.json:
        print(json.dumps(to_json(content), ensure_ascii=False, indent=2))
    else:
        print("\n".join(summary(verdict, lang, _width(), None if page is None else str(page))))
    return 0


def report(arguments: Sequence[str]) -> int:
    """Write the page and say where it is."""
    args = parser("report").parse_args(list(arguments))
    path, lang = _path(args.path), language(args.lang)
    from runner.diagnosis.many import is_sweep

    if is_sweep(path):
        raise UserError(f"report {path}: this is a sweep. Name one of its run folders; diagnose {path} compares them")
    trace, verdict = judged(path, args.control, args.redact)
    name = "report.html" if trace.kind == "run" else f"{Path(args.path).name.split('.')[0] or 'log'}.report.html"
    page = Path(args.output) if args.output else (trace.path / name if trace.kind == "run" else Path(name))
    write(trace, verdict, page, lang, args.redact)
    print(page)
    return 0


def judged(path: Path, control: str | None, redact: bool = False) -> tuple[Trace, Verdict]:
    """The last run in `path`, judged beside the ones before it and the control; `diagnose` and `report` see the same.

    `redact` leaves out the sentences of incidents: they name tokens and rows.
    """
    from runner.diagnosis.judge import diagnose as judge
    from runner.diagnosis.reading import read, read_all

    *others, trace = read_all(path)
    if redact and trace.facts is not None:
        trace.facts.incidents = []
    return trace, judge(trace, read(_path(control)) if control else None, others)


def write(trace: Trace, verdict: Verdict, page: Path, lang: Language, redact: bool = False) -> None:
    """`write_page`, with a sentence where the file cannot be written."""
    from runner.report.page import write_page

    try:
        write_page(trace, verdict, page, lang, redact=redact)
    except OSError as error:
        raise UserError(
            f"{page} cannot be written ({error.strerror or error}). Name another file: report PATH --output FILE"
        ) from error


def _path(given: str) -> Path:
    path = Path(given)
    try:
        there = given == "-" or path.exists()
        if there and path.is_dir():
            next(path.iterdir(), None)
    except OSError as error:
        raise UserError(f"{given} cannot be read ({error.strerror or error}). Name a log that you may read") from error
    if not there:
        raise UserError(f"{given}: there is no such file or folder")
    return path


def _width() -> int:
    import shutil

    return min(shutil.get_terminal_size((110, 24)).columns, 120) if sys.stdout.isatty() else 110
