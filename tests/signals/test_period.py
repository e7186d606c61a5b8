"""Periods: by hand, and how often the recommended threshold is wrong."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.period import alarm, detrended, fishers_g, named_periods

CURVES = ("flat", "fall", "steep", "power")


def curve(n: int, kind: str) -> np.ndarray:
    x = np.arange(n) / n
    if kind == "fall":
        return 1.15 + 0.35 * np.exp(-x / 0.25)
    if kind == "steep":
        return 1.2 + 2 * np.exp(-x / 0.02)
    if kind == "power":
        return 1 + 2 * (1 + np.arange(n) / max(1.0, n * 0.005)) ** -0.5
    return np.ones(n)


def noise(rng: np.random.Generator, n: int, kind: str) -> np.ndarray:
    """Mean 0, standard deviation 1."""
    if kind == "gauss":
        return rng.normal(size=n)
    if kind == "lognormal":
        w = math.exp(0.25)
        return (rng.lognormal(0, 0.5, n) - math.exp(0.125)) / math.sqrt((w - 1) * w)
    e = rng.normal(size=n) * math.sqrt(1 - 0.09)
    for i in range(1, n):
        e[i] += 0.3 * e[i - 1]
    return e


def names(n: int) -> dict[str, float]:
    return {f"{p:.3f}": float(p) for p in np.exp(np.linspace(math.log(2.2), math.log(n / 2.6), 10))}


@pytest.mark.slow
@pytest.mark.parametrize(("n", "draws"), [(60, 400), (1000, 150), (3000, 40)])
@pytest.mark.parametrize("kind", ["gauss", "lognormal", "ar"])
def test_noise_has_no_period(n: int, draws: int, kind: str) -> None:
    rng = np.random.default_rng(0)
    found = [
        p.found
        for shape in CURVES
        for _ in range(draws)
        for p in named_periods(detrended(curve(n, shape) * (1 + 0.16 * noise(rng, n, kind))), names(n)).values()
    ]
    assert len(found) == len(CURVES) * draws * 10
    assert np.mean(found) <= 0.002


@pytest.mark.parametrize(("n", "draws"), [(60, 600), (1000, 150), (3000, 60)])
@pytest.mark.parametrize("kind", ["flat", "fall", "steep"])
def test_a_sine_of_one_and_a_half_standard_deviations_is_found(n: int, draws: int, kind: str) -> None:
    rng = np.random.default_rng(1)
    found, amplitudes = [], []
    for _ in range(draws):
        period = rng.uniform(5, 15) if n == 60 else math.exp(rng.uniform(math.log(4), math.log(n / 5)))
        sine = 1.5 * np.sin(2 * np.pi * np.arange(n) / period + rng.uniform(0, 2 * np.pi))
        e = detrended(curve(n, kind) * (1 + 0.16 * (noise(rng, n, "gauss") + sine)))
        here = named_periods(e, {"it": period, "other": 1.7 * period})["it"]
        found.append(here.found)
        amplitudes.append(here.amplitude)
    assert np.mean(found) >= 0.995
    assert np.mean(amplitudes) == pytest.approx(1.45, abs=0.15)


@pytest.mark.parametrize("n", [60, 1000, 3000])
@pytest.mark.parametrize("fault", ["rise", "burst", "doubled", "spikes"])
def test_other_faults_have_no_period(n: int, fault: str) -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(60):
        e = rng.normal(size=n)
        if fault == "rise":
            e[n * 3 // 4 :] += 3
        elif fault == "burst":
            e[n // 3 : n // 3 + 5] += 8
        elif fault == "doubled":
            e[n // 2 :] *= 2
        else:
            e[rng.choice(n, n // 50, replace=False)] += 10
        e = detrended(curve(n, "fall") * (1 + 0.16 * e))
        found += [p.found for p in named_periods(e, names(n)).values()]
    assert np.mean(found) <= 0.004


def test_three_stairs_do_have_one() -> None:
    rng = np.random.default_rng(3)
    n = 900
    e = detrended(3 - 0.5 * np.floor(np.arange(n) / 300) + 0.1 * rng.normal(size=n))
    assert named_periods(e, {"epoch": 300, "half": 150.7})["epoch"].found


def test_strokes_need_their_harmonics() -> None:
    rng = np.random.default_rng(4)
    one = three = 0
    for _ in range(100):
        e = rng.normal(size=400)
        e[::20] += 3
        one += named_periods(e, {"save": 20})["save"].found
        three += named_periods(e, {"save": 20}, harmonics=3)["save"].found
    assert three > one + 40
    for harmonics in (2, 3):
        p = [
            p.p
            for _ in range(300)
            for p in named_periods(rng.normal(size=400), names(400), harmonics=harmonics).values()
        ]
        assert np.mean(np.array(p) < 0.01) <= 0.015


def test_the_p_of_white_noise_against_the_whole_variance() -> None:
    rng = np.random.default_rng(5)
    p = [p.p for _ in range(400) for p in named_periods(rng.normal(size=300), names(300), white=True).values()]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.015)


def test_which_periods_are_tested_and_their_order() -> None:
    rng = np.random.default_rng(6)
    t = np.arange(500)
    e = np.sin(2 * np.pi * t / 12.5) + 0.3 * rng.normal(size=500)
    found = named_periods(
        e, {"none": 2.0, "short": 1.0, "long": 201.0, "bad": math.nan, "zero": 0.0, "quiet": 40.0, "epoch": 12.5}
    )
    assert list(found) == ["epoch", "quiet"]
    epoch = found["epoch"]
    assert epoch.amplitude == pytest.approx(1 / 0.3, rel=0.1) and epoch.cycles == pytest.approx(40)
    assert epoch.adjusted == pytest.approx(2 * epoch.p) and not found["quiet"].found
    in_steps = named_periods(e, {"epoch": 125.0}, steps_per_point=10)
    assert in_steps["epoch"].period == 12.5 and in_steps["epoch"].power == pytest.approx(epoch.power)


def test_gaps_cost_little() -> None:
    rng = np.random.default_rng(7)
    e = np.sin(2 * np.pi * np.arange(300) / 10) + rng.normal(size=300)
    e[rng.random(300) < 0.2] = math.nan
    e[7] = math.inf
    found = named_periods(detrended(e), {"it": 10.0, "other": 17.3})
    assert found["it"].found and not found["other"].found
    assert found["it"].amplitude == pytest.approx(1, abs=0.25)


def test_nothing_to_test() -> None:
    assert named_periods([], {"a": 5.0}) == {}
    assert named_periods(np.zeros(100), {"a": 5.0}) == {}
    assert named_periods([math.nan] * 50, {"a": 5.0}) == {}
    assert named_periods(detrended(np.full(100, 1.3)), {"a": 5.0}) == {}


def test_the_threshold_falls_with_the_length() -> None:
    assert alarm(30) == alarm(60) == pytest.approx(5e-4) and alarm(120) == pytest.approx(5e-4 / 8)
    assert alarm(3000) == 1e-6 and alarm(0) == alarm(60)


@pytest.mark.parametrize("n", [60, 1000])
@pytest.mark.parametrize("cycles", [4.0, 4.5, 6.25])
@pytest.mark.parametrize("phase", [0.0, 0.8, 1.6, 2.4])
def test_a_trend_does_not_eat_a_sine(n: int, cycles: float, phase: float) -> None:
    sine = np.sin(2 * np.pi * cycles * np.arange(n) / n + phase)
    assert np.var(detrended(sine)) > 0.8 * np.var(sine)


@pytest.mark.parametrize("kind", CURVES)
@pytest.mark.parametrize("n", [60, 1000, 5000])
def test_a_trend_goes(kind: str, n: int) -> None:
    e = detrended(curve(n, kind))
    assert np.sqrt(np.mean(e**2)) <= 0.01 * np.ptp(curve(n, kind))


def test_a_spike_does_not_bend_the_trend() -> None:
    y = curve(60, "fall") + 0.01 * np.random.default_rng(8).normal(size=60)
    spiky = y.copy()
    spiky[30] = 50
    e = detrended(spiky)
    assert e[30] > 48 and np.abs(np.delete(e, 30)).max() < 0.1


def test_what_is_not_finite_stays_unknown() -> None:
    e = detrended([1.0, math.nan, 3.0, math.inf])
    assert np.isnan(e[[1, 3]]).all() and e[[0, 2]] == pytest.approx([-1, 1])
    assert detrended([]).shape == (0,)


def test_fishers_g_by_hand() -> None:
    t = np.arange(12)
    found = fishers_g(np.sin(2 * np.pi * t / 4))
    assert found.g == pytest.approx(1) and found.p == pytest.approx(0, abs=1e-9) and found.period == 4
    # m = 2 frequencies: P(g > x) = 2 (1 - x) for x in 1/2 .. 1.
    x = np.array([1.0, 0.2, -0.4, 0.9, -0.3, 0.1])
    found = fishers_g(x)
    assert found.p == pytest.approx(2 * (1 - found.g))
    assert math.isnan(fishers_g([1.0, 2.0]).g) and math.isnan(fishers_g(np.ones(50)).g)


@pytest.mark.parametrize("n", [60, 61, 3000])
def test_fishers_g_is_exact_in_white_noise(n: int) -> None:
    rng = np.random.default_rng(9)
    p = np.array([fishers_g(rng.normal(size=n)).p for _ in range(1500)])
    for level in (0.05, 0.5):
        assert np.mean(p < level) == pytest.approx(level, abs=0.04)
    period = [fishers_g(1.5 * np.sin(2 * np.pi * np.arange(n) * 5 / n) + rng.normal(size=n)) for _ in range(50)]
    assert all(f.p < 1e-3 and f.period == n / 5 for f in period)


@given(st.integers(12, 80), st.floats(-100, 100), st.floats(0.01, 100))
def test_level_and_scale_change_nothing(n: int, level: float, scale: float) -> None:
    e = np.random.default_rng(n).normal(size=n)
    one, other = named_periods(e, {"a": 4.4}), named_periods(level + scale * e, {"a": 4.4})
    assert other["a"].p == pytest.approx(one["a"].p, rel=1e-3, abs=1e-9)


def test_a_hundred_thousand_points_take_no_time() -> None:
    loss = curve(100_000, "fall") + np.random.default_rng(10).normal(size=100_000)
    named_periods(detrended(loss[:100]), {"a": 5.0})
    start = time.process_time()
    e = detrended(loss)
    named_periods(e, {"epoch": 3333.3, "save": 500.0})
    fishers_g(e)
    assert time.process_time() - start < 0.3
