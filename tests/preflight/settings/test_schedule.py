"""The planned learning rate: the curve itself, and what is said about it."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.config.compose import Session
from runner.config.schema import Config, Schedule
from runner.preflight.context import Context
from runner.preflight.settings.schedule import (
    curve_findings,
    factors,
    few_steps,
    integral,
    known_end,
    most_steps,
    nothing_left,
    staircase,
)
from runner.signals.schedule import applied
from runner.training.plan import Plan, make_plan, warmup_steps_for

SESSION = Session()
KINDS = ["cosine", "linear", "polynomial", "constant", "wsd"]


@functools.cache
def loaded(*lines: str) -> Config:
    return SESSION.load(list(lines), findings=True).config


def look(*lines: str) -> Context:
    return Context(copy.deepcopy(loaded(*lines)), "deep", Path("nowhere"))


def judged(schedule: Schedule, total: int, warmup: int) -> list[Any]:
    return curve_findings(schedule, total, warmup, applied(factors(schedule, total, warmup), max_steps=total, peak=1.0))


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("kind", KINDS)
def test_the_curve_is_that_of_transformers(kind: Any) -> None:
    for total, warmup in [(30, 0), (30, 5), (1, 0), (7, 6), (30, 50), (30, 30), (100, 90)]:
        compare(Schedule(lr_scheduler_type=kind), total, warmup)
        compare(Schedule(lr_scheduler_type=kind, power=2.5, decay_ratio=0.5, min_lr_ratio=0.1), total, warmup)
    compare(Schedule(lr_scheduler_type=kind, decay_ratio=0.0, min_lr_ratio=0.3), 20, 3)


def compare(schedule: Schedule, total: int, warmup: int) -> None:
    """The rates of transformers' scheduler, step by step, against ours."""
    import torch
    from transformers import get_scheduler

    from runner.training.arguments import scheduler_arguments

    cfg = look().cfg
    cfg.schedule = schedule
    given_to = scheduler_arguments(cfg, Plan(8, 1, 1, 1, 8, total, warmup))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2e-4)
    scheduler = get_scheduler(given_to["lr_scheduler_type"], optimizer, warmup, total, given_to["lr_scheduler_kwargs"])
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(total - 1):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert factors(schedule, total, warmup) == pytest.approx(np.array(rates) / 2e-4, abs=1e-9)


SHARE = st.floats(0, 1)


@given(st.sampled_from(KINDS), st.integers(1, 300), st.integers(0, 300), st.floats(0.1, 8), SHARE, SHARE)
def test_factors_stay_in_bounds_and_reach_the_peak_after_a_warmup_that_ends(
    kind: Any, total: int, warmup: int, power: float, decay: float, least: float
) -> None:
    schedule = Schedule(lr_scheduler_type=kind, power=power, decay_ratio=decay, min_lr_ratio=least)
    curve = factors(schedule, total, warmup)
    assert curve.shape == (total,) and np.isfinite(curve).all() and curve.min() >= 0 and curve.max() <= 1
    if warmup < total and not (kind == "wsd" and warmup + math.ceil(decay * total) > total):
        assert curve[warmup] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_warmup_that_does_not_end(kind: Any) -> None:
    """50 steps of warmup in 30: the rate is s / 50 at step s, so the mean is 14.5 / 50 = 0.29 of the peak."""
    (finding,) = judged(Schedule(lr_scheduler_type=kind, warmup_steps=50), 30, 50)
    assert (finding.id, finding.severity) == ("schedule.warmup_beyond_end", "error")
    assert finding.where == ("schedule.warmup_steps",) and finding.numbers["integral"] == 0.29
    assert "29 %" in finding.sentence


def test_a_run_of_one_step_with_a_step_of_warmup_has_rate_0() -> None:
    (finding,) = judged(Schedule(warmup_ratio=1.0), 1, 1)
    assert (
        finding.severity == "error" and finding.numbers["integral"] == 0 and finding.where == ("schedule.warmup_ratio",)
    )


def test_a_warmup_that_ends_late() -> None:
    (finding,) = judged(Schedule(), 100, 81)
    assert (finding.id, finding.severity) == ("schedule.warmup_beyond_end", "warning")
    assert not judged(Schedule(), 100, 80)


def test_a_rate_that_falls_early() -> None:
    """(1 - t)^9 has mean 1 / 10 over a run."""
    schedule = Schedule(lr_scheduler_type="polynomial", power=9.0)
    (finding,) = judged(schedule, 1000, 0)
    assert (finding.id, finding.severity, finding.where) == (
        "schedule.advances_too_fast", "warning", ("schedule.power",)
    )  # fmt: skip
    assert finding.numbers["integral"] == pytest.approx(0.1, abs=0.001)
    schedule.power = 3.0
    assert not judged(schedule, 1000, 0)
    assert not known_end(look("schedule=polynomial", "schedule.max_steps=60", *finding.overrides)).findings


@given(st.integers(6, 2000), st.floats(0, 0.5), st.sampled_from(KINDS))
def test_ordinary_schedules_have_no_finding(total: int, ratio: float, kind: Any) -> None:
    schedule = Schedule(lr_scheduler_type=kind, warmup_ratio=ratio)
    assert not judged(schedule, total, warmup_steps_for(schedule, total)) and not few_steps(total)


def test_known_end_without_max_steps_waits_for_the_rows() -> None:
    assert known_end(look()).skipped
    result = known_end(look("schedule.max_steps=60"))
    assert not result.findings and result.summary.startswith("60 steps, warmup 2")


def test_what_a_rule_says_is_not_said_twice() -> None:
    from runner.preflight.settings.rules import rules

    c = look("schedule.warmup_steps=50", "schedule.max_steps=30")
    assert [f.id for f in rules(c).findings] == ["schedule.warmup_beyond_end"] and not known_end(c).findings
    c = look("schedule.warmup_ratio=1.0", "schedule.max_steps=30")
    assert [f.id for f in known_end(c).findings] == ["schedule.warmup_beyond_end"] and not rules(c).findings


def test_the_published_warmup_is_seen_before_anything_is_loaded() -> None:
    """240 rows in batches of 64 over 10 epochs are at most 40 steps; the warmup has 50."""
    c = look("+exp=qwen2_sentiment")
    assert most_steps(c.cfg) == 40
    (finding,) = known_end(c).findings
    assert (finding.id, finding.severity) == ("schedule.warmup_beyond_end", "error")
    assert "50 steps" in finding.sentence and "at most 40" in finding.sentence
    c.plan = make_plan(c.cfg, 192, 1)
    assert [f.id for f in integral(c).findings] == ["data.epoch_staircase"]
    assert known_end(look("+exp=qwen2_sentiment", *finding.overrides)).skipped


def test_steps_are_not_bounded_where_a_source_is_not() -> None:
    assert most_steps(look("dataset=file", "dataset.path=rows.jsonl").cfg) is None
    both = ["dataset.max_samples={demo_en: 16, demo_zh: 24}", "schedule.num_train_epochs=2"]
    assert most_steps(look(*both).cfg) == 10  # 40 rows in batches of 8, twice


def test_over_epochs_the_rows_decide(context: Callable[..., Any]) -> None:
    c = context("data", schedule__warmup_steps=50)
    (finding,) = integral(c).findings
    assert (finding.id, finding.where) == ("schedule.warmup_beyond_end", ("schedule.warmup_steps",))
    assert finding.numbers == {"steps": 12, "warmup_steps": 50, "integral": 0.11}  # (0 + ... + 11) / 12 / 50
    assert known_end(c).skipped


def test_a_sound_run_of_three_epochs(context: Callable[..., Any]) -> None:
    c = context("data")
    assert not integral(c).findings and not known_end(c).findings
    c = context("data", task="classification")
    assert not integral(c).findings


def test_many_epochs_are_a_note() -> None:
    (finding,) = staircase(Plan(192, 64, 1, 1, 3, 30, 3))
    assert (finding.id, finding.severity) == ("data.epoch_staircase", "note")
    assert finding.numbers == {"epochs": 10.0, "steps_per_epoch": 3}
    assert not staircase(Plan(192, 64, 1, 1, 3, 12, 3))


def test_an_epoch_without_a_whole_batch() -> None:
    few = Plan(rows=7, per_device=4, accumulation=2, processes=2, steps_per_epoch=1, total_steps=3, warmup_steps=0)
    (finding,) = nothing_left(few, drops=True)
    assert (finding.id, finding.severity) == ("learning.stuck", "error")
    assert finding.where == ("trainer.dataloader_drop_last",)
    assert not nothing_left(few, drops=False)
    assert not nothing_left(Plan(8, 4, 2, 2, 1, 3, 0), drops=True)
    assert look(*finding.overrides).cfg.trainer == {"dataloader_drop_last": False}


def test_a_handful_of_steps_is_a_note() -> None:
    (finding,) = known_end(look("schedule.max_steps=3")).findings
    assert (finding.id, finding.severity, finding.numbers["steps"]) == ("log.too_short", "note", 3)
