"""Clip saturation by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.saturation import clipping, clipping_by_norm, logged_after_clipping

NAN = math.nan


def test_by_hand() -> None:
    found = clipping([1.0, 0.5, NAN, 0.1, 1.0], window=2)
    assert (found.n, found.share, found.every) == (4, 0.5, False) and found.factor == pytest.approx(0.3)
    assert found.rolling == pytest.approx([0, 0.5, 1.0, 1.0, 0.5])


def test_rounding_is_not_clipping() -> None:
    assert clipping([1.0, 1 - 1e-7]).share == 0


def test_norms_and_factors_agree() -> None:
    norm = np.array([0.5, 1.0, 2.0, 10.0, NAN, math.inf])
    found = clipping_by_norm(norm, 1.0)
    assert (found.n, found.share) == (4, 0.5) and found.factor == pytest.approx(0.3)
    for none in (None, 0, 0.0):
        assert clipping_by_norm(norm, none).share == 0


def test_every_step() -> None:
    assert clipping_by_norm([5.0] * 10, 1.0).every and not clipping_by_norm([5.0] * 9, 1.0).every
    assert not clipping_by_norm([5.0] * 20 + [0.5], 1.0).every


def test_nothing() -> None:
    assert math.isnan(clipping([]).share) and math.isnan(clipping([NAN]).share) and np.isnan(clipping([NAN]).rolling)[0]
    with pytest.raises(ValueError, match="window"):
        clipping([1.0], 0)


def test_norms_after_clipping() -> None:
    rng = np.random.default_rng(0)
    before = rng.lognormal(0.5, 0.5, 100)
    assert logged_after_clipping(np.minimum(before, 1.0), 1.0)
    assert logged_after_clipping(np.round(np.minimum(before, 0.3), 4), 0.3)
    assert not logged_after_clipping(before, 1.0)
    assert not logged_after_clipping(before / 100, 1.0), "simply small"
    assert not logged_after_clipping([1.0] * 5, 1.0) and not logged_after_clipping(before, 0.0)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=40), st.integers(1, 60))
def test_the_last_rolling_share_is_that_of_the_window(norms: list[float], window: int) -> None:
    found = clipping_by_norm(norms, 1.0, window)
    tail = np.array(norms)[-window:]
    assert found.rolling[-1] == pytest.approx(np.mean(1 / np.maximum(tail, 1.0) < 1 - 1e-6))
    assert found.rolling.shape == (len(norms),)
