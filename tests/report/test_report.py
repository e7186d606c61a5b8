"""What the terminal and the picture show."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from runner.report.closing import next_command
from runner.report.curve import text_curve
from runner.report.plot import plot_loss
from runner.report.progress import Progress, clock, step_line
from runner.report.screen import Screen
from runner.report.summary import count_line, summarize


def rows(losses: list[float], **more: Any) -> list[dict[str, Any]]:
    return [
        {"step": i + 1, "loss": x, "grad_norm": 1.0 + i, "clip_coef": 0.5 if i % 2 else 1.0, "seconds": 0.5,
         "tokens": 10, "learning_rate": 1e-4, "skipped": None, **more}
        for i, x in enumerate(losses)
    ]  # fmt: skip


def test_summary_counts_the_truth() -> None:
    summary = summarize(rows([3.0, math.nan, 2.0, 1.0]), [{"step": 4, "eval_loss": 1.5}], {"name": "x"})
    assert summary["steps"] == 4 and summary["seconds"] == 2.0 and summary["tokens"] == 40
    counts = summary["counts"]
    assert counts == {
        "non_finite_steps": 1, "first_non_finite_step": 2, "non_finite_gradients": 0, "skipped_steps": 0,
        "last_step_skipped": False, "clipped_steps": 2, "steps_measured": 4
    }  # fmt: skip
    assert summary["train_loss"]["lowest"] == 1.0 and summary["eval"]["eval_loss"] == 1.5
    assert summary["grad_norm"] == {"median": 2.5, "largest": 4.0}
    assert "1 of 4 steps with a non-finite loss (first at step 2), 0 skipped, 2 clipped (norm at 1)" == count_line(
        summary, "norm at 1"
    )


def test_summary_reads_the_strings_that_telemetry_holds_and_stays_small() -> None:
    many = rows([1.0] * 5000)
    many[10]["loss"] = "NaN"
    summary = summarize(many, [], {})
    assert summary["counts"]["non_finite_steps"] == 1
    assert len(summary["curve"]["step"]) == 500 and summary["curve"]["step"][-1] == 5000


def test_without_telemetry_the_log_stands_in() -> None:
    summary = summarize([], [{"step": 1, "loss": 2.0, "grad_norm": 1.0}, {"step": 1, "eval_loss": 3.0}], {})
    assert summary["steps"] == 1 and summary["train_loss"]["last"] == 2.0


def test_the_curve_goes_down_where_the_loss_does() -> None:
    lines = text_curve(range(100), [5 - 0.04 * i for i in range(100)], width=20, height=4)
    chart = [line.split("┤")[1] for line in lines[:4]]
    blank = chr(0x2800)
    assert chart[0][0] != blank
    assert [len(line.rstrip(blank)) for line in chart] == sorted(len(line.rstrip(blank)) for line in chart)
    assert lines[0].strip().startswith("4.98 ┤") and "step 99" in lines[-1]


def test_a_curve_needs_two_finite_points() -> None:
    assert text_curve([1, 2, 3], [math.nan, 1.0, math.inf]) == []
    assert len(text_curve([1, 2], [1.0, 1.0])) == 10


@pytest.mark.parametrize("losses", [[2.0, 1.0, 1.5], [2.0, math.nan, math.inf], [math.nan]])
def test_the_picture_is_drawn_whatever_the_losses(tmp_path: Path, losses: list[float]) -> None:
    summary = summarize(rows(losses), [{"step": 2, "eval_loss": 1.2}], {})
    plot_loss(summary, tmp_path / "plots" / "loss.png", "运行")
    assert (tmp_path / "plots" / "loss.png").stat().st_size > 5000


def test_lines() -> None:
    assert (clock(75), clock(3700)) == ("1:15", "1:01:40")
    row = {"step": 3, "loss": math.nan, "grad_norm": 2.0, "learning_rate": 1e-4, "skipped": "loss_scale_overflow"}
    line = step_line(row, 10, "12 rows/s", 75.0)
    assert line == "step 3/10  loss nan  grad norm 2  lr 1.00e-04  12 rows/s  skipped (loss_scale_overflow)  ETA 1:15"


def test_progress_speaks_in_plain_lines_outside_a_terminal_and_always_at_the_end(tmp_path: Path) -> None:
    screen = Screen(tmp_path / "console.log")
    screen.console = Console(file=io.StringIO())
    with Progress(screen, 50) as progress:
        for row in rows([1.0] * 50, examples=2):
            progress.step(row)
        progress.evaluation(50, {"eval_loss": 1.0, "eval_runtime": 3.0, "epoch": 1.0})
    screen.close()
    said = (tmp_path / "console.log").read_text().splitlines()
    assert said[0].startswith("step 1/50") and said[-2].startswith("step 50/50") and len(said) == 3
    assert said[-1] == "eval at step 50  loss 1.0000"


def test_in_a_terminal_the_line_is_live_and_leaves_nothing_behind(tmp_path: Path) -> None:
    shown = io.StringIO()
    screen = Screen(tmp_path / "console.log")
    screen.console = Console(file=shown, force_terminal=True, width=120)
    with Progress(screen, 20) as progress:
        for row in rows([1.0] * 20, examples=2):
            progress.step(row)
        assert progress._live is not None
        progress._live.refresh()
    screen.close()
    assert "step 20/20  loss 1.0000" in shown.getvalue() and "ETA" in shown.getvalue()
    assert (tmp_path / "console.log").read_text() == "", "the log holds lines, not frames"


def test_a_quiet_screen_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Screen(tmp_path / "console.log", quiet=True).say("hello")
    assert capsys.readouterr().out == "" and not (tmp_path / "console.log").exists()


def test_the_next_command_repeats_what_was_set(tmp_path: Path) -> None:
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text(
        "- +exp=quickstart\n- clip=none\n- dataset.path=a b.json\n- output_dir=/x\n- ~lora.r\n", encoding="utf-8"
    )
    assert next_command("finished", tmp_path).startswith(
        "python -m runner -m +exp=quickstart 'dataset.path=a b.json' optim.learning_rate="
    )
    stopped = next_command("stopped", tmp_path)
    assert "clip=none" in stopped and f"checkpoint.resume={tmp_path}" in stopped and "/x" not in stopped
