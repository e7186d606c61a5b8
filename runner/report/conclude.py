"""The end of a run: its facts are diagnosed, and the verdict goes to the screen, verdict.json, report.html, plots."""

from __future__ import annotations

import traceback
from pathlib import Path

from runner.diagnosis.judge import diagnose
from runner.diagnosis.reading import read
from runner.report.closing import shown_path
from runner.report.figures import write_plots
from runner.report.page import write_page
from runner.report.screen import Screen
from runner.report.verdict_lines import lines, styles
from runner.runfolder import write_json
from runner.text import language


def conclude(folder: Path, screen: Screen) -> None:
    """Diagnose the ended run in `folder` and show what came of it.

    The run is complete without this: whatever goes wrong here is told in full and changes nothing of it.
    """
    try:
        trace = read(folder)
        verdict = diagnose(trace)
        spoken = language()
        write_json(folder / "verdict.json", verdict.as_json())
        write_page(trace, verdict, folder / "report.html", spoken)
        write_plots(trace, verdict, folder / "plots")
        shown = lines(verdict, spoken, report=shown_path(folder / "report.html"))
    except Exception:
        screen.say(
            "The run is complete, but its diagnosis failed. Please report this error; "
            f"python -m runner diagnose {shown_path(folder)} repeats it.\n{traceback.format_exc()}",
            style="bold red",
        )
        return
    screen.say()
    for n, line in enumerate(shown):
        screen.say(line, style=styles(verdict) if n == 0 else "")
