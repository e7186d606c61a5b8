"""Running median, noise, fall."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.trend import DIRECT, fall, noise_of, running_median


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
