"""Skipped steps and loss scales by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.skips import loss_scale, skips


def test_by_hand() -> None:
    mask = np.zeros(30, dtype=bool)
    mask[[2, 12, 13, 14, 20]] = True
    found = skips(mask)
    assert (found.total, found.share, found.longest, found.first, found.last) == (5, 5 / 30, 3, 2, 20)
    assert (found.later, found.later_share, found.start_up_only) == (4, 4 / 20, False)


def test_the_search_for_a_scale_is_its_own_case() -> None:
    mask = np.zeros(200, dtype=bool)
    mask[:5] = True
    assert skips(mask).start_up_only and skips(mask).longest == 5 and skips(mask).later == 0
    mask[150] = True
    assert not skips(mask).start_up_only
    assert not skips([True] * 8).start_up_only, "every step"
    assert not skips([False] * 8).start_up_only


def test_nothing() -> None:
    assert skips([]) == skips([False] * 5) == (0, 0.0, 0, None, None, 0, 0.0, False)


@given(st.lists(st.booleans(), max_size=60))
def test_agrees_with_a_plain_loop(mask: list[bool]) -> None:
    found = skips(mask)
    longest = row = 0
    for m in mask:
        row = row + 1 if m else 0
        longest = max(longest, row)
    assert (found.total, found.longest, found.later) == (sum(mask), longest, sum(mask[10:]))


def test_a_scale_by_hand() -> None:
    found = loss_scale([65536, 32768, math.nan, 16384, 16384, 32768, 8192])
    assert (found.first, found.last, found.smallest) == (65536, 8192, 8192)
    assert (found.halvings, found.doublings, found.later_halvings) == (3, 1, 0)
    assert found.at_minimum == 0 and not found.exhausted


def test_an_exhausted_scale() -> None:
    scale = 65536 * 0.5 ** np.arange(25)
    found = loss_scale(np.maximum(scale, 1))
    assert found.exhausted and found.halvings == 16 and found.later_halvings == 7
    assert found.at_minimum == pytest.approx(9 / 25)
    assert loss_scale(scale).exhausted and loss_scale(scale).smallest < 1e-2
    assert not loss_scale([1.0] * 50).exhausted, "no dynamic scale at all"
    assert math.isnan(loss_scale([]).last) and not loss_scale([math.nan]).exhausted
