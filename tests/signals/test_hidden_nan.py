"""The signatures of hidden NaN on the pairs that real logs show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.hidden_nan import (
    accumulated_log_classes,
    at_log_classes,
    constant_norm,
    nan_inside_window,
    non_finite,
    zero_loss,
)

NAN, INF = math.nan, math.inf


def test_counts_by_hand() -> None:
    found = non_finite([1.0, NAN, INF, 1.0, NAN, 2.0])
    assert found == (3, 0.5, 2, 1, 1, 4, 2, True)
    assert non_finite([1.0, NAN]).recovers is False
    assert non_finite([1.0, 2.0]) == (0, 0.0, 0, 0, None, None, 0, True)
    assert non_finite([]).total == 0


def test_a_value_that_is_not_logged_is_not_nan() -> None:
    found = non_finite([NAN, NAN, NAN, 1.0], known=[True, False, True, True])
    assert (found.total, found.longest, found.recovers) == (2, 2, True), "what lies between is unknown: one row"
    assert found.share == pytest.approx(2 / 3)
    hidden = non_finite([1.0, 0.0, 0.0], hidden=[False, True, True])
    assert (hidden.total, hidden.nan, hidden.recovers) == (2, 2, False)
    with pytest.raises(ValueError, match="shape"):
        non_finite([1.0, 2.0], known=[True])


@given(st.lists(st.sampled_from([1.0, NAN, INF, -INF]), max_size=30))
def test_counts_agree_with_a_plain_loop(values: list[float]) -> None:
    found = non_finite(values)
    longest = row = 0
    for v in values:
        row = 0 if math.isfinite(v) else row + 1
        longest = max(longest, row)
    assert found.longest == longest
    assert found.total == found.nan + found.infinite == sum(not math.isfinite(v) for v in values)
    assert found.recovers == (not values or math.isfinite(values[-1]) or found.total == 0)


def test_zero_losses_are_sorted_by_their_norm() -> None:
    loss = [1.08, 0.0, 0.0, 0.0, 0.0, 0.9, 0.0]
    norm = [NAN, NAN, INF, 0.0, 0.5, 0.4, NAN]
    known = [True] * 6 + [False]
    found = zero_loss(loss, norm, norm_known=known)
    assert found.nan_norm.tolist() == [1, 2] and found.zero_norm.tolist() == [3]
    assert found.other.tolist() == [4] and found.no_norm.tolist() == [6]
    assert found.before == 1.08 and not found.to_the_end
    assert found.hidden.tolist() == [1, 2]


def test_a_zero_to_the_end() -> None:
    found = zero_loss([1.0778] + [0.0] * 10, [NAN] * 11)
    assert found.hidden.tolist() == list(range(1, 11)) and found.to_the_end and found.before == 1.0778
    none = zero_loss([1.0, NAN], [1.0, NAN])
    assert not none.hidden.size and math.isnan(none.before) and not none.to_the_end


@pytest.mark.parametrize("k", range(1, 9))
def test_a_norm_frozen_at_a_root(k: int) -> None:
    loss, norm = [0.9, 0.8, 0.0, 0.0, 0.0, 0.0], [2.1, 1.9, *[math.sqrt(k)] * 4]
    found = constant_norm(norm, loss)
    assert found is not None and (found.k, found.first, found.last, found.points) == (k, 2, 5, 4)
    printed = constant_norm(np.round(norm, 3), loss)
    assert printed is not None and printed.k == k
    assert zero_loss(loss, norm).hidden.tolist() == [2, 3, 4, 5]


def test_a_log_of_two_points() -> None:
    found = constant_norm([1.7320508075688772] * 2, [0.0, 0.0])
    assert found is not None and found.k == 3 and found.points == 2


def test_what_is_no_frozen_norm() -> None:
    assert constant_norm([1.0] * 50, [2.0] * 50) is None, "a norm logged after clipping"
    assert constant_norm([1.3] * 9, [0.0] * 9) is None, "no root"
    assert constant_norm([1.0, 2.0, 1.0, 2.0], [0.0] * 4) is None, "two roots in turn"
    assert constant_norm([0.5, 1.0, 1.0, 0.4], [0.0] * 4) is None, "too few"
    assert constant_norm([1.0], [0.0]) is None and constant_norm([], []) is None


def test_a_loss_that_is_not_logged_beside_a_frozen_norm() -> None:
    found = constant_norm([1.0] * 4, [NAN] * 4, loss_known=[False] * 4)
    assert found is not None and found.k == 1


@pytest.mark.parametrize(
    ("value", "classes", "precision"),
    [
        (1.0986, 3, "float32"),
        (1.0986123, 3, "float32"),
        (1.0986328125, 3, "float16"),
        (1.1016, 3, "bfloat16"),
        (1.1015625, 3, "bfloat16"),
        (0.6931, 2, "float32"),
        (0.6934, 2, "float16"),
        (6.9078, 1000, "float32"),
    ],
)
def test_exactly_ln_k(value: float, classes: int, precision: str) -> None:
    found = at_log_classes([value] * 5, [0.0] * 5)
    assert found is not None and found.classes == classes and found.zero_norm and found.points == 5
    if value != 1.0986328125:
        # 2e-5 from float32: printed to seven digits it could be told, to four it cannot.
        assert found.precision == precision


def test_a_plateau_near_ln_k_is_not_exact() -> None:
    rng = np.random.default_rng(0)
    assert at_log_classes(math.log(4) + rng.normal(0, 0.01, 60), np.zeros(60)) is None
    assert at_log_classes([2.0] * 5, [0.0] * 5, classes=3) is None
    assert at_log_classes([1.5, 1.4, 1.0986], [0.0] * 3) is None, "one point is chance"
    assert at_log_classes([NAN] * 5, [0.0] * 5) is None and at_log_classes([], []) is None


def test_the_row_at_the_end_counts_and_its_norm() -> None:
    found = at_log_classes([1.4, 1.2, 1.0986, 1.0986, 1.0986], [3.0, 2.0, 1.2, 1.2, 1.2])
    assert found is not None and found.points == 3 and not found.zero_norm
    missing = at_log_classes([1.0986] * 3, [NAN] * 3, norm_known=[False] * 3)
    assert missing is not None and not missing.zero_norm


@pytest.mark.parametrize("times", [2, 4, 8, 16, 32, 64])
def test_a_loss_that_was_not_divided(times: int) -> None:
    found = accumulated_log_classes(times * math.log(3) * 1.01, classes=3)
    assert [(a.times, a.classes) for a in found] == [(times, 3)]
    assert found[0].off == pytest.approx(0.01)


def test_undivided_losses_of_unknown_classes() -> None:
    assert [(a.times, a.classes) for a in accumulated_log_classes(4 * math.log(3))][:2] == [(2, 9), (4, 3)]
    assert accumulated_log_classes(math.log(3), classes=3) == [], "G = 1 is what it should be"
    assert accumulated_log_classes(NAN) == [] and accumulated_log_classes(0.0, 3) == []


def test_a_nan_inside_a_window() -> None:
    assert nan_inside_window([1.2, 0.8875, 0.0, 0.0], [1.0, NAN, NAN, NAN]) == 1
    assert nan_inside_window([1.2, 0.8875, NAN, NAN], [1.0, NAN, NAN, NAN]) == 1
    assert nan_inside_window([1.2, 0.9, 0.8], [1.0, NAN, 1.0]) is None, "it goes on"
    assert nan_inside_window([1.2, 0.9], [1.0, NAN]) is None, "nothing follows"
    assert nan_inside_window([0.0, 0.0], [NAN, NAN]) is None
