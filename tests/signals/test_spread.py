"""Noise that grows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.spread import noise_growth


def test_doubled_noise_is_measured():
    rng = np.random.default_rng(0)
    loss = 1.0 + 0.1 * rng.standard_normal(1000)
    loss[500:] = 1.0 + 2 * (loss[500:] - 1.0)
    found = noise_growth(loss)
    assert found.factor == pytest.approx(2, rel=0.15) and found.z > 8 and found.before == pytest.approx(0.1, rel=0.1)


def test_equal_noise_has_a_small_z():
    rng = np.random.default_rng(1)
    z = [noise_growth(1.0 + 0.1 * rng.standard_normal(400)).z for _ in range(200)]
    assert np.std(z) < 1.6 and abs(np.mean(z)) < 0.5


def test_noise_relative_to_a_falling_level():
    rng = np.random.default_rng(2)
    base = np.linspace(2, 1, 1000)
    found = noise_growth(base * (1 + 0.1 * rng.standard_normal(1000)))
    assert found.factor < 0.8 and found.relative == pytest.approx(1, abs=0.15)


def test_too_few_points():
    assert np.isnan(noise_growth(np.ones(39)).z)


def test_a_few_spikes_are_no_growth():
    loss = 1.0 + 0.1 * np.random.default_rng(3).standard_normal(1000)
    loss[[600, 700, 900]] += 10
    assert noise_growth(loss).factor < 1.15


def test_the_steep_start_is_left_out():
    n = np.arange(1000)
    quiet = 0.1 * np.random.default_rng(4).standard_normal(1000)
    assert noise_growth(1 + 20 * np.exp(-n / 8) + quiet).factor == pytest.approx(1, abs=0.15)


@given(st.integers(0, 1000), st.integers(40, 200), st.sampled_from([0.125, 8.0, 1024.0]))
def test_the_unit_does_not_matter(seed, n, factor):
    loss = 2 + 0.2 * np.random.default_rng(seed).standard_normal(n)
    a, b = noise_growth(loss), noise_growth(loss * factor)
    assert (b.factor, b.relative, b.z) == pytest.approx((a.factor, a.relative, a.z))


def test_a_constant_curve_does_not_grow():
    found = noise_growth(np.ones(100))
    assert np.isnan(found.z) and np.isnan(found.factor) and (found.before, found.after) == (0, 0)
