"""Every running statistic against its counterpart on the whole series."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.online import Cusum, DifferenceNoise, Growth, Level, Ring
from runner.signals.smooth import ema

SERIES = st.lists(st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf])), max_size=60)


def fed(statistic: Any, values: Any) -> Any:
    for value in values:
        statistic.update(float(value))
    return statistic


@given(SERIES, st.floats(0.5, 20))
def test_the_level_is_the_moving_average_and_its_lowest_the_least_of_it(values: list[float], half_life: float) -> None:
    level, whole = fed(Level(half_life), values), ema([x for x in values if math.isfinite(x)], half_life)
    assert level.value == pytest.approx(whole[-1] if len(whole) else math.nan, nan_ok=True, abs=1e-6)
    settled = whole[math.ceil(half_life) - 1 :]
    assert level.lowest == pytest.approx(settled.min() if len(settled) else math.inf, abs=1e-6)


@given(SERIES, st.integers(1, 12))
def test_a_ring_holds_the_last_finite_values(values: list[float], size: int) -> None:
    ring = fed(Ring(size), values)
    kept = np.array([x for x in values if math.isfinite(x)][-size:])
    assert ring.values == kept.tolist() and len(ring) <= size
    if len(kept) > 1:
        median = np.median(kept)
        assert ring.median == median and ring.mean == pytest.approx(kept.mean())
        assert ring.spread == pytest.approx(1.4826 * np.median(np.abs(kept - median)))
    else:
        assert math.isnan(ring.spread)


def test_a_ring_of_flags_gives_their_running_share() -> None:
    flags = np.random.default_rng(0).random(200) < 0.3
    assert fed(Ring(32), flags).mean == pytest.approx(flags[-32:].mean())


def test_difference_noise_is_that_of_the_last_differences_and_blind_to_a_trend() -> None:
    rng = np.random.default_rng(1)
    values = np.linspace(3, 1, 400) + 0.2 * rng.standard_normal(400)
    noise = fed(DifferenceNoise(64), values)
    last = np.abs(np.diff(values))[-64:]
    assert noise.sd == pytest.approx(1.4826 * np.median(last) / math.sqrt(2))
    assert 0.12 < noise.sd < 0.28
    jumped = fed(DifferenceNoise(64), np.where(np.arange(400) % 20 == 0, 9.0, values))
    assert jumped.sd < 0.35, "single jumps do not widen it"
    assert math.isnan(fed(DifferenceNoise(64, 8), values[:8]).sd), "7 differences are too few"


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60))
def test_the_cumulative_sum_is_that_of_page(z: list[float]) -> None:
    steps = np.minimum(z, 3.0) - 0.5
    walk = np.concatenate([[0.0], np.cumsum(steps)])
    # S = walk minus its lowest point so far.
    assert fed(Cusum(0.5, 3.0), z).value == pytest.approx(walk[-1] - walk.min(), abs=1e-9)


def test_one_outlier_adds_the_cap_at_most_and_a_nan_as_much() -> None:
    assert fed(Cusum(1.0, 6.0), [1e9]).value == fed(Cusum(1.0, 6.0), [math.nan]).value == 5.0


def test_growth_compares_the_last_values_with_those_before() -> None:
    values = np.exp(0.3 * np.random.default_rng(2).standard_normal(100))
    values[-8:] *= 4
    growth, logs = fed(Growth(), values), np.log(values)
    before, last = logs[-72:-8], logs[-8:]
    assert growth.ratio == pytest.approx(math.exp(np.median(last) - np.median(before)))
    spread = max(1.4826 * np.median(np.abs(before - np.median(before))), 0.35)
    error = 1.25 * spread * math.sqrt(1 / 64 + 1 / 8)
    assert growth.z == pytest.approx((np.median(last) - np.median(before)) / error) and growth.z > 5
    assert growth.slope == pytest.approx(np.polyfit(np.arange(8), last, 1)[0])
    assert growth.above_lowest == pytest.approx(math.exp(np.median(last) - ema(logs, 16)[15:].min()))
    few = fed(Growth(), values[:15])
    assert math.isnan(few.ratio) and math.isnan(few.z) and math.isnan(fed(Growth(), []).slope)
    assert math.isfinite(fed(Growth(), values[:16]).ratio)


def test_growth_passes_over_what_is_no_norm() -> None:
    assert fed(Growth(), [1, 0, -1, math.nan, math.inf, 2]).short.values == pytest.approx([0, math.log(2)])


@pytest.mark.parametrize("make", [lambda: Level(5), lambda: Ring(7), DifferenceNoise, lambda: Cusum(0.5, 4), Growth])
@pytest.mark.parametrize("cut", [0, 1, 5, 90])
def test_a_loaded_state_goes_on_as_if_nothing_had_happened(make: Callable[[], Any], cut: int) -> None:
    values = np.exp(np.random.default_rng(3).standard_normal(120))
    whole = fed(make(), values)
    first, second = fed(make(), values[:cut]), make()
    second.load(json.loads(json.dumps(first.state(), allow_nan=False)))
    assert fed(second, values[cut:]).state() == whole.state()


def test_the_memory_is_constant() -> None:
    def size(statistic: Any) -> int:
        return len(json.dumps(statistic.state()))

    values = np.exp(np.random.default_rng(4).standard_normal(3000))
    for make in (lambda: Level(5), lambda: Ring(7), DifferenceNoise, Growth):
        assert size(fed(make(), values)) < 1.2 * size(fed(make(), values[:300])) + 20
