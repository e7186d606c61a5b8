"""The decision about a broken step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.config.schema import Guard, Rollback
from runner.stability.guard import Seen, StepGuard

NAN = float("nan")
GOOD, BAD_LOSS, BAD_GRADIENT = Seen(2.0, 1.0), Seen(NAN, NAN), Seen(2.0, math.inf)


def make(max_rollbacks: int = 3, **changes: Any) -> StepGuard:
    return StepGuard(Guard(**changes), Rollback(max_rollbacks=max_rollbacks))


def fed(guard: StepGuard, *steps: Seen, snapshot: bool = False) -> list[str]:
    return [guard.judge(step, snapshot).action for step in steps]


def learnt(steps: int = 40, **changes: Any) -> StepGuard:
    """A guard that has seen healthy steps: loss about 2 +- 0.2, norm about 1."""
    guard = make(**changes)
    rng = np.random.default_rng(0)
    fed(
        guard,
        *(Seen(2 + 0.2 * rng.standard_normal(), float(np.exp(0.2 * rng.standard_normal()))) for _ in range(steps)),
    )
    return guard


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("warn", "warn"), ("skip", "skip"), ("rollback", "skip"), ("stop", "stop"), ("ignore", "take")],
)
def test_what_becomes_of_a_broken_step(kind: str, verdict: str) -> None:
    guard = make(on_nonfinite=kind)
    assert fed(guard, GOOD, BAD_LOSS, BAD_GRADIENT, GOOD) == ["take", verdict, verdict, "take"]


@pytest.mark.parametrize("kind", ["warn", "skip", "rollback"])
def test_so_many_in_a_row_end_the_run_and_never_loop(kind: str) -> None:
    guard = make(on_nonfinite=kind, max_consecutive=3)
    fed(guard, BAD_LOSS, BAD_LOSS, GOOD, BAD_LOSS, BAD_GRADIENT)
    assert guard.ends_run is None
    fed(guard, BAD_LOSS)
    assert guard.ends_run is not None and "3 steps in a row" in guard.ends_run


@pytest.mark.parametrize("kind", ["skip", "rollback"])
def test_ten_in_a_row_roll_back_once_and_then_end_the_run(kind: str) -> None:
    guard = make(on_nonfinite=kind, max_consecutive=3)
    actions = []
    for _ in range(10):
        actions += fed(guard, BAD_LOSS, snapshot=True)
        if guard.ends_run is not None:
            break
    assert actions.count("rollback") == 1
    assert len(actions) == {"skip": 6, "rollback": 4}[kind]
    assert "1 roll-backs did not help" in str(guard.ends_run)


def test_a_good_step_earns_another_roll_back_up_to_the_limit() -> None:
    guard = make(on_nonfinite="rollback", max_rollbacks=2, max_consecutive=2)
    assert fed(guard, BAD_LOSS, GOOD, BAD_LOSS, GOOD, BAD_LOSS, snapshot=True) == [
        "rollback",
        "take",
        "rollback",
        "take",
        "skip",
    ]
    fed(guard, BAD_LOSS, snapshot=True)
    assert guard.ends_run is not None


@given(st.lists(st.sampled_from([GOOD, BAD_LOSS, BAD_GRADIENT, Seen(50.0, 40.0)]), max_size=60), st.booleans())
def test_no_sequence_loops(steps: list[Seen], snapshot: bool) -> None:
    guard = make(on_nonfinite="skip", on_spike="skip", max_consecutive=4, max_rollbacks=2)
    row = 0
    for step in steps:
        row = 0 if guard.judge(step, snapshot).action == "take" else row + 1
        if guard.ends_run is not None:
            break
        assert row < 8, "four to the roll-back, four to the end"


def test_stop_ends_at_the_first_and_ignore_never() -> None:
    stop, ignore = make(on_nonfinite="stop"), make(on_nonfinite="ignore")
    fed(stop, GOOD)
    assert stop.ends_run is None
    fed(stop, BAD_GRADIENT)
    assert stop.ends_run is not None
    fed(ignore, *[BAD_LOSS] * 10)
    assert ignore.ends_run is None


def test_the_search_of_the_loss_scale_is_no_alarm_but_a_broken_loss_is() -> None:
    guard = make(on_nonfinite="skip", max_consecutive=2)
    assert fed(guard, *(Seen(2.0, math.inf, None, 2.0**k) for k in range(27, 7, -1))) == ["take"] * 20
    assert guard.ends_run is None
    fed(guard, Seen(NAN, NAN, None, 1024.0), Seen(2.0, math.inf, None, 1024.0), Seen(NAN, NAN, None, 512.0))
    assert guard.ends_run is not None, "an overflow between two broken losses does not end the row"


def test_an_overflow_that_no_scale_mends_is_a_broken_step() -> None:
    guard = make(on_nonfinite="skip", min_loss_scale=128.0)
    assert fed(guard, Seen(2.0, math.inf, None, 256.0), Seen(2.0, math.inf, None, 128.0)) == ["take", "skip"]


def test_a_broken_update_is_a_broken_step_though_loss_and_gradient_are_finite() -> None:
    guard = make(on_nonfinite="skip")
    assert fed(guard, Seen(2.0, 1.0, NAN)) == ["skip"]
    assert guard.consecutive == 1


@pytest.mark.parametrize("step", [Seen(9.0, 1.0), Seen(2.0, 60.0)], ids=["loss", "norm"])
def test_a_spike_is_called_and_says_by_how_much(step: Seen) -> None:
    guard = learnt(on_spike="skip")
    decision = guard.judge(step, False)
    assert (decision.action, decision.reason) == ("skip", "spike")
    assert max(decision.loss_z, decision.norm_z) > 8 > min(decision.loss_z, decision.norm_z)


def test_a_fall_is_no_spike_and_nothing_is_called_before_enough_steps() -> None:
    assert fed(learnt(on_spike="stop"), Seen(0.01, 0.001)) == ["take"]
    assert fed(learnt(31, on_spike="stop"), Seen(90.0, 900.0)) == ["take"]
    assert fed(learnt(32, on_spike="stop"), Seen(90.0, 900.0)) == ["stop"]


def test_nan_never_enters_the_window_and_does_not_freeze_the_guard() -> None:
    guard = learnt(on_nonfinite="warn", on_spike="warn", max_consecutive=100)
    before = (list(guard.losses), list(guard.log_norms))
    fed(guard, *[BAD_LOSS, BAD_GRADIENT] * 20)
    assert (guard.losses, guard.log_norms) == before
    assert fed(guard, Seen(9.0, 1.0)) == ["warn"], "it still sees a spike"


def test_a_rejected_spike_stays_out_of_the_window_and_an_accepted_one_enters() -> None:
    rejecting, accepting = learnt(on_spike="skip", max_consecutive=100), learnt(on_spike="warn")
    for guard in (rejecting, accepting):
        fed(guard, *[Seen(9.0, 1.0)] * 5)
    assert 9.0 not in rejecting.losses and accepting.losses[-5:] == [9.0] * 5


def test_warned_spikes_never_end_a_run() -> None:
    guard = learnt(on_spike="warn", max_consecutive=2)
    fed(guard, *[Seen(10.0**k, 1.0) for k in range(1, 30)])
    assert guard.ends_run is None


def test_constant_norms_do_not_make_the_next_one_a_spike() -> None:
    guard = make(on_spike="skip")
    fed(guard, *[Seen(2.0, 1.0)] * 40)
    assert fed(guard, Seen(2.02, 1.05)) == ["take"]


def test_losses_near_zero_do_not_make_a_small_one_a_spike() -> None:
    guard = make(on_spike="skip")
    fed(guard, *[Seen(1e-6 * (k % 3), 1.0) for k in range(40)])
    assert fed(guard, Seen(0.05, 1.0), Seen(0.5, 1.0)) == ["take", "skip"]


@pytest.mark.parametrize("batch", [1, 8])
def test_heavy_tailed_but_healthy_losses_rarely_alarm(batch: int) -> None:
    rng = np.random.default_rng(batch)
    alarms, steps = 0, 20_000
    guard = make(on_spike="warn")
    for _ in range(steps):
        loss = float(np.exp(0.5 * rng.standard_normal(batch)).mean())
        alarms += guard.judge(Seen(loss, float(np.exp(0.4 * rng.standard_normal()))), False).action == "warn"
    assert alarms / steps < 0.002


def test_a_resumed_guard_decides_as_an_uninterrupted_one() -> None:
    rng = np.random.default_rng(1)
    steps = [Seen(float(2 + rng.standard_normal()), float(np.exp(rng.standard_normal()))) for _ in range(60)]
    steps += [
        BAD_LOSS,
        BAD_GRADIENT,
        BAD_LOSS,
        Seen(40.0, 90.0),
        BAD_LOSS,
        GOOD,
        *steps[:5],
        BAD_LOSS,
        BAD_LOSS,
        BAD_LOSS,
    ]
    for cut in range(58, len(steps)):
        whole = make(on_nonfinite="skip", on_spike="rollback", max_consecutive=3)
        first = make(on_nonfinite="skip", on_spike="rollback", max_consecutive=3)
        resumed = make(on_nonfinite="skip", on_spike="rollback", max_consecutive=3)
        expected = fed(whole, *steps, snapshot=True)
        fed(first, *steps[:cut], snapshot=True)
        resumed.load(first.state())
        assert fed(resumed, *steps[cut:], snapshot=True) == expected[cut:]
        assert resumed.state() == whole.state()


def test_weights_that_are_broken_roll_back_instead_until_none_is_left() -> None:
    guard = make(on_nonfinite="skip", max_rollbacks=2)
    for _ in range(2):
        assert guard.instead(guard.judge(BAD_LOSS, True)).action == "rollback"
    assert guard.instead(guard.judge(BAD_LOSS, True)).action == "stop" and guard.ends_run is not None


@pytest.mark.parametrize(
    ("kind", "can_roll_back", "action"),
    [("warn", True, "take"), ("ignore", True, "take"), ("stop", True, "stop"), ("rollback", True, "rollback"),
     ("rollback", False, "stop")],
)  # fmt: skip
def test_what_becomes_of_a_doomed_run(kind: str, can_roll_back: bool, action: str) -> None:
    guard = make(on_doomed=kind)
    decision = guard.doomed("the loss is rising", can_roll_back)
    assert decision.action == action and decision.reason == "doomed" and guard.rollbacks == (action == "rollback")
    assert (guard.ends_run is not None) == (action == "stop")
    if action == "stop":
        assert f"on_doomed={kind}: the loss is rising" in str(guard.ends_run)


def test_a_doomed_run_rolls_back_so_often_and_then_ends() -> None:
    guard = make(max_rollbacks=2, on_doomed="rollback")
    assert [guard.doomed("x", True).action for _ in range(3)] == ["rollback", "rollback", "stop"]
    assert "2 roll-backs did not help" in str(guard.ends_run)


def test_a_light_that_stops_or_rolls_back_counts_as_acting() -> None:
    assert make(on_doomed="stop").acts and make(on_doomed="rollback").acts and not make(on_doomed="warn").acts
    assert make(on_doomed="rollback").may_roll_back and not make(on_doomed="stop").may_roll_back
