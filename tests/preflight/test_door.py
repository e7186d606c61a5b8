"""`check` as it is called: what comes before torch, the exit code, the file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner import __main__ as door
from runner.config.compose import Session
from runner.preflight.examine import examine

ROOT = Path(__file__).resolve().parents[2]


def test_findings_of_the_configuration_come_without_torch():
    code = (
        "import sys; from pathlib import Path; from runner.config.compose import Session\n"
        "from runner.preflight.examine import examine\n"
        "cfg = Session().load(['+exp=qwen14b_lora'], findings=True).config\n"
        "found = [f.id for f in examine(cfg, 'deep', Path('nowhere'), until='config').findings]\n"
        "bad = {'torch', 'transformers', 'trl', 'peft', 'datasets', 'accelerate'} & set(sys.modules)\n"
        "print(*found); sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert {"precision.fp16_overflow", "optim.learning_rate_low"} <= set(done.stdout.split())


def test_the_published_warmup_is_a_finding_of_check_and_a_refusal_of_train(tmp_path: Path):
    lines = ["+exp=qwen2_sentiment", "schedule.max_steps=30"]
    cfg = Session().load(lines, findings=True).config
    found = examine(cfg, "deep", tmp_path, until="config").findings
    warmup = next(f for f in found if f.id == "schedule.warmup_beyond_end")
    assert warmup.severity == "error" and warmup.code == "B5" and "50" in warmup.sentence and "30" in warmup.sentence
    assert "schedule.warmup_ratio=0.05" in warmup.overrides


@pytest.fixture
def shell(make_config: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """check(*overrides) on the micro model and two small files; its exit code."""
    cfg = make_config()
    monkeypatch.chdir(tmp_path)

    def check(*overrides: str) -> int:
        return door.main(
            ["check", "model=path", f"model.path={cfg.model.path}", "dataset=file",
             f"dataset.path={cfg.dataset.sources['short'].path}", "dataset.validation.fraction=0.2", *overrides]
        )  # fmt: skip

    return check


def test_the_table_the_file_and_the_exit_code(shell: Callable[..., int], capsys: pytest.CaptureFixture[str]):
    # The micro model is random, so that its first loss is at chance: that is the one thing to find.
    shell("checks.level=quick")
    out = capsys.readouterr().out
    written = json.loads(Path("outputs/quickstart/check/preflight.json").read_text())
    numbers = [c["number"] for c in written["checks"]]
    assert numbers == list(range(1, len(numbers) + 1)) and f"[ 1/{len(numbers)}] " in out
    assert not [c for c in written["checks"] if c["status"] == "failed"]
    assert {f["id"] for f in written["findings"] if f["severity"] != "note"} == {"weights.keys_do_not_match"}
    assert written["level"] == "quick" and {c["status"] for c in written["checks"] if c["id"] == "weights.twice"} == {
        "not run"
    }


def test_an_error_while_loading_is_a_finding_and_exit_code_1(
    shell: Callable[..., int], capsys: pytest.CaptureFixture[str]
):
    assert shell("dataset.max_length=8") == 1
    out = capsys.readouterr().out
    assert "ERROR E2 labels.answer_truncated" in out
    found = json.loads(Path("outputs/quickstart/check/preflight.json").read_text())["findings"]
    assert [f["id"] for f in found if f["severity"] == "error"] == ["labels.answer_truncated"]


def test_missing_files_leave_the_settings_to_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert door.main(["check", "+exp=qwen14b_lora"]) == 2
    out, err = capsys.readouterr()
    assert "WARNING C2 precision.fp16_overflow" in out and "note B5 optim.learning_rate_low" in out
    assert "[ 8/" not in out and "there is no such file or folder" in err


def test_off_checks_nothing(shell: Callable[..., int], capsys: pytest.CaptureFixture[str]):
    assert shell("checks.level=off") == 0
    assert "nothing else was checked" in capsys.readouterr().out


def test_a_wrong_path_stays_a_plain_error(shell: Callable[..., int], capsys: pytest.CaptureFixture[str]):
    assert shell("output_dir=/dev/null/x") == 2
    assert "is a file; choose another output_dir" in capsys.readouterr().err
