"""Steps made twice, logs that go back, runs in one file, and what follows from steps and epochs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.diagnosis.reading.order import in_order, run_starts, seconds
from runner.diagnosis.reading.plan import steps_per_epoch, usual_spacing
from runner.diagnosis.trace import column


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_every_step_once_with_its_last_value(steps: list[int]) -> None:
    loss = column([float(i) for i in range(len(steps))])
    order = in_order(np.array(steps), loss, [None] * len(steps))
    last = {step: i for i, step in enumerate(steps)}
    assert [steps[i] for i in order.kept] == sorted(last)
    assert order.kept.tolist() == [last[s] for s in sorted(last)]
    assert order.repeated == len(steps) - len(last)


@given(st.integers(1, 50), st.integers(2, 40), st.integers(1, 40))
def test_a_resume_is_found_wherever_it_goes_back_to(interval: int, points: int, back: int) -> None:
    back = min(back, points - 2)
    first = [interval * (i + 1) for i in range(points)]
    again = [interval * (i + 1) for i in range(points - back - 1, points + 3)]
    loss = column([float(i) for i in range(len(first) + len(again))])
    steps = np.array(first + again)
    order = in_order(steps, loss, [None] * len(steps), appended=True)
    found = [(r.before, r.step, r.loss_before, r.loss_after) for r in order.restarts]
    assert found == [(first[-1], again[0], float(points - back - 1), float(points))]
    assert run_starts(steps.astype(float), loss) == [0] or again[0] <= 1.5 * interval


def test_a_clock_that_goes_on_means_two_writers() -> None:
    steps, loss = np.array([10, 20, 30, 40, 20, 50]), column([1.0] * 6)
    goes_on = ["0:00:10", "0:00:20", "0:00:30", "0:00:40", "0:00:41", "0:00:50"]
    begins_anew = [*goes_on[:4], "0:00:05", "0:00:35"]
    assert in_order(steps, loss, goes_on).restarts == []
    assert len(in_order(steps, loss, begins_anew).restarts) == 1
    assert len(in_order(steps, loss, [None] * 6).restarts) == 1


@pytest.mark.parametrize(
    ("written", "meant"),
    [("1 day, 0:08:23", 86903), ("2 days, 1:00:00", 176400), ("0:02:12", 132), ("3m 3s", 183), ("2s", 2), (7.5, 7.5)],
)
def test_clocks(written: object, meant: float) -> None:
    assert seconds(written) == meant


@pytest.mark.parametrize("written", [None, "soon", True, "12:3"])
def test_no_clocks(written: object) -> None:
    assert seconds(written) is None


@given(st.floats(1, 5000), st.integers(1, 50), st.integers(40, 200))
def test_the_length_of_an_epoch(length: float, interval: int, points: int) -> None:
    step = np.arange(1, points + 1) * interval
    assert steps_per_epoch(step, step / length) == pytest.approx(length, rel=1e-6) or (step / length).max() >= 1
    rounded = steps_per_epoch(step, np.round(step / length, 2))
    assert rounded is None or rounded == pytest.approx(length, rel=0.06)


def test_an_excerpt_from_the_midst_of_a_run_uses_the_slope() -> None:
    step = np.arange(1, 101)
    assert steps_per_epoch(step, 0.5 + step / 400) == pytest.approx(400)
    assert steps_per_epoch(step[:3], np.array([0.53, 0.53, 0.54])) is None, "two decimals of three points"


def test_whole_epochs_count_more_than_what_lies_between() -> None:
    """286 micro-batches by 4: 72 steps an epoch, of which Trainer gives each but the last 4/286 of it."""
    step = np.arange(1, 217)
    inside = (step - 1) % 72 + 1
    epoch = (step - 1) // 72 + np.minimum(inside * 4 / 286, 1.0)
    assert steps_per_epoch(step, epoch) == 72


def test_spacing() -> None:
    assert usual_spacing(np.array([5, 10, 15, 30, 35])) == 5
    assert usual_spacing(np.array([1, 2])) is None
    assert usual_spacing(np.array([1, 2, 4, 8, 16])) is None


def test_a_log_without_any_order_has_neither_runs_nor_restarts() -> None:
    steps = np.random.default_rng(0).permutation(np.arange(1, 3001))
    loss = column([1.0] * 3000)
    assert run_starts(steps.astype(float), loss) == [0]
    order = in_order(steps, loss, [None] * 3000)
    assert order.restarts == [] and steps[order.kept].tolist() == list(range(1, 3001))
