"""The robust z-score by hand, and on windows that would blind or alarm an ordinary one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.robust import robust_z


def test_by_hand() -> None:
    # Median 3, absolute deviations 2 1 0 1 2: MAD 1.
    assert robust_z(3 + 1.4826 * 4, [1, 2, 3, 4, 5]) == pytest.approx(4.0)
    assert robust_z(0.0, [1, 2, 3, 4, 5]) == pytest.approx(-3 / 1.4826)


def test_what_is_not_finite() -> None:
    for value in (math.nan, math.inf, -math.inf):
        assert robust_z(value, [1.0, 2.0, 3.0]) == math.inf
        assert robust_z(value, []) == math.inf
    assert robust_z(9.0, [math.nan, 1, 2, 3, 4, 5, math.inf]) == robust_z(9.0, [1, 2, 3, 4, 5])


def test_fewer_than_two_values_say_nothing() -> None:
    assert robust_z(100.0, []) == robust_z(100.0, [1.0]) == robust_z(100.0, [1.0, math.nan]) == 0.0


def test_a_window_that_hardly_varies_alarms_at_no_trifle() -> None:
    converged = 1 + 1e-6 * np.random.default_rng(0).normal(size=100)
    assert abs(robust_z(1.0001, converged)) < 0.02, "a hundred standard deviations, and 0.01 % of the loss"
    assert robust_z(1.5, converged) == pytest.approx(50, rel=1e-3)
    assert robust_z(1.0, [0.0, 0.0, 0.0]) == pytest.approx(1e12)
    assert robust_z(0.0, [0.0, 0.0]) == 0.0


def test_a_floor_of_ones_own() -> None:
    # The median of log norms near norm 1 is near 0, and 1 % of it is no scale at all.
    still = [0.0, 1e-4, -1e-4, 0.0]
    assert robust_z(0.2, still) > 1000 and robust_z(0.2, still, floor=0.1) == pytest.approx(2.0)
    assert robust_z(6.0, [1, 2, 3, 4, 5], floor=0.1) == robust_z(6.0, [1, 2, 3, 4, 5]), "it only ever widens"


def test_outliers_in_the_window_do_not_hide_the_next_one() -> None:
    values = np.random.default_rng(0).normal(2, 0.1, 100)
    values[::10] = 50.0
    assert robust_z(50.0, values) > 100 and (50 - values.mean()) / values.std() < 4


def test_gaussian_values_score_like_an_ordinary_z() -> None:
    values = np.random.default_rng(0).normal(2, 0.5, 20_000)
    assert robust_z(4.0, values) == pytest.approx(4.0, rel=0.03)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), st.floats(-1e6, 1e6), st.integers(-6, 6))
def test_units_do_not_matter(window: list[float], value: float, power: int) -> None:
    if np.median(np.abs(window)) < 1e-3:
        return  # the absolute floor
    assert robust_z(value * 2.0**power, [x * 2.0**power for x in window]) == pytest.approx(robust_z(value, window))
