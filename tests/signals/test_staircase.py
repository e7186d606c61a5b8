"""Stairs at epoch ends, and what is none."""

import numpy as np
import pytest

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
