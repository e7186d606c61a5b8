"""The noise floor by hand and on planted noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.noise_floor import noise_floor, visible_change


def test_by_hand() -> None:
    found = noise_floor([1.0, 3.0, 2.0, 4.0])
    # Differences 2, -1, 2; median 2, distances 0, 3, 0.
    assert found.sd == pytest.approx(math.sqrt(9 / 3 / 2)) and found.robust == 0.0
    assert found.level == 2.5 and found.variation == pytest.approx(found.sd / 2.5) and found.n == 3


@pytest.mark.parametrize("n", [60, 1000, 3000])
@pytest.mark.parametrize("share", [0.1, 0.25])
def test_planted_noise_under_a_falling_curve(n: int, share: float) -> None:
    rng = np.random.default_rng(0)
    level = 1.15 + 0.35 * np.exp(-np.arange(n) / (n / 4))
    found = [noise_floor(level * (1 + share * rng.normal(size=n))) for _ in range(200)]
    assert np.mean([f.variation for f in found]) == pytest.approx(share, rel=0.06)
    assert np.mean([f.robust_variation for f in found]) == pytest.approx(share, rel=0.06)


def test_spikes_move_only_one_of_the_two() -> None:
    x = 2 + 0.1 * np.random.default_rng(1).normal(size=1000)
    x[::50] += 5
    found = noise_floor(x)
    assert found.sd > 0.5 and found.robust == pytest.approx(0.1, rel=0.15)


def test_gaps_and_nothing() -> None:
    assert noise_floor([1.0, math.nan, 3.0, 5.0, math.inf]).n == 1
    assert math.isnan(noise_floor([]).sd) and math.isnan(noise_floor([1.0]).sd) and noise_floor([1.0]).level == 1.0
    assert math.isnan(noise_floor([-1.0, 1.0]).variation), "no level to compare with"


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30), st.floats(-100, 100))
def test_a_constant_changes_nothing(values: list[float], level: float) -> None:
    one, other = noise_floor(values), noise_floor(np.array(values) + level)
    assert other.sd == pytest.approx(one.sd, abs=1e-9) and other.robust == pytest.approx(one.robust, abs=1e-9)


def test_what_is_called_visible_is_found_in_four_of_five() -> None:
    rng = np.random.default_rng(2)
    change = visible_change(1.0, 30, 60)
    assert change == pytest.approx((1.96 + 0.8416) * math.sqrt(1 / 30 + 1 / 60), rel=1e-3)
    seen = 0
    for _ in range(2000):
        gap = rng.normal(change, 1, 60).mean() - rng.normal(0, 1, 30).mean()
        seen += abs(gap) > 1.96 * math.sqrt(1 / 30 + 1 / 60)
    assert seen / 2000 == pytest.approx(0.8, abs=0.03)
    assert visible_change(1.0, 50) == visible_change(1.0, 50, 50) and visible_change(1.0, 0) == math.inf
