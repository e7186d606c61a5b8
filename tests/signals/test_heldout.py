"""Held-out losses, and losses at chance."""

import numpy as np
import pytest

from runner.signals.chance import chance_level
from runner.signals.heldout import turn


def test_a_turn_is_measured_against_the_best():
    found = turn([1.0, 0.8, 0.7, 0.75, 0.84, 0.84])
    assert found is not None and found.best_at == 2
    assert found.relative == pytest.approx(0.84 / 0.7 - 1) and found.fell == pytest.approx(0.16)


def test_a_falling_one_has_not_turned_and_nan_is_left_out():
    found = turn([1.0, float("nan"), 0.9, 0.8])
    assert found is not None and found.relative == 0 and found.best == 0.8
    assert turn([1.0]) is None and turn([float("nan")] * 3) is None


def test_chance():
    assert chance_level(np.full(20, 1.0986), None, 0.02) == 3
    assert chance_level(np.full(20, np.log(2) * 1.01), 2, 0.02) == 2
    assert chance_level(np.full(20, 1.0986), 4, 0.02) is None
    assert chance_level(np.full(20, 0.3), None, 0.02) is None and chance_level([1.0], None, 0.02) is None
