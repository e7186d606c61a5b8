"""A sweep: the verdict of every trial, and the setting that the ill ones share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.diagnosis.judge import diagnose, given
from runner.diagnosis.reading import read
from runner.diagnosis.reading.ours import is_run_folder
from runner.diagnosis.verdict import Verdict
from runner.errors import UserError
from runner.report.columns import cut
from runner.runfolder import read_json
from runner.text import Language, Text

ILL = ("at_risk", "broken")

WORDS = {
    "normal": Text("normal", "正常"),
    "at_risk": Text("AT RISK", "有风险"),
    "broken": Text("BROKEN", "已损坏"),
    "cannot_tell": Text("cannot tell", "无法判断"),
    "yes": Text("learns", "在学习"),
    "slow": Text("slow", "学得慢"),
    "no": Text("does not learn", "没有在学"),
}


def is_sweep(path: Path) -> bool:
    """Whether `path` is a folder with run folders in it that is none itself."""
    return path.is_dir() and not is_run_folder(path) and any(is_run_folder(p) for p in path.iterdir() if p.is_dir())


def sweep_lines(path: Path, language: Language, width: int) -> tuple[list[str], dict[str, Any]]:
    """(lines to print, content for --json) of a sweep folder: one line per trial, then what the ill ones share.

    A trial that cannot be read (it died before its first step) is listed with its state and reason.
    """
    trials: list[tuple[Path, dict[str, Any], list[str], Verdict | None, str]] = []
    for folder in sorted(p for p in path.iterdir() if p.is_dir() and is_run_folder(p)):
        record = read_json(folder / "run.json") or {}
        try:
            trace = read(folder)
        except UserError as error:
            trials.append((folder, record, [], None, str(error)))
            continue
        trials.append((folder, record, given(trace), diagnose(trace), ""))
    changed = _changed([t[2] for t in trials if t[3] is not None])
    lines: list[str] = []
    rows: list[dict[str, Any]] = []
    for folder, record, overrides, verdict, problem in trials:
        name = " ".join(o for o in overrides if o in changed) or folder.name
        state = str(record.get("state", "unknown"))
        if verdict is None:
            said = str(record.get("reason") or problem)
            rows.append({"folder": folder.name, "state": state, "verdict": None, "problem": said})
        else:
            said = verdict.headline.within(language)
            rows.append({"folder": folder.name, "state": state, "overrides": overrides, "verdict": verdict.as_json()})
        answer = "-" if verdict is None else WORDS[verdict.stability].within(language)
        learns = "" if verdict is None else WORDS[verdict.learning].within(language)
        lines.append(cut(f"{name}  {state}  {answer}  {learns}  {said}", width))
    shared = blamed([(o, v) for _, _, o, v, _ in trials if v is not None])
    if shared is not None:
        setting, ill, of = shared
        lines.append(
            Text(
                f"All {ill} ill trial(s) have {setting} ({ill} of {of} with it), and none without it is ill.",
                f"{ill} 个异常试验都含 {setting}（含它的共 {of} 个），不含它的都正常。",
            ).within(language)
        )
    return lines, {"schema": 1, "trials": rows, "shared": None if shared is None else shared[0]}


def blamed(trials: list[tuple[list[str], Verdict]]) -> tuple[str, int, int] | None:
    """(setting, ill trials with it, trials with it): the one override that every ill trial has and that fewest healthy
    ones have, at least half of its own being ill. None where all or none are ill, or none is shared by all."""
    ill = [set(o) for o, v in trials if v.stability in ILL]
    if not ill or len(ill) == len(trials):
        return None
    common = set.intersection(*ill)
    everywhere = set.intersection(*(set(o) for o, _ in trials))
    counted = {s: sum(s in o for o, _ in trials) for s in common - everywhere}
    fitting = {s: n for s, n in counted.items() if 2 * len(ill) >= n}
    if not fitting:
        return None
    setting = min(fitting, key=lambda s: (fitting[s], s))
    return setting, len(ill), fitting[setting]


def _changed(overrides: list[list[str]]) -> set[str]:
    """Overrides that not all trials have."""
    everywhere = set.intersection(*(set(o) for o in overrides)) if overrides else set()
    return {s for o in overrides for s in o} - everywhere
