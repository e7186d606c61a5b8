"""The difficulty control variate against planted slopes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.difficulty import adjusted, r_squared, slope

NAN, INF = math.nan, math.inf


def test_by_hand() -> None:
    # dc = [1, -2, 3], dL = [1, -1, 2]: 9 / 14; and 9^2 / (6 x 14).
    loss, base = [2.0, 3.0, 2.0, 4.0], [1.0, 2.0, 0.0, 3.0]
    assert slope(loss, base) == pytest.approx(9 / 14)
    assert r_squared(loss, base) == pytest.approx(81 / 84)
    change, base_change = np.diff(loss), np.diff(base)
    left = change - slope(loss, base) * base_change
    assert r_squared(loss, base) == pytest.approx(1 - left @ left / (change @ change))
    assert adjusted(loss, base, 0.5) == pytest.approx([2.25, 2.75, 2.75, 3.25])
    assert adjusted(loss, base, 0.5, mean=0.0) == pytest.approx([1.5, 2.0, 2.0, 2.5])


def test_points_that_are_unknown_or_not_finite_are_left_out() -> None:
    loss = [2.0, 9.0, 3.0, NAN, 2.0, INF, 4.0]
    base = [1.0, NAN, 2.0, 7.0, 0.0, 7.0, 3.0]
    assert slope(loss, base) == pytest.approx(9 / 14)
    assert r_squared(loss, base) == pytest.approx(81 / 84)
    out = adjusted(loss, base, 0.5)
    assert np.isnan(out[1]) and np.isnan(out[3]) and out[5] == INF, "a loss that is not finite stays so"


def test_too_little_to_say() -> None:
    for loss, base in ([], []), ([1.0], [1.0]), ([1.0, 2.0], [3.0, 3.0]), ([1.0, 2.0], [1.0, NAN]):
        assert math.isnan(slope(loss, base)) and math.isnan(r_squared(loss, base))
    assert math.isnan(r_squared([1.0, 1.0], [1.0, 2.0])) and slope([1.0, 1.0], [1.0, 2.0]) == 0
    assert np.isnan(adjusted([1.0, 2.0], [NAN, NAN], 1.0)).all()
    assert np.isnan(adjusted([1.0, 2.0], [1.0, 2.0], NAN)).all()


@pytest.mark.parametrize("planted", [0.0, 0.6, 1.0])
def test_a_planted_slope_is_found_under_a_trend(planted: float) -> None:
    rng = np.random.default_rng(0)
    base = 2 + rng.normal(0, 0.3, 2000)
    trend = 3 * np.exp(-np.arange(2000) / 400)
    loss = trend + planted * base + rng.normal(0, 0.1, 2000)
    assert slope(loss, base) == pytest.approx(planted, abs=0.02)
    explained = planted**2 * 0.09 / (planted**2 * 0.09 + 0.01)
    assert r_squared(loss, base) == pytest.approx(explained, abs=0.03)
    calm = adjusted(loss, base, slope(loss, base))
    assert np.std(calm - trend) == pytest.approx(0.1, rel=0.1)
    assert np.mean(calm) == pytest.approx(np.mean(loss)), "the level stays"


def test_a_level_regression_would_be_fooled_by_the_trend_and_this_is_not() -> None:
    # The rows get easier while the run learns (a curriculum): levels correlate although batches explain nothing.
    rng = np.random.default_rng(1)
    drift = np.linspace(1, 0, 1000)
    loss, base = 2 * drift + rng.normal(0, 0.2, 1000), drift + rng.normal(0, 0.2, 1000)
    assert np.polyfit(base, loss, 1)[0] > 0.5
    assert abs(slope(loss, base)) < 0.1


@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=2, max_size=30), st.floats(-100, 100))
def test_a_constant_changes_nothing_and_the_share_is_a_share(points: list[tuple[float, float]], level: float) -> None:
    loss, base = np.array(points).T
    if np.abs(np.diff(base)).max() < 1e-3 or np.abs(np.diff(loss)).max() < 1e-3:
        return
    assert slope(loss + level, base - level) == pytest.approx(slope(loss, base), rel=1e-6, abs=1e-6)
    assert 0 <= r_squared(loss, base) <= 1 + 1e-9
