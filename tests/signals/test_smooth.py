"""Smoothing against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from runner.signals.smooth import ema, thin


def test_ema_by_hand() -> None:
    # half-life 1: weights 1, 1/2, 1/4 backwards, divided by their sum.
    assert ema([4.0, 2.0, 8.0], 1.0) == pytest.approx([4.0, (2 + 2) / 1.5, (8 + 1 + 1) / 1.75])


def test_ema_of_a_constant_is_the_constant_and_nan_is_passed_over() -> None:
    assert ema([3.0] * 5, 7.0) == pytest.approx([3.0] * 5)
    smooth = ema([np.nan, 2.0, np.inf, 2.0], 2.0)
    assert np.isnan(smooth[0])
    assert smooth[1:] == pytest.approx([2.0, 2.0, 2.0])


def test_thin_keeps_ends_and_limit() -> None:
    assert thin(3, 500).tolist() == [0, 1, 2]
    kept = thin(10_000, 500)
    assert len(kept) == 500 and kept[0] == 0 and kept[-1] == 9_999
