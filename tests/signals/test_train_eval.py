"""Train against held-out loss by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runner.signals.train_eval import FACTORS, train_eval

NAN = math.nan


def test_by_hand() -> None:
    found = train_eval([1, 2, 3, 4, 5, 6], [4.0, 3.0, 2.0, 2.0, NAN, 1.0], [2, 4, 6], [3.0, 2.5, 2.5])
    assert found.train == pytest.approx([3.5, 2.0, 1.0]) and found.gap == pytest.approx([-0.5, 0.5, 1.5])
    assert found.last == 1.5 and found.growth == pytest.approx(0.5) and found.growth_se == pytest.approx(0, abs=1e-9)
    assert found.ratio == pytest.approx(0.8) and found.factor is None
    assert found.eval_not_finite == 0 and found.first_not_finite is None


def test_at_most_so_many_points() -> None:
    found = train_eval(np.arange(1, 101), np.arange(1.0, 101.0), [50, 100], [1.0, 1.0], most=10)
    assert found.train == pytest.approx([45.5, 95.5])


def test_evaluations_between_rare_points_and_before_the_first() -> None:
    rare = train_eval([10, 20], [2.0, 1.0], [12, 14, 20], [2.0, 2.0, 2.0])
    assert rare.train == pytest.approx([2.0, 2.0, 1.0])
    early = train_eval([10, 20], [2.0, 1.0], [0, 10, 20], [2.0, 2.0, 2.0])
    assert early.train == pytest.approx([2.0, 2.0, 1.0])
    twice = train_eval([1, 2, 3], [3.0, 2.0, 1.0], [3, 3], [2.0, 4.0])
    assert twice.train == pytest.approx([2.0, 2.0])
    assert np.isnan(train_eval([100], [1.0], [5, 10], [1.0, 1.0]).train).all()


def test_a_held_out_loss_that_is_nan() -> None:
    found = train_eval([50, 100, 150], [0.9, 0.5, 0.3], [50, 100, 150], [1.0, NAN, math.inf])
    assert (found.eval_not_finite, found.first_not_finite) == (2, 100) and found.last == pytest.approx(0.1)
    assert np.isnan(found.gap[1:]).all()
    both = train_eval([50], [NAN], [50], [NAN])
    assert both.eval_not_finite == 0, "the train loss is NaN as well"


@pytest.mark.parametrize("factor", FACTORS)
def test_losses_that_were_not_divided(factor: int) -> None:
    rng = np.random.default_rng(factor)
    steps = np.arange(10, 210, 10)
    loss = 1.5 + 0.02 * rng.normal(size=20)
    at = steps[4::5]
    assert train_eval(steps, factor * loss, at, loss[4::5]).factor == factor
    assert train_eval(steps, loss / factor, at, loss[4::5]).factor is None, "memorising does that"
    assert train_eval(steps, loss, at, loss[4::5]).factor is None


def test_memorising_is_no_factor() -> None:
    steps = np.arange(100, 1100, 100)
    found = train_eval(steps, [1.4, 1.1, 0.8, 0.6, 0.5, 0.49, 0.5, 0.5, 0.5, 0.5], steps, np.full(10, 1.5))
    assert found.factor is None and found.growth > 3 * found.growth_se


def test_growth_has_an_honest_error() -> None:
    rng = np.random.default_rng(0)
    steps = np.arange(100, 2100, 100)
    z = []
    for _ in range(1000):
        found = train_eval(steps, 1.5 + 0.1 * rng.normal(size=20), steps, 1.6 + 0.05 * rng.normal(size=20))
        z.append(found.growth / found.growth_se)
    # t with 18 degrees: 5 % beyond 2.10.
    assert np.mean(np.abs(z) > 2.10) == pytest.approx(0.05, abs=0.02)


def test_nothing() -> None:
    for found in (train_eval([], [], [], []), train_eval([1], [1.0], [], []), train_eval([], [], [1], [1.0])):
        assert math.isnan(found.last) and math.isnan(found.growth) and found.factor is None
    with pytest.raises(ValueError, match="shape"):
        train_eval([1], [1.0, 2.0], [], [])
