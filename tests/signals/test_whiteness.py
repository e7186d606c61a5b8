"""Whiteness by hand, under the hypothesis and off it."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.whiteness import ljung_box, von_neumann

NAN = math.nan


def test_von_neumann_by_hand() -> None:
    found = von_neumann([1.0, -1.0, 1.0, -1.0])
    assert found.ratio == pytest.approx(12 / 4) and found.n == 4
    sd = 2 * math.sqrt(2 / 15)
    assert (found.low, found.high) == pytest.approx((2 - 1.96 * sd, 2 + 1.96 * sd)) and found.z == pytest.approx(1 / sd)


def test_ljung_box_by_hand() -> None:
    e = np.array([1.0, -1.0, 2.0, 0.0, -2.0, 1.0, -1.0, 0.0])
    r = [float(e[k:] @ e[:-k]) / float(e @ e) for k in (1, 2)]
    q = 8 * 10 * (r[0] ** 2 / 7 + r[1] ** 2 / 6)
    found = ljung_box(e, 2)
    assert found.q == pytest.approx(q) and found.p == pytest.approx(math.exp(-q / 2)), "chi-squared with 2 degrees"
    assert ljung_box(e, 8).lags == 2, "a quarter of the points"


@pytest.mark.parametrize("n", [60, 1000])
@pytest.mark.parametrize("kind", ["gauss", "lognormal", "gaps"])
def test_false_alarms(n: int, kind: str) -> None:
    rng = np.random.default_rng(0)
    outside, p = 0, []
    for _ in range(2000):
        e = rng.lognormal(0, 0.5, n) if kind == "lognormal" else rng.normal(size=n)
        if kind == "gaps":
            e[rng.random(n) < 0.2] = NAN
        found = von_neumann(e)
        outside += not found.low <= found.ratio <= found.high
        p.append(ljung_box(e).p)
    assert outside / 2000 == pytest.approx(0.05, abs=0.02)
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.025)


def test_drift_and_2_cycles_have_their_sides() -> None:
    rng = np.random.default_rng(1)
    low = high = both = 0
    for _ in range(200):
        e = rng.normal(size=300)
        slow, fast = e.copy(), e.copy()
        for i in range(1, 300):
            slow[i] += 0.4 * slow[i - 1]
            fast[i] -= 0.4 * fast[i - 1]
        low += von_neumann(slow).z < -3
        high += von_neumann(fast).z > 3
        both += (ljung_box(slow).p < 1e-3) + (ljung_box(fast).p < 1e-3)
    assert low > 195 and high > 195 and both > 390
    assert von_neumann(slow).z == pytest.approx(-0.4 * math.sqrt(300), rel=0.35)


def test_too_little_to_say() -> None:
    assert math.isnan(von_neumann([1.0, 2.0, 3.0]).ratio) and math.isnan(von_neumann([1.0] * 9).ratio)
    assert math.isnan(von_neumann([1.0, NAN, 2.0, NAN, 3.0, NAN, 4.0]).z), "no neighbours"
    assert math.isnan(von_neumann([]).z) and math.isnan(ljung_box([]).p)
    assert math.isnan(ljung_box([1.0] * 20).p) and math.isnan(ljung_box([1.0, 2.0, 3.0]).p)
    with pytest.raises(ValueError, match="lags"):
        ljung_box([1.0] * 9, 0)


@given(st.lists(st.floats(-9, 9), min_size=8, max_size=40), st.floats(0.1, 10))
def test_scale_changes_nothing(values: list[float], scale: float) -> None:
    if np.std(values) < 1e-3:
        return
    e = np.array(values)
    assert von_neumann(scale * e).ratio == pytest.approx(von_neumann(e).ratio, rel=1e-6)
    assert ljung_box(scale * e).q == pytest.approx(ljung_box(e).q, rel=1e-6, abs=1e-9)
    assert 0 <= ljung_box(e).p <= 1 and 0 <= von_neumann(e).ratio <= 4.5


def test_a_hundred_thousand_points_take_no_time() -> None:
    e = np.random.default_rng(2).normal(size=100_000)
    ljung_box(e[:50])
    start = time.process_time()
    von_neumann(e)
    ljung_box(e)
    assert time.process_time() - start < 0.2
