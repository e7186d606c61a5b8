"""kappa by hand, and how often its interval is wrong."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from runner.signals.kappa import kappa, log_kappa_sd

NAN = math.nan


def test_by_hand() -> None:
    found = kappa([1.0, 2.0, 0.0, 1.0], 0.5)
    # Differences 1, -2, 1: 6 / (2 x 3) / 0.25.
    assert found.value == pytest.approx(4.0) and found.n == 3 and found.sd == pytest.approx(1.0)
    assert kappa([1.0, 2.0, 0.0, 1.0], 0.5, window=4).value == pytest.approx(16.0)
    # Median of the differences 1, distances 0, 3, 0: nothing robust moves.
    assert found.robust == 0.0 and math.isnan(found.low)


def test_only_neighbours_count() -> None:
    assert kappa([1.0, 2.0, NAN, 9.0, math.inf, 5.0, 5.0], 1.0).n == 2
    assert kappa([1.0, 2.0, NAN, 9.0, math.inf, 5.0, 5.0], 1.0).value == pytest.approx(0.25)


def test_too_little_to_say() -> None:
    assert math.isnan(kappa([], 1.0).value) and math.isnan(kappa([1.0], 1.0).value)
    for sd in (0.0, NAN, math.inf):
        found = kappa([1.0, 2.0], sd)
        assert math.isnan(found.value) and found.sd == pytest.approx(math.sqrt(0.5))
    flat = kappa([1.0] * 9, 1.0)
    assert flat.value == 0 and math.isnan(flat.low)


def noise(rng: np.random.Generator, sigma: float, n: int) -> tuple[np.ndarray, float, float]:
    """(losses, their standard deviation, their excess kurtosis); sigma 0 = Gaussian."""
    if sigma == 0:
        return rng.normal(size=n), 1.0, 0.0
    w = math.exp(sigma * sigma)
    return rng.lognormal(0, sigma, n), math.sqrt((w - 1) * w), w**4 + 2 * w**3 + 3 * w**2 - 6


@pytest.mark.parametrize("sigma", [0.0, 0.5])
@pytest.mark.parametrize("n", [60, 300, 1000])
def test_the_interval_holds_the_truth(sigma: float, n: int) -> None:
    rng = np.random.default_rng(0)
    draws = [kappa(x, sd) for x, sd, _ in (noise(rng, sigma, n) for _ in range(400))]
    assert np.mean([k.low > 1 for k in draws]) <= 0.075, "false alarm of too much noise"
    assert np.mean([k.high < 1 for k in draws]) <= (0.12 if sigma == 0 else 0.2)
    assert np.mean([k.low <= k.value <= k.high for k in draws]) == 1
    assert np.mean([k.value for k in draws]) == pytest.approx(1, abs=0.05)


def test_twice_the_spread_is_seen() -> None:
    rng = np.random.default_rng(1)
    draws = [kappa(2 * rng.normal(size=60), 1.0) for _ in range(300)]
    assert np.mean([k.low > 1.2 for k in draws]) > 0.99


@pytest.mark.parametrize(("sigma", "n"), [(0.0, 60), (0.0, 1000), (0.5, 1000), (0.5, 4000)])
def test_log_kappa_spreads_as_the_kurtosis_says(sigma: float, n: int) -> None:
    rng = np.random.default_rng(2)
    excess = noise(rng, sigma, 2)[2]
    logs, said = [], []
    for _ in range(800):
        x, sd, _ = noise(rng, sigma, n)
        change = np.diff(x)
        logs.append(math.log(np.mean(change**2) / 2 / sd**2))
        said.append(log_kappa_sd(change, n))
    assert np.std(logs) == pytest.approx(math.sqrt((3 + excess) / n), rel=0.12)
    assert np.median(said) == pytest.approx(np.std(logs), rel=0.25)


def test_a_fixed_band_would_misfire_where_losses_have_tails() -> None:
    # DESIGN 7.2: 4 % outside 0.6 .. 1.5 for Gaussian losses at n = 60, far more for log-normal ones.
    rng = np.random.default_rng(3)

    def outside(draws: list[np.ndarray], sd: float) -> float:
        k = np.array([np.mean(np.diff(x) ** 2) / 2 / sd**2 for x in draws])
        return float(np.mean((k < 0.6) | (k > 1.5)))

    gauss = outside([rng.normal(size=60) for _ in range(2000)], 1.0)
    w = math.exp(0.64)
    assert gauss == pytest.approx(0.04, abs=0.02)
    for rows, share in ((8, 0.15), (1, 0.40)):
        sd = math.sqrt((w - 1) * w / rows)
        assert outside([rng.lognormal(0, 0.8, (60, rows)).mean(1) for _ in range(2000)], sd) == pytest.approx(
            share, abs=0.07
        )


def test_same_seed_same_interval() -> None:
    x = np.random.default_rng(4).normal(size=200)
    assert kappa(x, 1.0) == kappa(x, 1.0) and kappa(x, 1.0).low != kappa(x, 1.0, seed=1).low


def test_a_spike_moves_the_robust_one_hardly() -> None:
    x = np.random.default_rng(5).normal(size=500)
    x[250] = 60
    found = kappa(x, 1.0)
    assert found.value > 5 and found.robust == pytest.approx(1, abs=0.3)


def test_a_hundred_thousand_points_take_no_time() -> None:
    x = np.random.default_rng(6).normal(size=100_000)
    kappa(x[:100], 1.0)
    start = time.process_time()
    kappa(x, 1.0)
    assert time.process_time() - start < 0.2
