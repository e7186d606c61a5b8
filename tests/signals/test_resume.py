"""Jumps at known places: by hand, false alarms, detection."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runner.signals.resume import jumps

NAN = math.nan


def test_by_hand() -> None:
    # On a line with a step of 2: nothing jitters.
    y = 5 - 0.1 * np.arange(20) + 2.0 * (np.arange(20) >= 10)
    rate = np.where(np.arange(20) >= 10, 3e-4, 1e-4)
    (found,) = jumps(y, [10], rate)
    assert found.point == 10 and found.jump == pytest.approx(2) and found.z > 1e3
    assert found.rate_factor == pytest.approx(3) and found.freedom == 17
    (none,) = jumps(5 - 0.1 * np.arange(20), [10])
    assert none.jump == pytest.approx(0, abs=1e-9) and abs(none.z) < 1e3 and math.isnan(none.rate_factor)


@pytest.mark.parametrize("kind", ["gauss", "lognormal"])
def test_false_alarms(kind: str) -> None:
    rng = np.random.default_rng(0)
    z = []
    for _ in range(4000):
        e = rng.normal(size=60) if kind == "gauss" else rng.lognormal(0, 0.5, 60) / 0.6
        z.append(jumps(1.15 + 0.35 * np.exp(-np.arange(60) / 15) + 0.16 * e, [30])[0].z)
    # t with 17 degrees: 5 % beyond 2.11, 1 % beyond 2.90.
    z = np.abs(z)
    assert np.mean(z > 2.11) == pytest.approx(0.05, abs=0.02)
    assert np.mean(z > 2.90) == pytest.approx(0.01, abs=0.01)
    assert np.mean(z > 6) < 0.001


def test_a_jump_of_five_standard_deviations_is_found_and_a_spike_beside_it_hides_nothing() -> None:
    rng = np.random.default_rng(1)
    found, spiky = [], []
    for _ in range(300):
        y = rng.normal(size=60)
        y[30:] += 6
        found.append(jumps(y, [30])[0].z)
        y[25] += 100
        spiky.append(jumps(y, [30])[0].z)
    assert np.mean(np.array(found) > 4) > 0.97
    assert np.mean(np.array(spiky) > 2.5) > 0.9


def test_gaps_ends_and_neighbouring_places() -> None:
    y = np.arange(30.0)
    y[14] = NAN
    first, second = jumps(y, [15, 18, 0, 30, -4])
    assert first.point == 15 and second.point == 18
    assert first.freedom == 10 + 3 - 3, "not beyond the next place"
    assert math.isnan(jumps(y, [2])[0].z) and jumps([], [3]) == []
    assert math.isnan(jumps([NAN] * 10, [5])[0].jump)
    with pytest.raises(ValueError, match="points"):
        jumps(y, [3], [1.0])
    with pytest.raises(ValueError, match="width"):
        jumps(y, [3], width=2)


def test_a_rate_that_starts_at_zero_has_no_factor() -> None:
    assert math.isnan(jumps(np.arange(20.0), [10], np.zeros(20))[0].rate_factor)
