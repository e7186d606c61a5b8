"""False alarms on sampling noise, and detection of faults planted in it, through the whole verdict."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from runner.diagnosis.judge import diagnose
from tests.diagnosis.traces import level, noise, trace

LENGTHS, VARIATIONS = (60, 1000, 3000), (0.1, 0.16, 0.25)
Plant = Callable[[np.random.Generator, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], object]


def nan(rng, loss, base, sd):
    loss[rng.integers(len(loss) // 4, len(loss))] = np.nan
    return trace(loss)


def rise(rng, loss, base, sd):
    quarter = len(loss) // 4
    loss[-quarter:] += 3 * sd[-quarter:]
    return trace(loss)


def burst(rng, loss, base, sd):
    at = int(rng.integers(len(loss) // 10, len(loss) - 6))
    loss[at : at + 5] = base[at : at + 5] + 8 * sd[at : at + 5]
    return trace(loss)


def sine(rng, loss, base, sd):
    n = len(loss)
    period = float(rng.uniform(4, n / 5))
    steps = np.arange(n)
    loss += 1.5 * sd * np.sin(2 * np.pi * steps / period + rng.uniform(0, 2 * np.pi))
    return trace(loss, epochs=(steps + 1) / period, steps_per_epoch=period)


def louder(rng, loss, base, sd):
    half = len(loss) // 2
    loss[half:] = base[half:] + 2 * (loss[half:] - base[half:])
    return trace(loss)


FAULTS: dict[str, Plant] = {"nan": nan, "rise": rise, "burst": burst, "sine": sine, "louder": louder}


def rates(draws: int, lengths: tuple[int, ...], kinds: tuple[str, ...], seed: int) -> dict[str, float]:
    """Share of curves called at risk or broken: `none` without a fault, else by fault, over all cells."""
    rng = np.random.default_rng(seed)
    called: dict[str, list[bool]] = {}
    for n in lengths:
        for cv in VARIATIONS:
            for kind in kinds:
                for draw in range(draws):
                    base = level(n, "straight" if draw % 2 else "steep")
                    sd = cv * base
                    loss = base + sd * noise(rng, n, cv, kind)
                    plants: dict[str, Plant] = {"none": lambda rng, x, b, s: trace(x)} | FAULTS
                    if n < 1000:
                        del plants["louder"]
                    for name, plant in plants.items():
                        verdict = diagnose(plant(rng, loss.copy(), base, sd))
                        called.setdefault(name, []).append(verdict.stability in ("at_risk", "broken"))
    return {name: float(np.mean(c)) for name, c in called.items()}


def test_few_draws_of_every_cell() -> None:
    found = rates(4, (60, 1000), ("gaussian",), seed=3)
    assert found.pop("none") == 0
    assert min(found.values()) >= 0.95, found


@pytest.mark.slow
@pytest.mark.parametrize(("n", "draws"), [(60, 300), (1000, 300), (3000, 60)])
def test_false_alarms_and_detection(n: int, draws: int) -> None:
    found = rates(draws, (n,), ("gaussian",), seed=n)
    print(n, found)
    assert found.pop("none") <= 0.01
    assert min(found.values()) >= 0.99, found


@pytest.mark.slow
def test_skewed_noise_alarms_no_more() -> None:
    found = rates(60, (60, 1000), ("lognormal",), seed=8)
    assert found.pop("none") <= 0.01
    assert min(found.values()) >= 0.97, found
