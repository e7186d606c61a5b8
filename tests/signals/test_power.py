"""Sample sizes against the textbook and against simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.power import rows_needed, steps_needed


def test_by_hand():
    # Cohen's table 2.4.1: d = 0.5 at power 0.80, two-sided 0.05, needs 63 or 64 a group (63 by the normal formula).
    assert steps_needed(1.0, 0.5) == 63
    assert rows_needed(1.0, 0.1) == 385  # the pollster's figure, 384.1 rounded up


@pytest.mark.parametrize("sd", [0.1, 0.3])
def test_that_many_steps_find_the_difference_in_four_of_five_pairs(sd):
    n = steps_needed(sd, 0.05)
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, sd, (4000, n)).mean(1), rng.normal(0.05, sd, (4000, n)).mean(1)
    share = np.mean(np.abs(a - b) > 1.96 * sd * math.sqrt(2 / n))
    assert 0.77 < share < 0.83


def test_nothing_to_say():
    assert steps_needed(math.nan, 0.1) is None and steps_needed(0.1, 0.0) is None
    assert rows_needed(0.1, math.inf) is None
    assert steps_needed(0.0, 0.1) == 1


@given(st.floats(0.01, 10), st.floats(0.01, 10))
def test_twice_the_noise_takes_four_times_as_long(sd, difference):
    once, twice = steps_needed(sd, difference), steps_needed(2 * sd, difference)
    assert once is not None and twice is not None and abs(twice - 4 * once) <= 4
