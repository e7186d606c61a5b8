"""Rate curves of known schedulers, right and wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runner.signals.schedule import against_plan, applied, planned

STEPS = np.arange(1, 201)


def plan(name: str, warmup: float = 20, at: np.ndarray | None = None, peak: float = 1e-4) -> np.ndarray:
    curve = planned(name, STEPS if at is None else at, warmup, 200, peak)
    assert curve is not None
    return curve


def test_by_hand() -> None:
    found = applied([0.0, 1.0, 2.0, 1.0])
    assert (found.points, found.peak, found.integral) == (4, 2.0, 0.5)
    assert (found.warmup, found.zero, found.end) == (0.75, 0.25, 0.5)
    assert not found.zero_throughout and not found.constant and not found.still_rising


@pytest.mark.parametrize(("name", "integral"), [("linear", 0.5), ("cosine", 0.5), ("constant_with_warmup", 0.95)])
def test_a_normal_schedule_has_nothing_to_report(name: str, integral: float) -> None:
    found = applied(plan(name), STEPS, 200, 1e-4)
    assert found.integral == pytest.approx(integral, abs=0.01)
    assert found.warmup == pytest.approx(0.1)
    assert not found.still_rising and found.restarts == () and found.jumps == ()
    assert found.end == pytest.approx(1 if name.startswith("constant") else 0, abs=1e-9)


@pytest.mark.parametrize("every", [1, 5, 10, 20])
def test_sparse_points_give_the_same_shares_and_no_jumps(every: int) -> None:
    at = STEPS[every - 1 :: every]
    for name in ("linear", "cosine"):
        found = applied(plan(name)[at - 1], at, 200, 1e-4)
        assert found.integral == pytest.approx(0.5, abs=0.06)
        assert found.jumps == () and found.restarts == () and not found.still_rising


def test_a_constant_rate() -> None:
    found = applied(plan("constant"))
    assert found.constant and found.warmup == 0 and found.integral == pytest.approx(1) and not found.still_rising


def test_zero_throughout_and_nothing_known() -> None:
    assert applied([0.0] * 5).zero_throughout and math.isnan(applied([0.0] * 5).integral)
    assert applied([]).points == 0 and applied([math.nan]).points == 0
    with pytest.raises(ValueError, match="shape"):
        applied([1.0, 2.0], [1])


def test_a_warmup_beyond_the_end() -> None:
    # A real log: warmup_steps 500 of 520 steps, logged every 50.
    at = np.arange(50, 501, 50)
    found = applied(1e-5 * at / 500, at, 520)
    assert found.still_rising and found.warmup == pytest.approx(500 / 520)
    longer = applied(1e-5 * at / 5000, at, 520, peak=1e-5)
    assert longer.still_rising and longer.integral < 0.1
    assert not applied(1e-5 * at / 500, at, 5000).still_rising, "the log stops early, the run may go on"


def test_restarts_are_counted_once_each() -> None:
    cycle = 0.5 * (1 + np.cos(np.pi * np.arange(50) / 50))
    found = applied(np.tile(cycle, 4))
    assert found.restarts == (50, 100, 150)
    assert found.jumps == (50, 100, 150)
    soft = 0.5 * (1 - np.cos(2 * np.pi * np.arange(200) / 50))
    assert len(applied(soft).restarts) == 3 and applied(soft).jumps == ()


def test_a_stair_is_a_jump_down() -> None:
    assert applied([1.0] * 10 + [0.1] * 10).jumps == (10,)
    assert applied([1.0] * 10 + [0.5] * 10).jumps == ()
    assert applied([0.1, 1.0, 0.9]).jumps == (), "the way up to the peak is no fault"


def test_planned_by_hand() -> None:
    assert plan("linear", at=np.array([0, 10, 20, 110, 200, 250])) == pytest.approx([0, 5e-5, 1e-4, 5e-5, 0, 0])
    assert plan("cosine", at=np.array([10, 20, 110, 200])) == pytest.approx([5e-5, 1e-4, 5e-5, 0])
    assert plan("cosine", at=np.array([290])) == pytest.approx(5e-5), "beyond the end it comes up again"
    assert plan("constant", at=np.array([0, 500])) == pytest.approx(1e-4)
    assert plan("constant_with_warmup", at=np.array([5, 500])) == pytest.approx([2.5e-5, 1e-4])
    assert planned("inverse_sqrt", STEPS, 0, 200, 1.0) is None


@pytest.mark.parametrize("name", ["linear", "cosine", "constant_with_warmup"])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("peak", [1e-4, None])
def test_a_run_on_plan(name: str, shift: int, peak: float | None) -> None:
    found = against_plan(plan(name, at=STEPS - shift), STEPS, name, 20, 200, peak)
    assert found is not None and found.first_off is None and found.worst < 0.01 and found.speed == 1
    assert found.peak == pytest.approx(1e-4)


@pytest.mark.parametrize("name", ["linear", "cosine"])
@pytest.mark.parametrize("speed", [2, 4, 8])
def test_a_schedule_that_every_process_advances(name: str, speed: int) -> None:
    found = against_plan(plan(name, at=STEPS * speed), STEPS, name, 20, 200, 1e-4)
    assert found is not None and found.speed == speed and found.first_off is not None and found.first_off <= 2
    assert found.worst > 0.4


def test_a_schedule_that_moves_every_fourth_step_only() -> None:
    found = against_plan(plan("linear", at=STEPS // 4), STEPS, "linear", 20, 200, 1e-4)
    assert found is not None and found.speed == 0.25


def test_another_curve_has_no_speed() -> None:
    found = against_plan(plan("cosine"), STEPS, "linear", 20, 200, 1e-4)
    assert found is not None and found.speed is None and found.first_off is not None and found.first_off > 20
    late = plan("linear").copy()
    late[120:] *= 10
    found = against_plan(late, STEPS, "linear", 20, 200, 1e-4)
    assert found is not None and found.first_off == 121


def test_nothing_to_compare() -> None:
    assert against_plan([0.0] * 3, [1, 2, 3], "linear", 0, 3) is None
    assert against_plan([1.0], [1], "polynomial", 0, 3) is None
    assert against_plan([], [], "linear", 0, 3) is None
