"""Held-out losses that turn up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.heldout import turn


def test_a_turn_is_measured_against_the_best():
    found = turn([1.0, 0.8, 0.7, 0.75, 0.84, 0.84])
    assert found is not None and found.best_at == 2
    assert found.relative == pytest.approx(0.84 / 0.7 - 1) and found.fell == pytest.approx(0.16)


def test_a_falling_one_has_not_turned_and_nan_is_left_out():
    found = turn([1.0, float("nan"), 0.9, 0.8])
    assert found is not None and found.relative == 0 and found.best == 0.8
    assert turn([1.0]) is None and turn([float("nan")] * 3) is None


def test_the_end_is_the_median_of_the_last_quarter_after_the_best():
    found = turn([1.0, 0.5, 0.9, 0.6, 0.6, 0.6, 0.7, 5.0])
    assert found is not None and (found.best_at, found.end) == (1, pytest.approx(2.85))
    short = turn([1.0, 0.5, 0.6])
    assert short is not None and short.end == 0.6 and short.relative == pytest.approx(0.2) and short.noise == 0


def test_noise_by_hand():
    # Differences -1 and +1 in turn: median 0, MAD 1.
    found = turn([3.0, 2.0, 3.0, 2.0, 3.0, 2.0, 3.0])
    assert found is not None and found.noise == pytest.approx(1.4826 / np.sqrt(2) / 2)
    falling = turn([3.0, 2.5, 2.0, 1.5, 1.0, 0.5])
    assert falling is not None and falling.noise == 0


def test_a_best_of_zero_divides_by_nothing():
    found = turn([1.0, 0.0, 0.3, 0.3])
    assert found is not None and found.relative == pytest.approx(0.3)
    assert turn([0.0, 0.0]) is not None


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=30), st.integers(-7, 7))
def test_the_unit_does_not_matter(loss, exponent):
    # A power of two, which rounds nothing: another factor can make two near losses equal, and so move the best.
    a, b = turn(loss), turn(np.array(loss) * 2.0**exponent)
    assert a is not None and b is not None
    assert a.relative >= 0 and b.relative == a.relative
    assert b.noise == a.noise
