"""The order of checks, what a stage's findings come to, and what is written."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.causes.catalogue import CAUSES
from runner.config.schema import Checks, Config
from runner.errors import UserError
from runner.preflight import flow
from runner.preflight.check import STAGES, Check
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, not_needed, ok, places
from runner.preflight.flow import Preflight, PreflightError
from runner.preflight.show import counts, finding_lines, line_lines, mended, row, short
from runner.preflight.table import CHECKS

ERROR = Finding("weights.damaged", "error", "lm_head.weight holds NaN", ("lm_head.weight",), {"elements": 1})
WARNING = Finding(
    "precision.fp16_overflow", "warning", "fp16 on a bf16 model", ("precision.compute",), {}, ("precision=bf16",)
)
NOTE = Finding("evaluation.noisy", "note", "12 rows", (), {}, ("dataset.validation.fraction=0.1",))


@dataclasses.dataclass(frozen=True)
class Planned(Check):
    """A check that answers what it was given."""

    answer: Callable[[Context], Result] = lambda c: ok("fine")

    def function(self) -> Callable[[Context], Result]:
        return self.answer


def planned(answer: Callable[[Context], Result] | Result, stage: str = "config", **more: object) -> Planned:
    given = answer if callable(answer) else lambda c: answer
    return Planned("room.what", "a title", stage, ("A1",), "none:none", answer=given, **more)  # type: ignore[arg-type]


def preflight(tmp_path: Path, *checks: Check, allow: str = "", level: str = "quick", **more: object) -> Preflight:
    cfg = Config(checks=Checks(allow=[allow] if allow else []))
    return Preflight(cfg, level, tmp_path / "run", checks=checks, **more)  # type: ignore[arg-type]


def test_every_check_of_the_table_has_a_function_and_a_known_code():
    from runner.causes.catalogue import CODES

    assert len({c.id for c in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert callable(check.function()), check.runs
        assert set(check.codes) <= set(CODES)


def test_checks_stand_in_the_order_of_their_stages():
    assert [c.stage for c in CHECKS] == sorted((c.stage for c in CHECKS), key=STAGES.index)


def test_every_code_that_can_be_seen_before_training_has_a_check():
    from runner.causes.catalogue import CODES

    # C4, D2 and G4 show on a GPU or in a run only; F3's filter is always off, and packing (F4) is not offered.
    wanted = set(CODES) - {"C4", "D2", "F3", "F4", "G4"}
    assert wanted <= {code for check in CHECKS for code in check.codes}


def test_an_error_refuses_after_its_stage_and_is_written(tmp_path: Path):
    pre = preflight(tmp_path, planned(found("1 bad", ERROR)), planned(found("", WARNING), "data"), refuses=True)
    with pytest.raises(PreflightError) as error:
        pre.run("config")
    assert error.value.exit_code == 1
    assert "lm_head.weight holds NaN" in str(error.value) and "checks.allow=weights.damaged" in str(error.value)
    written = json.loads((tmp_path / "run" / "preflight.json").read_text())
    assert written["counts"] == {"error": 1, "warning": 0, "note": 0}
    assert written["findings"][0]["id"] == "weights.damaged" and written["findings"][0]["code"] == "A2"
    assert written["findings"][0]["where"] == ["lm_head.weight"] and not written["findings"][0]["allowed"]
    assert [c["status"] for c in written["checks"]] == ["error"]


def test_an_allowed_error_is_kept_and_lets_the_run_go(tmp_path: Path):
    pre = preflight(tmp_path, planned(found("1 bad", ERROR)), allow="weights.damaged", refuses=True)
    pre.run("config")
    assert pre.errors == [] and pre.findings == [ERROR]
    assert pre.as_json()["findings"][0]["allowed"] is True
    assert "allowed by checks.allow" in "\n".join(short(pre))


def test_a_batch_is_not_run_over_damaged_weights(tmp_path: Path):
    ran = []
    pre = preflight(
        tmp_path, planned(found("bad", ERROR), "weights"), planned(lambda c: ran.append(1) or ok(""), "batch")
    )
    pre.run("weights")
    pre.run("batch")
    assert not ran and [line.status for line in pre.lines] == ["error", "not run"]


def test_a_batch_that_does_not_fit_is_not_run_unless_that_is_allowed(tmp_path: Path):
    big = Finding("resources.memory", "error", "needs 90 GB of 8")
    for allow, status in (("", "not run"), ("resources.memory", "ok")):
        pre = preflight(tmp_path, planned(found("", big), "batch"), planned(ok(""), "batch"), allow=allow)
        pre.run("batch")
        assert [line.status for line in pre.lines] == ["error", status]


def test_a_check_that_fails_is_said_and_stops_nothing(tmp_path: Path):
    def broken(c: Context) -> Result:
        raise ZeroDivisionError("by zero")

    pre = preflight(tmp_path, planned(broken), planned(ok("fine")), refuses=True)
    pre.run("config")
    assert [line.status for line in pre.lines] == ["failed", "ok"]
    assert "ZeroDivisionError: by zero" in row(pre.lines[0], 2)
    assert "could not run: room.what" in counts(pre) and any("by zero" in line for line in short(pre))


def test_a_users_mistake_inside_a_check_is_raised(tmp_path: Path):
    def refused(c: Context) -> Result:
        raise UserError("no such file")

    with pytest.raises(UserError, match="no such file"):
        preflight(tmp_path, planned(refused)).run("config")


def test_levels(tmp_path: Path):
    deep = planned(ok("looked"), deep=True)
    quick, thorough, off = (preflight(tmp_path, deep, level=x) for x in ("quick", "deep", "off"))
    for pre in (quick, thorough, off):
        pre.run("config")
    assert [line.status for line in quick.lines] == ["not run"] and [x.status for x in thorough.lines] == ["ok"]
    assert off.lines == [] and off.write() is None and short(off) == []


def test_quick_stops_at_its_time_and_says_what_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flow, "QUICK_SECONDS", -1.0)
    pre = preflight(tmp_path, planned(ok("fine")))
    pre.run("config")
    assert pre.lines[0].status == "not run" and "no time for room.what" in counts(pre)


def test_several_processes_leave_out_what_runs_a_batch(tmp_path: Path):
    pre = preflight(tmp_path, planned(ok("ran"), "batch", alone=True), planned(ok("ran"), "batch"), processes=2)
    pre.run("batch")
    assert [line.status for line in pre.lines] == ["not run", "ok"]
    assert "2 processes" in pre.lines[0].result.summary


def test_an_error_while_loading_becomes_a_finding_of_the_stage_that_was_next(tmp_path: Path):
    pre = preflight(tmp_path, planned(ok("")), planned(ok(""), "data"), planned(ok(""), "weights"))
    pre.run("config")
    pre.run("data")
    assert pre.broke(UserError("3 weights are missing", finding="weights.keys_do_not_match", where=("norm.weight",)))
    assert pre.lines[-1].check.stage == "weights" and pre.findings[0].where == ("norm.weight",)
    assert not pre.broke(UserError("no such folder"))


def test_lines_of_the_table(tmp_path: Path):
    pre = preflight(tmp_path, planned(found("1 found", WARNING)), planned(not_needed("one process")), planned(ok("x")))
    pre.run("config")
    warning, needless, fine = pre.lines
    assert row(warning, 42).startswith("[ 1/42] room: a title ....") and row(warning, 42).endswith("WARNING, 1 found")
    assert row(needless, 42).endswith(" not needed, one process") and row(fine, 42).endswith(" ok, x")
    text = line_lines(warning, 42, "en", [])
    assert text[1].strip() == "WARNING C2 precision.fp16_overflow: fp16 on a bf16 model"
    assert text[2].strip() == CAUSES["precision.fp16_overflow"].remedy.en
    assert text[3].strip() == "mend: precision=bf16"
    assert "警告 C2" in finding_lines(WARNING, "zh", False)[0]


def test_the_mended_command_takes_errors_and_warnings_and_no_note(tmp_path: Path):
    pre = preflight(tmp_path, planned(found("", WARNING, NOTE)))
    pre.run("config")
    assert mended(pre, ["+exp=a", "precision=fp16", "precision.loss_scale.initial_power=8"]) == (
        "python -m runner +exp=a precision=bf16"
    )
    calm = preflight(tmp_path, planned(found("", NOTE)))
    calm.run("config")
    assert mended(calm, ["+exp=a"]) is None


def test_places():
    assert places(["a", "b"]) == "a, b" and places(["a", "b", "c", "d", "e"], 2) == "a, b and 3 more"
