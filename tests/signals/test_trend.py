"""Running median, noise, fall."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.trend import DIRECT, FLOOR, fall, noise_of, running_median


def test_running_median_by_hand():
    assert running_median([5, 1, 3, 9, 2], 3).tolist() == [3, 3, 3, 3, 5.5]


def test_long_series_go_through_blocks_and_agree():
    x = np.sin(np.linspace(0, 6, 20_000)) + 0.1 * np.random.default_rng(0).standard_normal(20_000)
    assert len(x) * 999 > DIRECT
    assert np.abs(running_median(x, 999)[500:-500] - np.sin(np.linspace(0, 6, 20_000))[500:-500]).max() < 0.05


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.integers(1, 31))
def test_running_median_stays_within_the_values(values, width):
    found = running_median(values, width)
    assert len(found) == len(values) and found.min() >= min(values) and found.max() <= max(values)


def test_noise_of_gaussian_and_of_two_kinds_of_rows():
    rng = np.random.default_rng(2)
    assert noise_of(1 + 0.1 * rng.standard_normal(4000)) == pytest.approx(0.1, rel=0.05)
    two = 1.4 + 0.4 * rng.choice([-1, 1], 4000) + 0.02 * rng.standard_normal(4000)
    assert noise_of(two) > 0.3  # the median of the differences alone says 0.03
    assert np.isnan(noise_of([1.0, 2.0]))


def test_fall():
    found = fall([2.0] * 10 + [1.0] * 10)
    assert (found.first, found.last, found.fall, found.relative) == (2.0, 1.0, 1.0, 0.5) and found.z > 3
    assert fall(np.ones(30) + 0.1 * np.sin(np.arange(30) * 5.0)).z < 2
    assert np.isnan(fall([1.0]).z)


def test_noise_has_a_floor_of_printed_digits():
    assert noise_of(np.full(20, 2.0)) == pytest.approx(2 * FLOOR)
    assert noise_of(np.zeros(20)) == 0


def test_a_trend_and_a_few_spikes_are_no_noise():
    rng = np.random.default_rng(3)
    x = np.linspace(5, 1, 2000) + 0.1 * rng.standard_normal(2000)
    x[::100] += 5
    assert noise_of(x) == pytest.approx(0.1, rel=0.1)


def test_a_fall_is_found_hardly_ever_where_there_is_none():
    rng = np.random.default_rng(4)
    z = [fall(1 + 0.1 * rng.standard_normal(60)).z for _ in range(400)]
    assert sum(x >= 3 for x in z) <= 8


def test_a_fall_that_is_over_is_not_late():
    found = fall(1 + np.exp(-np.arange(200) / 10))
    assert found.relative == pytest.approx(0.5, abs=0.15) and abs(found.late) < 1e-3
    assert fall(np.linspace(2, 1, 200)).late > 0.2
    assert np.isnan(fall(np.linspace(2, 1, 11)).late)


@given(st.lists(st.floats(0.1, 10), min_size=4, max_size=60), st.sampled_from([0.125, 8.0, 1024.0]))
def test_the_unit_does_not_matter(values, factor):
    a, b = fall(values), fall(np.array(values) * factor)
    assert (b.relative, b.z) == pytest.approx((a.relative, a.z)) and b.fall == pytest.approx(factor * a.fall)
    assert noise_of(np.array(values) * factor) == pytest.approx(factor * noise_of(values))


@pytest.mark.parametrize("n", range(8))
def test_short_and_constant_curves(n):
    found = fall(np.ones(n))
    assert np.isnan(found.z) if n < 4 else (found.z, found.relative) == (0, 0)
    assert len(running_median(np.ones(n), 5)) == n
