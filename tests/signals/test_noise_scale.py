"""The gradient noise scale against Gaussian gradients whose mean and spread are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runner.signals.noise_scale import NoiseScale, noise_scale


def test_by_hand() -> None:
    # b = 2, G = 4: (20 - 8) / (1/2 - 1/8) = 32; (8 x 8 - 2 x 20) / 6 = 4. Check: 4 + 32/2 = 20 and 4 + 32/8 = 8.
    assert noise_scale(20.0, 8.0, 2, 4) == pytest.approx((32.0, 4.0))


def test_one_micro_batch_says_nothing() -> None:
    assert all(math.isnan(x) for x in noise_scale(3.0, 3.0, 4, 1))
    with pytest.raises(ValueError, match="at least 1"):
        noise_scale(3.0, 3.0, 0, 2)


def squares(rng: np.random.Generator, gradient: np.ndarray, sd: float, micro: int, count: int) -> tuple[float, float]:
    """(|g_b|^2 of the first micro-batch, |g|^2 of their mean)."""
    parts = gradient + rng.normal(0, sd / math.sqrt(micro), (count, gradient.size))
    return float((parts[0] ** 2).sum()), float((parts.mean(0) ** 2).sum())


@pytest.mark.parametrize(("micro", "count"), [(1, 8), (4, 2), (4, 16)])
def test_gaussian_gradients(micro: int, count: int) -> None:
    rng = np.random.default_rng(0)
    gradient = np.full(500, 0.1)  # |G|^2 = 5
    sd = 0.3  # S = 500 x 0.09 = 45: B_simple = 9
    scale = NoiseScale(decay=0.999)
    steps = []
    for _ in range(3000):
        steps.append(noise_scale(*squares(rng, gradient, sd, micro, count), micro, count))
        scale.update(*steps[-1])
    assert np.mean(steps, axis=0) == pytest.approx([45.0, 5.0], rel=0.05)
    assert scale.value == pytest.approx(9.0, rel=0.1)


def test_the_default_average_follows_a_change() -> None:
    scale = NoiseScale()
    for _ in range(200):
        scale.update(10.0, 1.0)
    assert scale.value == pytest.approx(10.0)
    for _ in range(200):
        scale.update(40.0, 2.0)
    assert scale.value == pytest.approx(20.0, rel=1e-3)


def test_the_start_is_corrected_and_the_ratio_comes_last() -> None:
    scale = NoiseScale()
    assert scale.value is None and scale.averages is None
    scale.update(8.0, 2.0)
    assert scale.averages == pytest.approx((8.0, 2.0)) and scale.value == pytest.approx(4.0)
    scale.update(8.0, -1.0)
    # (0.95 x 2 - 1) / 1.95 = 0.4615; a mean of the ratios 4 and -8 would be negative.
    assert scale.averages == pytest.approx((8.0, 0.9 / 1.95))
    assert scale.value == pytest.approx(8 * 1.95 / 0.9)


def test_pure_noise_and_broken_steps() -> None:
    scale = NoiseScale()
    scale.update(5.0, -1.0)
    assert scale.value is None
    scale = NoiseScale()
    scale.update(6.0, 3.0)
    for broken in (math.nan, 1.0), (1.0, math.inf):
        scale.update(*broken)
    assert scale.value == pytest.approx(2.0)
