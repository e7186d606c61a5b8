"""Running the checks of a stage, and what they come to."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.causes.catalogue import CAUSES
from runner.config.advice import quoted_by
from runner.config.rules import allowed
from runner.config.schema import Config
from runner.errors import UserError
from runner.preflight.check import STAGES, Check, Stage
from runner.preflight.context import Context
from runner.preflight.finding import ORDER, Finding, Result
from runner.preflight.table import CHECKS
from runner.runfolder import SCHEMA, write_json
from runner.text import Text
from runner.training.environment import of_first_process

QUICK_SECONDS = 60.0
"""Seconds that checks.level=quick may take beyond loading; what is left then is not run, and the table says so."""

FILE = "preflight.json"


class PreflightError(UserError):
    """Findings that a run must not start with; the message names them and how to go on."""

    exit_code = 1


@dataclass(frozen=True)
class Line:
    """One check that was run, or not."""

    number: int
    check: Check
    result: Result
    status: str
    """ok, the gravest severity found, not needed, not run (time, level, or an earlier error), or failed (the check
    itself)."""

    seconds: float


@dataclass
class Preflight:
    """The checks of one experiment."""

    cfg: Config
    level: str
    """quick, deep, or off: no check is run."""

    folder: Path
    """Where preflight.json goes."""

    processes: int = 1
    leader: bool = True
    """Writes the file; False on all processes but the first."""

    refuses: bool = False
    """A stage with an error that is not allowed ends in `PreflightError`, as training wants it."""

    on_line: Callable[[Line], None] = field(default=lambda line: None)
    """Told about each check once it was run."""

    checks: Sequence[Check] = CHECKS
    lines: list[Line] = field(default_factory=list)
    done: list[Stage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = Context(self.cfg, self.level, self.folder, self.processes)
        self.started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Spent in checks."""
        return sum(line.seconds for line in self.lines)

    @property
    def findings(self) -> list[Finding]:
        """All findings, the gravest first."""
        every = [f for line in self.lines for f in line.result.findings]
        return sorted(every, key=lambda f: ORDER.index(f.severity))

    @property
    def errors(self) -> list[Finding]:
        """Errors that `checks.allow` does not list."""
        return [f for f in self.findings if f.severity == "error" and f.id not in allowed(self.cfg)]

    def run(self, stage: Stage, **parts: Any) -> None:
        """Run the checks of a stage; `parts` are the fields of the context that have become known.

        A batch says nothing about itself where the weights are at fault: it is not run then. Raises `PreflightError`
        for an error where the run refuses.
        """
        for name, value in parts.items():
            setattr(self.context, name, value)
        self.done.append(stage)
        if self.level == "off":
            return
        spoilt = stage == "batch" and any(f.severity == "error" for f in self.found_in("weights"))
        for check in (c for c in self.checks if c.stage == stage):
            too_big = stage == "batch" and any(f.id == "resources.memory" for f in self.errors)
            if spoilt or too_big:
                why = "the weights are at fault" if spoilt else "the batch does not fit into memory"
                self._keep(check, Result(f"{why}, see above", skipped=True), "not run", 0.0)
            else:
                self._run(check)
        if self.refuses:
            self.refuse()

    def found_in(self, stage: Stage) -> list[Finding]:
        """Findings of one stage."""
        return [f for line in self.lines if line.check.stage == stage for f in line.result.findings]

    def _run(self, check: Check) -> None:
        before = time.perf_counter()
        if check.deep and self.level != "deep":
            result, status = Result("only with checks.level=deep", skipped=True), "not run"
        elif check.alone and self.processes > 1:
            why = f"runs a batch, and there are {self.processes} processes: python -m runner check does it in one"
            result, status = Result(why, skipped=True), "not run"
        elif self.level == "quick" and self.seconds > QUICK_SECONDS:
            result, status = (
                Result(f"the {QUICK_SECONDS:.0f} s of checks.level=quick are used up", skipped=True),
                "not run",
            )
        else:
            result, status = self._result(check)
        self._keep(check, result, status, time.perf_counter() - before)

    def _result(self, check: Check) -> tuple[Result, str]:
        try:
            result = check.function()(self.context)
        except UserError:
            raise
        except Exception as error:
            # A check that trips over an unusual model must not stop a training that would have worked; the table, the
            # file and the closing line say that it did not run.
            return Result(f"the check itself failed: {type(error).__name__}: {' '.join(str(error).split())}"), "failed"
        if result.skipped:
            return result, "not needed"
        grave = min((ORDER.index(f.severity) for f in result.findings), default=None)
        return result, "ok" if grave is None else ORDER[grave]

    def _keep(self, check: Check, result: Result, status: str, seconds: float) -> None:
        findings = tuple(replace(f, advice=answers(f.id, self.cfg)) for f in result.findings)
        line = Line(self.checks.index(check) + 1, check, replace(result, findings=findings), status, seconds)
        self.lines.append(line)
        self.on_line(line)

    def broke(self, error: UserError) -> bool:
        """Enter an error that stopped loading as a finding; False where it names no cause, and has to be raised."""
        if error.finding is None or self.level == "off":
            return False
        stage = STAGES[len(self.done)] if len(self.done) < len(STAGES) else STAGES[-1]
        of_stage = [c for c in self.checks if c.stage == stage]
        code = CAUSES[error.finding].code
        check = next((c for c in of_stage if code in c.codes), of_stage[0])
        sentence = str(error)
        found = Finding(error.finding, "error", sentence, error.where)
        self._keep(check, Result("stopped here", (found,)), "error", 0.0)
        return True

    def as_json(self) -> dict[str, Any]:
        """The content of preflight.json."""
        permitted = allowed(self.cfg)
        return {
            "schema": SCHEMA,
            "level": self.level,
            "seconds": round(self.seconds, 3),
            "counts": {s: sum(f.severity == s for f in self.findings) for s in ORDER},
            "checks": [
                {
                    "number": line.number,
                    "id": line.check.id,
                    "title": line.check.title,
                    "stage": line.check.stage,
                    "codes": list(line.check.codes),
                    "status": line.status,
                    "summary": line.result.summary,
                    "findings": [f.id for f in line.result.findings],
                    "seconds": round(line.seconds, 4),
                }
                for line in self.lines
            ],
            "findings": [f.as_json(f.id in permitted) for f in self.findings],
        }

    def write(self) -> Path | None:
        """Write preflight.json; its path, None with level off and where another process writes it."""
        if self.level == "off" or not self.leader:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / FILE
        write_json(path, self.as_json())
        return path

    def refusal(self) -> str | None:
        """Why training must not start: errors that are not allowed, and how to go on; None where there are none."""
        if not self.errors:
            return None
        said = "\n".join(f"  {f.id}{f' ({f.code})' if f.code else ''}: {f.sentence}" for f in self.errors)
        mend = [o for f in self.errors for o in f.overrides]
        ids = list(dict.fromkeys(f.id for f in self.errors))
        allow = f"checks.allow={ids[0]}" if len(ids) == 1 else f"checks.allow=[{','.join(ids)}]"
        return (
            f"preflight found {len(self.errors)} error{'s' if len(self.errors) > 1 else ''}, so training does not "
            f"start:\n{said}\n"
            + (f"Mend: {' '.join(dict.fromkeys(mend))}\n" if mend else "")
            + f"Run all the same: {allow}"
        )

    def refuse(self) -> None:
        """Raise `PreflightError` on every process where the first one found an error that is not allowed; the file is
        written before."""
        why = of_first_process(self.refusal())
        if why is not None:
            self.write()
            raise PreflightError(why)


def answers(cause: str, cfg: Config) -> tuple[Text, ...]:
    """What is true of the popular advice that `cfg` follows and that a finding of `cause` is about."""
    return tuple(a.text for a in quoted_by(cause, cfg))


def quiet(cfg: Config) -> Config:
    """`cfg` for a trainer that is only examined: no tracker, no checkpoint to resume."""
    return dataclasses.replace(
        cfg,
        tracking=dataclasses.replace(cfg.tracking, report_to="none"),
        checkpoint=dataclasses.replace(cfg.checkpoint, resume=None),
    )
