"""The three answers, from signs set by hand."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from runner.causes import thresholds as t
from runner.diagnosis.answers import LASTING, RISKY, action, learning, stability
from runner.diagnosis.sign import Signs
from runner.diagnosis.verdict import Action, Learning, Stability
from tests.diagnosis.traces import trace

LONG = trace(np.linspace(2, 1, 50))


def signs(*present: str, **numbers: float) -> Signs:
    found = Signs(numbers=dict(numbers))
    for name in present:
        found.say(name, True)
    return found


def answers(found: Signs, log=LONG) -> tuple[Stability, Learning, Action]:
    stable = stability(log, found)
    learns = learning(log, found, stable)
    return stable, learns, action(found, stable, learns)


def test_a_falling_loss_without_a_fault_is_kept():
    assert answers(signs("falls", "oscillates")) == ("normal", "yes", "keep")


@pytest.mark.parametrize("name", [*LASTING, "nan_lasts"])
def test_what_lasts_is_broken(name):
    stable, learns, act = answers(signs("falls", name))
    assert stable == "broken"
    # A held-out loss that is no number leaves the training as it is.
    assert (learns, act) == (("yes", "change_next_run") if name == "eval_nan" else ("no", "stop"))


@pytest.mark.parametrize("name", RISKY)
def test_what_is_risky_is_at_risk_and_wants_another_run(name):
    assert answers(signs("falls", name)) == ("at_risk", "yes", "change_next_run")


def test_broken_outweighs_at_risk():
    assert answers(signs("diverges", "spikes", "level_rises"))[0] == "broken"


@pytest.mark.parametrize("name", ["zero_norm", "zero_loss_zero_norm", "rate_zero"])
def test_where_nothing_can_move_the_run_stops(name):
    assert answers(signs(name)) == ("normal", "no", "stop")


@pytest.mark.parametrize("name", ["at_chance", "ends_above_start"])
def test_not_learning_wants_another_run(name):
    assert answers(signs(name, "falls")) == ("normal", "no", "change_next_run")


def test_overfitting_is_at_risk_from_a_tenth_on():
    assert answers(signs("eval_rises", "falls", eval_rise=t.OVERFIT_AT_RISK)) == ("at_risk", "yes", "change_next_run")
    assert answers(signs("eval_rises", "falls", eval_rise=0.06)) == ("normal", "yes", "change_next_run")


def test_noise_that_neither_sampling_nor_rows_explain_is_at_risk():
    assert answers(signs("falls", "kappa_high", "not_foreseen"))[0] == "at_risk"
    assert answers(signs("falls", "kappa_high"))[0] == answers(signs("falls", "not_foreseen"))[0] == "normal"


def test_a_low_rate_is_slow():
    assert answers(signs("falls", "rate_low")) == ("normal", "slow", "keep")
    assert answers(signs("flat", "rate_low")) == ("normal", "slow", "keep")
    assert answers(signs("warmup_swallows", "falls")) == ("normal", "slow", "change_next_run")
    assert answers(signs("lost_updates", "falls")) == ("normal", "slow", "change_next_run")


def test_the_probe_set_outweighs_the_curve():
    assert answers(signs("falls", probe_change=0.01, probe_change_se=0.02))[1] == "no"
    assert answers(signs(probe_change=-0.1, probe_change_se=0.02))[1] == "yes"


def test_without_a_fall_it_depends_on_how_much_was_seen():
    few = trace(np.ones(t.FLAT_POINTS - 1))
    assert answers(signs(fall_z=0.5))[1] == "no" and answers(signs(fall_z=2.0))[1] == "cannot_tell"
    assert answers(signs(fall_z=0.5), few)[1] == "cannot_tell"
    assert answers(signs("flat", fall_z=2.0))[1] == "no"


@pytest.mark.parametrize("points", [0, 1, t.LEAST_POINTS - 1])
def test_too_few_points_cannot_tell(points):
    assert answers(signs(), trace(np.ones(points))) == ("cannot_tell", "cannot_tell", "keep")


def test_few_points_are_enough_for_what_is_broken_or_exactly_zero():
    two = trace([1.0, 1.0])
    assert answers(signs("hidden_nan"), two) == ("broken", "no", "stop")
    assert answers(signs("zero_norm"), two) == ("normal", "no", "stop")
    assert answers(signs("zero_norm"), trace([1.0]))[0] == "cannot_tell"


def test_evaluations_count_as_points():
    log = trace(np.ones(3), evaluations=[(1, 1.0), (2, 0.9), (3, 0.8)])
    assert stability(log, signs()) == "normal"


def test_a_reward_is_no_loss():
    """The loss of reinforcement learning hovers around 0: only what is no number counts."""
    log = trace(np.zeros(50), family="reinforcement")
    assert answers(signs("diverges", "spikes"), log) == ("cannot_tell", "cannot_tell", "keep")
    assert answers(signs("nan_lasts"), log) == ("broken", "no", "stop")


def test_unknown_signs_decide_nothing():
    found = signs("falls")
    for name in (*LASTING, *RISKY):
        found.say(name, None)
    assert answers(found) == ("normal", "yes", "keep")


def test_answers_are_of_the_verdict():
    seen = [answers(signs(name)) for name in (*LASTING, *RISKY, "falls", "flat")]
    assert {s for s, _, _ in seen} <= set(get_args(Stability))
    assert {x for _, x, _ in seen} <= set(get_args(Learning)) and {a for _, _, a in seen} <= set(get_args(Action))
