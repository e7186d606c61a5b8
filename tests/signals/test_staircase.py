"""Stairs at epoch ends, and what is none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.period import detrended
from runner.signals.staircase import ramp_share, staircase


def stairs(per_epoch=50, epochs=5, drop=0.3, seed=0):
    n = per_epoch * epochs
    epoch = (np.arange(n) + 1) / per_epoch
    noise = 0.03 * np.random.default_rng(seed).standard_normal(n)
    return 2.0 - drop * np.floor(np.arange(n) / per_epoch) + noise, epoch


def test_stairs_are_measured():
    loss, epoch = stairs()
    found = staircase(loss, epoch)
    assert found is not None and found.boundaries == found.falling == 4
    assert found.drop == pytest.approx(0.3 / 1.55, rel=0.2) and found.z > 10 and found.kept == pytest.approx(1, abs=0.1)


def test_a_straight_fall_has_no_stairs():
    epoch = np.linspace(0, 5, 250)
    loss = 2 - 0.2 * epoch + 0.03 * np.random.default_rng(1).standard_normal(250)
    found = staircase(loss, epoch)
    assert found is not None and abs(found.z) < 3


def test_a_swing_climbs_up_again():
    epoch = np.arange(300) / 50
    loss = 1.5 + 0.2 * np.cos(2 * np.pi * (epoch - 0.2))
    found = staircase(loss, epoch)
    assert found is None or found.z < 0 or found.kept < 0.3


def test_less_than_two_epochs_say_nothing():
    assert staircase(np.ones(40), np.linspace(0, 1.1, 40)) is None
    assert staircase([], []) is None


@pytest.mark.parametrize("phase", [0.0, 1.5, 3.0, 4.5])
def test_stairs_are_ramps_and_sines_are_not(phase):
    loss, epoch = stairs()
    assert ramp_share(detrended(loss), epoch) > 0.8
    sine = 1.5 + 0.2 * np.sin(2 * np.pi * epoch + phase) + 0.05 * np.random.default_rng(3).standard_normal(len(epoch))
    assert ramp_share(detrended(sine), epoch) < 0.72


def test_unknown_points_are_left_out():
    loss, epoch = stairs()
    loss[::17] = np.nan
    epoch[::23] = np.nan
    found = staircase(loss, epoch)
    assert found is not None and found.boundaries == 4 and found.drop == pytest.approx(0.3 / 1.55, rel=0.25)


def test_noise_alone_has_no_stairs():
    rng = np.random.default_rng(2)
    epoch = (np.arange(200) + 1) / 50
    found = [staircase(1.5 + 0.2 * rng.standard_normal(200), epoch) for _ in range(200)]
    assert sum(f is not None and f.z >= 3 and f.drop >= 0.03 for f in found) <= 2


def test_a_log_with_fewer_than_three_points_per_epoch_says_nothing():
    assert staircase(np.ones(20), np.arange(20.0)) is None


@given(st.integers(0, 100), st.sampled_from([0.125, 8.0]))
def test_the_unit_does_not_matter(seed, factor):
    loss, epoch = stairs(seed=seed)
    a, b = staircase(loss, epoch), staircase(loss * factor, epoch)
    assert a is not None and b is not None
    assert (b.drop, b.z, b.kept, b.falling) == pytest.approx((a.drop, a.z, a.kept, a.falling))


def test_a_ramp_of_too_few_points_cannot_be_told():
    assert np.isnan(ramp_share(np.ones(23), np.arange(23) / 10)) and np.isnan(ramp_share([], []))
    assert np.isnan(ramp_share(np.ones(60), np.arange(60) / 3))
