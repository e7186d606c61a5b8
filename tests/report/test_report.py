"""What the terminal and the picture show."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from runner.report.broken import gradient_broken, what_happened
from runner.report.closing import close, ended_above_its_start, next_command
from runner.report.counts import count
from runner.report.curve import text_curve
from runner.report.plot import draw_loss, draw_norms, plot_loss
from runner.report.progress import Adjustment, Progress, clock, step_line
from runner.report.screen import Screen
from runner.report.summary import count_line, smooth_curve, summarize
from runner.signals.difficulty import adjusted, slope


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
        "non_finite_steps": 1, "first_non_finite_step": 2, "non_finite_steps_at": [2],
        "first_broken_step": 2, "non_finite_gradients": 0, "skipped_steps": 0, "last_step_skipped": False,
        "loss_scale_backoffs": 0, "clipped_steps": 2, "spikes": 0, "warned": 0,
        "rollbacks": 0, "incidents": 0, "first_incident": None, "steps_measured": 4, "telemetry": True,
        "health": None,
    }  # fmt: skip
    assert summary["train_loss"]["lowest"] == 1.0 and summary["eval"]["eval_loss"] == 1.5
    assert summary["grad_norm"] == {"median": 2.5, "largest": 4.0}
    assert count_line(summary, "norm at 1") == (
        "1 of 4 steps with a non-finite loss (first at step 2), 0 skipped, 2 clipped (norm at 1), 0 spikes, "
        "0 roll-backs, 0 incidents"
    )


def bad(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    """`row` with a loss and gradient that are not finite."""
    return {**row, "loss": math.nan, "grad_norm": math.nan, "clip_coef": 1.0, **more}


def test_what_the_guard_did_is_counted_and_the_first_incident_named() -> None:
    found = rows([2.0] * 8)
    found[1] = bad(found[1], skipped="non_finite", action="skip", incident="incident-2")
    found[3].update(skipped="spike", action="rollback", spike={"loss_z": 11.0, "norm_z": 3.0}, incident="incident-4")
    found[4].update(action="warn", spike={"loss_z": 9.0, "norm_z": 3.0})
    found[6].update(grad_norm="Infinity", skipped="loss_scale_overflow")
    found[7].update(grad_norm=math.inf, action="warn")
    summary = summarize(found, [], {})
    counts = summary["counts"]
    expected = {"spikes": 2, "rollbacks": 1, "warned": 2, "incidents": 2, "loss_scale_backoffs": 1, "skipped_steps": 3}
    assert {key: counts[key] for key in expected} == expected
    assert counts["first_broken_step"] == 2 and count(found[2:], True)["first_broken_step"] == 4
    assert counts["non_finite_gradients"] == 2, "the loss scale's search is none"
    assert summary["marks"] == {
        "gradients": [2, 8], "skipped": [2, 4, 7], "spikes": [4, 5], "rollbacks": [4],
        "incidents": [{"step": 2, "folder": "incident-2"}, {"step": 4, "folder": "incident-4"}]
    }  # fmt: skip
    assert count_line(summary, "none") == (
        "1 of 8 steps with a non-finite loss (first at step 2), 2 with a non-finite gradient, 3 skipped (by the "
        "loss scale: 1), 2 clipped (none), 2 spikes, 1 roll-back, 2 incidents (first: incident-2)"
    )


def test_the_end_is_nan_where_the_last_step_taken_is_and_stays_where_it_was_skipped() -> None:
    found = rows([3.0, 2.0, 1.0])
    smooth = summarize(found, [], {})["train_loss"]["smoothed_last"]
    taken = [*found, bad(found[2], step=4)]
    assert math.isnan(summarize(taken, [], {})["train_loss"]["smoothed_last"])
    skipped = [*found, bad(found[2], step=4, skipped="non_finite")]
    ends = summarize(skipped, [], {})["train_loss"]
    assert ends["smoothed_last"] == pytest.approx(smooth) and math.isnan(ends["last"])
    both = [*taken, bad(found[2], step=5, skipped="non_finite")]
    assert math.isnan(summarize(both, [], {})["train_loss"]["smoothed_last"]), "the model was broken before"
    outlier = [*found, {**found[2], "step": 4, "loss": 90.0, "skipped": "spike"}]
    assert summarize(outlier, [], {})["train_loss"]["smoothed_last"] == pytest.approx(smooth)
    assert math.isnan(summarize([], [{"step": 5, "loss": math.nan}], {})["train_loss"]["smoothed_last"])


def test_thinning_hides_no_broken_step_and_keeps_what_is_known_of_the_start_model() -> None:
    many = rows([1.0] * 5000)
    for i, row in enumerate(many):
        row["base_loss"] = 1.0 + 0.1 * math.sin(i) if i % 25 == 3 else None
        row["loss"] = 0.5 + (row["base_loss"] or 1.0)
    for i in (1000, 1001, 1002, 3333):
        many[i] = bad(many[i], skipped="non_finite")
    summary = summarize(many, [], {})
    curve = summary["curve"]
    assert summary["counts"]["non_finite_steps_at"] == [1001, 1002, 1003, 3334]
    assert len(curve["step"]) == len(set(curve["step"])) == 500 and curve["step"] == sorted(curve["step"])
    assert sum(x is not None for x in curve["base_loss"]) >= 195, "200 are known"
    assert summary["difficulty"] == {"slope": pytest.approx(1.0), "r_squared": pytest.approx(1.0), "points": 200}
    assert all(v is None or v == pytest.approx(1.5, abs=0.01) for v in curve["adjusted"])
    x, y = smooth_curve(summary)
    assert all(math.isnan(y[list(x).index(step)]) for step in (1001, 1002, 1003, 3334))
    all_bad = summarize([bad(row) for row in many], [], {})
    assert len(all_bad["counts"]["non_finite_steps_at"]) == 500 and all_bad["counts"]["non_finite_steps"] == 5000


@pytest.mark.parametrize("base", [None, 2.0])
def test_without_varying_base_loss_nothing_is_adjusted(base: float | None) -> None:
    summary = summarize(rows([2.0] * 20, base_loss=base), [], {})
    assert summary["difficulty"] is None and summary["curve"]["adjusted"] == [None] * 20


def test_the_sentence_about_clipping_leaves_out_steps_that_were_not_taken() -> None:
    facts = {"clip": {"method": "norm", "max_grad_norm": 1.0}, "optimizer": "sgd"}
    found = rows([2.0] * 10)
    for row in found:
        row["clip_coef"] = 0.5
    found[9].update(skipped="spike", clip_coef=0.001)
    said = summarize(found, [], facts)["clip_sentence"]
    assert said.startswith("Clipped all 9 steps, to 0.5 of") and "the step is 0.5 of what it would be" in said
    assert summarize(found, [], {})["clip_sentence"] is None


def test_summary_reads_the_strings_that_telemetry_holds_and_stays_small() -> None:
    many = rows([1.0] * 5000)
    many[10]["loss"] = "NaN"
    summary = summarize(many, [], {})
    assert summary["counts"]["non_finite_steps"] == 1
    assert len(summary["curve"]["step"]) == 500 and summary["curve"]["step"][-1] == 5000


def test_without_telemetry_the_log_stands_in() -> None:
    summary = summarize([], [{"step": 1, "loss": 2.0, "grad_norm": 1.0}, {"step": 1, "eval_loss": 3.0}], {})
    assert summary["steps"] == 1 and summary["train_loss"]["last"] == 2.0
    assert count_line(summary, "none") == (
        "0 of 1 logged values with a non-finite loss; gradients, skips, clips and spikes were not measured "
        "(no telemetry)"
    )


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


def test_the_curve_has_a_gap_and_a_mark_where_a_loss_is_not_finite() -> None:
    values = [5 - 0.1 * i for i in range(20)]
    whole = text_curve(range(20), values, width=20, height=4)
    values[10] = math.nan
    lines = text_curve(range(20), values, width=20, height=4, marks=[10])
    at = lines[4].split("└")[1].index("x")
    assert all(line.split("┤")[1][at] == chr(0x2800) for line in lines[:4])
    assert any(line.split("┤")[1][at] != chr(0x2800) for line in whole[:4])
    assert lines[4].count("x") == 1 and lines[-1].strip() == "x = the loss of a step there is not finite"


@pytest.mark.parametrize("losses", [[2.0, 1.0, 1.5], [2.0, math.nan, math.inf], [math.nan]])
def test_the_picture_is_drawn_whatever_the_losses(tmp_path: Path, losses: list[float]) -> None:
    summary = summarize(rows(losses), [{"step": 2, "eval_loss": 1.2}], {})
    plot_loss(summary, tmp_path / "plots" / "loss.png", "运行")
    assert (tmp_path / "plots" / "loss.png").stat().st_size > 5000


def drawn(summary: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """{label: points} of everything in the picture."""
    from matplotlib.figure import Figure

    upper, lower = Figure().subplots(2, 1)
    draw_loss(upper, summary)
    draw_norms(lower, summary)
    return {
        str(line.get_label()).replace("\n", " "): list(zip(*line.get_data(), strict=True))
        for axes in (upper, lower)
        for line in axes.get_lines()
    }


def test_the_picture_shows_every_broken_step_and_no_loss_at_it() -> None:
    many = rows([2.0 + 0.1 * math.sin(i) for i in range(3000)])
    many[1234] = bad(many[1234], skipped="non_finite", incident="incident-1235")
    for i in range(1235, 1244):
        many[i] = bad(many[i], skipped="non_finite")
    many[2001].update(spike={"loss_z": 9.0, "norm_z": 1.0}, skipped="spike", action="rollback")
    many[5].update(clip_coef=0.2, grad_norm=5.0)
    facts = {"clip": {"method": "norm", "max_grad_norm": 1.0}, "noise": {"sd_step": 0.1}}
    points = drawn(summarize(many, [], facts))
    for label in ("train, each step", "train, smoothed", "gradient norm (before clipping)"):
        at = [y for x, y in points[label] if 1235 <= x <= 1244]
        assert len(at) == 10 and all(map(math.isnan, at)), label
    for label in ("loss not finite (10 steps, first 1235)", "gradient not finite (10 steps, first 1235)"):
        assert [x for x, _ in points[label]] == list(range(1235, 1245))
    assert points["incident folder (1)"][0][0] == 1235
    assert [x for x, _ in points["skipped (11 steps)"]] == [*range(1235, 1245), 2002]
    assert points["spike (1 step)"][0][0] == points["rolled back (1)"][0][0] == 2002
    assert points["clip at 1"][0][1] == 1.0 and "clipped (1,494 steps)" in points
    assert drawn(summarize([bad(r) for r in many], [], facts))["loss not finite (3,000 steps, first 1)"]


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


def broken_rows(n: int) -> list[dict[str, Any]]:
    return [bad(row, action="warn") for row in rows([1.0] * n, examples=2)]


def test_a_broken_step_is_said_at_once_with_what_became_of_it(tmp_path: Path) -> None:
    screen = Screen(tmp_path / "console.log")
    screen.console = Console(file=io.StringIO())
    found = rows([1.0] * 40, examples=2)
    found[12] = bad(found[12], skipped="non_finite", action="skip", incident="incident-13", why="layer 3 overflows.")
    found[20].update(spike={"loss_z": 12.4, "norm_z": 0.2}, skipped="spike", action="rollback")
    found[25].update(grad_norm=math.inf, skipped="loss_scale_overflow")
    with Progress(screen, 40) as progress:
        for row in found:
            progress.step(row)
    screen.close()
    said = (tmp_path / "console.log").read_text().splitlines()
    assert said[1:4] == [
        "step 13/40  loss nan  grad norm nan  lr 1.00e-04  skipped (non_finite)  see incident-13",
        "  layer 3 overflows.",
        "step 21/40  loss 1.0000  grad norm 21  lr 1.00e-04  spike (loss +12.4 sd, grad norm +0.2 sd)  "
        "skipped (spike)  rolled back",
    ]
    assert len(said) == 5 and said[4].startswith("step 40/40"), "the loss scale's search is no alarm"


@pytest.mark.parametrize("terminal", [False, True])
def test_after_twenty_broken_steps_one_in_a_hundred_is_said(tmp_path: Path, terminal: bool) -> None:
    screen = Screen(tmp_path / "console.log")
    screen.console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with Progress(screen, 1000) as progress:
        progress._last_line = math.inf
        for row in broken_rows(320):
            progress.step(row)
    screen.close()
    said = (tmp_path / "console.log").read_text().splitlines()
    steps = [int(line.split("/")[0].split()[1]) for line in said if line.startswith("step")]
    assert steps == [*range(1, 21), 100, 200, 300]
    assert said[20] == ("20 broken steps so far; from here on one in 100 is shown, and all are in telemetry.jsonl")


def test_the_loss_at_equal_difficulty_is_shown_once_enough_is_known() -> None:
    base = [2.0 + 0.3 * math.sin(3 * i) for i in range(30)]
    loss = [1.0 + 0.8 * c - 0.01 * i for i, c in enumerate(base)]
    online, shown = Adjustment(), []
    for x, c in zip(loss, base, strict=True):
        shown.append(online(x, c))
        assert online(math.nan, c) is None and online(x, None) is None
    assert shown[:7] == [None] * 7 and None not in shown[7:]
    assert shown[-1] == pytest.approx(adjusted(loss, base, slope(loss, base))[-1])
    assert Adjustment(2.0)(1.0, 2.0) is None
    assert "loss 1.0000  adjusted 4.5100  grad norm" in step_line(rows([1.0])[0], 9, adjusted=4.51)


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


def test_after_a_divergence_the_first_incident_is_to_be_replayed(tmp_path: Path) -> None:
    assert "stability=observe   which step broke" in next_command("diverged", tmp_path), "nothing was written down"
    (tmp_path / "telemetry.jsonl").touch()
    assert next_command("diverged", tmp_path).startswith("the first broken step is in telemetry.jsonl")
    for name in ("incident-100", "incident-12", "incident-x"):
        (tmp_path / name).mkdir()
    assert next_command("diverged", tmp_path).startswith(f"python -m runner replay {tmp_path}/incident-12   ")
    assert (
        next_command("finished", tmp_path) == f"python -m runner replay {tmp_path}/incident-12   what broke that step?"
    )


def test_the_end_says_what_was_lost(tmp_path: Path) -> None:
    screen = Screen(tmp_path / "console.log")
    screen.console = Console(file=io.StringIO())
    found = rows([3.0, 2.5, 2.0, 1.5])
    facts = {"clip": {"method": "none", "max_grad_norm": 1.0}, "optimizer": "sgd"}
    (tmp_path / "incident-4").mkdir()
    for last in (bad(found[3]), bad(found[3], skipped="non_finite", incident="incident-4")):
        close(screen, summarize([*found[:3], last], [], facts), tmp_path, "finished", None, "none", "nothing")
    screen.close()
    said = (tmp_path / "console.log").read_text()
    assert "train loss 3.0000 at the start, nan at the end\n" in said
    assert "at the end (smoothed), the last step's nan was skipped\n" in said
    assert "Nothing was clipped (clip=none)" in said and said.count(f"  incident-4       {tmp_path}/incident-4\n") == 1


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


def test_a_run_that_made_the_model_worse_says_so() -> None:
    def summary(start: float, end: float, **noise: float) -> dict[str, Any]:
        return {"train_loss": {"first": start, "smoothed_last": end}, "noise": noise}

    assert ended_above_its_start(summary(6.0, 5.0)) is None and ended_above_its_start(summary(6.0, 6.5)) is None
    assert "6.00, now 7.80" in str(ended_above_its_start(summary(6.0, 7.8)))
    assert ended_above_its_start(summary(9.0, 6.9, mean=6.0, sd_step=0.5)) is None, "within two standard deviations"
    assert "6.00, now 7.10" in str(ended_above_its_start(summary(9.0, 7.1, mean=6.0, sd_step=0.5)))
    assert ended_above_its_start(summary(6.0, math.nan)) is None


def test_how_far_a_roll_back_went_is_said() -> None:
    row = {"step": 5, "loss": math.nan, "skipped": "non_finite", "action": "rollback", "rolled_back_to": 1}
    assert what_happened(row)[-1] == "rolled back to the weights after step 1: what 3 steps had learnt is gone"
    searched = {"step": 5, "grad_norm": math.inf, "skipped": "loss_scale_overflow"}
    assert not gradient_broken(searched) and gradient_broken({**searched, "action": "warn"})
    assert what_happened({**searched, "action": "warn"}) == ["skipped (loss_scale_overflow)", "warned"]
