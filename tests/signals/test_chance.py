"""A classifier's loss at ln K, and what only passes by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.chance import chance_level


def test_at_the_logarithm_of_the_classes():
    assert chance_level(np.full(20, 1.0986), None, 0.02) == 3
    assert chance_level(np.full(20, np.log(2) * 1.01), 2, 0.02) == 2


def test_a_known_number_of_classes_is_the_only_one_tried():
    assert chance_level(np.full(20, 1.0986), 4, 0.02) is None
    assert chance_level(np.full(20, np.log(77)), 77, 0.02) == 77
    # One class has no chance level: the usual ones are tried.
    assert chance_level(np.full(20, np.log(3)), 1, 0.02) == 3


def test_the_last_half_counts():
    assert chance_level([5.0] * 10 + [np.log(5)] * 10, None, 0.02) == 5
    assert chance_level([np.log(5)] * 9 + [0.2] * 10, None, 0.02) is None


@pytest.mark.parametrize("loss", [[], [1.0986], [1.0986, 1.0986], [0.3] * 20, [0.0] * 20, [-1.0986] * 20])
def test_no_level(loss):
    assert chance_level(loss, None, 0.02) is None


@given(st.integers(2, 6), st.floats(-0.02, 0.02), st.integers(3, 40))
def test_within_the_tolerance_and_no_further(k, off, n):
    assert chance_level(np.full(n, np.log(k) * (1 + 0.99 * off)), k, 0.02) == k
    assert chance_level(np.full(n, np.log(k) * 1.021), k, 0.02) is None


def test_of_two_that_fit_the_nearer_one():
    assert chance_level(np.full(9, 0.4 * np.log(5) + 0.6 * np.log(6)), None, 0.2) == 6
