"""Rises: hand-made curves and simulated noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.level import NO_RISE, above_start, climb, step_up
from runner.signals.trend import noise_of


def test_a_step_is_found_where_it_is():
    rng = np.random.default_rng(0)
    loss = 1.0 + 0.05 * rng.standard_normal(400)
    loss[250:] += 0.5
    found = step_up(loss)
    assert abs(found.at - 250) <= 3
    assert found.low == pytest.approx(1.0, abs=0.02) and found.high == pytest.approx(1.5, abs=0.03)
    assert found.in_sd == pytest.approx(10, rel=0.15) and found.relative == pytest.approx(0.5, abs=0.03)
    assert found.kept == pytest.approx(1.0, abs=0.05) and found.z > 30 and found.unusual > 3


def test_a_rise_that_comes_back_is_not_kept():
    loss = np.ones(200) + 0.01 * np.sin(np.arange(200) * 7.0)
    loss[80:120] += 1.0
    assert step_up(loss).kept < 0.1


def test_a_slow_climb_is_found_by_the_other():
    loss = np.concatenate([np.linspace(2, 1, 100), np.linspace(1, 2, 200)]) + 0.02 * np.sin(np.arange(300) * 5.0)
    found = climb(loss)
    assert found.z > 20 and found.low == pytest.approx(1.0, abs=0.1) and found.kept > 0.9


def test_a_fall_is_no_rise():
    assert step_up(np.linspace(3, 1, 100)).z <= 0 and climb(np.linspace(3, 1, 100)) == NO_RISE


def test_one_spike_is_no_level():
    loss = np.ones(100) + 0.01 * np.sin(np.arange(100) * 7.0)
    loss[50] = 50
    assert step_up(loss).in_sd < 1


def test_sampling_noise_hardly_ever_reaches_the_threshold():
    from runner.causes.thresholds import STEP_SD, STEP_Z

    rng = np.random.default_rng(1)
    base = np.linspace(1.5, 1.15, 60)
    found = [step_up(base * (1 + 0.16 * rng.standard_normal(60))) for _ in range(300)]
    assert sum(r.z >= STEP_Z and r.in_sd >= STEP_SD for r in found) <= 3


def test_above_its_start():
    ratio, error = above_start([1.0, 1.0, 1.0, *[2.0 + 0.02 * (i % 2) for i in range(20)]])
    assert ratio == pytest.approx(np.log(2.01), abs=0.01) and error < 0.05
    assert above_start([1.0, 2.0]) == (0.0, float("inf"))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
def test_short_curves_have_none(n):
    assert step_up(np.arange(n, dtype=float)).z >= 0 or n
    assert climb(np.zeros(n)) == NO_RISE


@given(
    st.lists(st.floats(0.5, 2), min_size=12, max_size=80),
    st.sampled_from([0.125, 8.0, 1024.0]),
    st.sampled_from([step_up, climb]),
)
def test_the_unit_does_not_matter(values, factor, measure):
    a, b = measure(values), measure(np.array(values) * factor)
    assert (b.at, b.z, b.in_sd, b.relative, b.kept) == pytest.approx(
        (a.at, a.z, a.in_sd, a.relative, a.kept), nan_ok=True
    )


def test_the_rise_by_hand():
    # 64 points: of windows of 10 and 16 points, against twice as many before, 16 shows it better.
    loss = 1.0 + 0.05 * (np.arange(64) % 2) + 2.0 * (np.arange(64) >= 40)
    found = step_up(loss)
    assert found.at == 40 and found.relative == pytest.approx(2 / 1.025) and found.kept == pytest.approx(1)
    assert (found.low, found.high) == pytest.approx((1.025, 3.025))
    assert found.in_sd == pytest.approx(2.0 / noise_of(loss)) and found.unusual == float("inf")
    assert found.z == pytest.approx(found.in_sd / np.sqrt(1 / 16 + 1 / 32))


def test_a_curve_that_drifts_all_the_time_is_used_to_it():
    n = np.arange(1000)
    drifting = 2 + 0.5 * np.sin(n * 2 * np.pi / 250) + 0.05 * np.sin(n * 7.0)
    stepping = 2 + 1.0 * (n >= 700) + 0.05 * np.sin(n * 7.0)
    assert step_up(drifting).unusual < 3 < step_up(stepping).unusual


def test_a_constant_curve_rises_nowhere():
    assert step_up(np.ones(100)) == NO_RISE and climb(np.ones(100)) == NO_RISE
    assert above_start(np.ones(100))[0] == 0 and above_start(-np.ones(100)) == (0.0, float("inf"))
