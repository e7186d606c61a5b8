"""The paired change against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runner.signals.paired import paired_change


def test_by_hand() -> None:
    # Differences -1, -2, -3: mean -2, sd 1, so SE = 1 / sqrt(3).
    change = paired_change([5.0, 1.0, 9.0], [4.0, -1.0, 6.0])
    assert change.mean == pytest.approx(-2.0)
    assert change.se == pytest.approx(1 / math.sqrt(3))
    assert change.learning and change.left_out == 0


def test_learning_needs_more_than_two_standard_errors() -> None:
    # Differences -2 and 0: D = -1, sd = sqrt(2), SE = 1: half of what is needed.
    assert not paired_change([2.0, 0.0], [0.0, 0.0]).learning
    assert paired_change([2.0, 0.0], [-1.0, -2.5]).learning
    assert not paired_change([1.0, 1.0, 1.0], [2.0, 2.1, 2.2]).learning
    assert not paired_change([1.0, 2.0], [1.0, 2.0]).learning


def test_the_difficulty_of_the_examples_cancels() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(3.0, 2.0, size=64)
    change = paired_change(before, before - 0.05 + rng.normal(0.0, 0.05, size=64))
    assert change.learning and change.se < 0.01


def test_pairs_that_are_not_finite_are_counted_and_left_out() -> None:
    change = paired_change([5.0, np.nan, 1.0, 1.0, 9.0], [4.0, 1.0, np.inf, -1.0, 6.0])
    assert change.mean == pytest.approx(-2.0) and change.se == pytest.approx(1 / math.sqrt(3))
    assert change.left_out == 2


def test_too_few_pairs_tell_nothing() -> None:
    one = paired_change([2.0, np.nan], [1.0, 1.0])
    assert one.mean == -1.0 and math.isnan(one.se) and not one.learning and one.left_out == 1
    none = paired_change([], [])
    assert math.isnan(none.mean) and math.isnan(none.se) and not none.learning and none.left_out == 0


def test_unequal_lengths_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="not pairs"):
        paired_change([1.0, 2.0], [1.0])
