"""LR sensitivity by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.sensitivity import lr_sensitivity

NAN = math.nan


def test_by_hand() -> None:
    # Above the best: 1, 0, 2 (held at the start): trapezoid (0.5 + 1) / 2 intervals.
    found = lr_sensitivity([1e-3, 1e-5, 1e-4], [9.0, 2.0, 1.0], 3.0)
    assert found.value == pytest.approx(0.75)
    assert (found.best_rate, found.best_loss, found.failed, found.n) == (1e-4, 1.0, 1, 3)
    assert lr_sensitivity([1e-3, 1e-5, 1e-4], [NAN, 2.0, 1.0], 3.0) == found


def test_unequal_steps_weigh_by_their_width() -> None:
    # ln 10 wide with mean 0.5, 2 ln 10 wide with mean 1.5.
    assert lr_sensitivity([1e-5, 1e-4, 1e-2], [1.0, 2.0, 3.0], 9.0).value == pytest.approx((0.5 + 2 * 1.5) / 3)


def test_seeds_are_averaged() -> None:
    found = lr_sensitivity([1e-4, 1e-4, 1e-3], [1.0, NAN, 4.0], 3.0)
    assert found.best_loss == 2.0 and found.n == 2 and found.value == pytest.approx(0.5)


def test_a_flat_valley_and_too_little() -> None:
    assert lr_sensitivity([1e-5, 1e-4, 1e-3], [1.0] * 3, 2.0).value == 0
    assert math.isnan(lr_sensitivity([1e-4], [1.0], 2.0).value) and lr_sensitivity([1e-4], [1.0], 2.0).best_loss == 1.0
    assert math.isnan(lr_sensitivity([], [], 2.0).best_rate) and lr_sensitivity([0.0], [1.0], 2.0).n == 0
    with pytest.raises(ValueError, match="runs"):
        lr_sensitivity([1e-4], [1.0, 2.0], 2.0)
    with pytest.raises(ValueError, match="start_loss"):
        lr_sensitivity([1e-4], [1.0], NAN)


@given(st.lists(st.one_of(st.floats(0, 9), st.just(NAN)), min_size=2, max_size=12), st.floats(1, 5))
def test_between_nothing_and_everything(losses: list[float], start: float) -> None:
    rates = 10.0 ** np.linspace(-6, -2, len(losses))
    found = lr_sensitivity(rates, losses, start)
    assert -1e-12 <= found.value <= start - found.best_loss + 1e-12
    assert lr_sensitivity(rates[::-1], losses[::-1], start).value == pytest.approx(found.value)
    assert lr_sensitivity(rates * 7, losses, start).value == pytest.approx(found.value, abs=1e-9)
