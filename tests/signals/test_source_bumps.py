"""Sources in blocks and sources well mixed, with known levels."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from runner.signals.source_bumps import source_bumps


def run(rng: np.random.Generator, n: int, blocked: bool, gap: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(loss, tokens) of a run on two sources, `b` harder than `a` by `gap`."""
    level = 0.5 + 0.5 * np.sign(np.sin(2 * np.pi * np.arange(n) / (n / 6))) if blocked else np.full(n, 0.5)
    rows = rng.binomial(8, np.clip(level, 0.02, 0.98))
    share = rows / 8
    loss = 1.15 + 0.35 * np.exp(-np.arange(n) / (n / 4)) + gap * share + 0.1 * rng.normal(size=n)
    return loss, {"a": 100.0 * (8 - rows), "b": 100.0 * rows}


def test_blocks_are_seen_and_their_levels() -> None:
    rng = np.random.default_rng(0)
    loss, tokens = run(rng, 600, True, 0.4)
    found = source_bumps(loss, tokens)
    assert found.r_squared > 0.9 and found.p < 1e-10
    assert found.effects["b"] - found.effects["a"] == pytest.approx(0.4, rel=0.1)
    assert found.order < 0.3 and found.order_z < -10 and found.order_source in ("a", "b")
    assert found.swing == pytest.approx(0.19, abs=0.04) and found.blocks == 60


@pytest.mark.parametrize(("n", "gap"), [(60, 0.0), (600, 0.0), (3000, 0.0)])
def test_false_alarms(n: int, gap: float) -> None:
    rng = np.random.default_rng(1)
    for blocked in (False, True):
        p = np.array([source_bumps(*run(rng, n, blocked, gap)).p for _ in range(500)])
        assert np.mean(p < 0.05) == pytest.approx(0.05, abs=0.03)
        assert np.mean(p < 0.001) <= 0.006


def test_a_well_mixed_order_is_no_bump() -> None:
    rng = np.random.default_rng(2)
    z = np.array([source_bumps(*run(rng, 300, False, 0.4)).order_z for _ in range(300)])
    assert np.mean(z < -4) <= 0.004 and abs(np.median(z)) < 0.3


def test_three_sources_in_a_row() -> None:
    rng = np.random.default_rng(3)
    n = 900
    which = np.repeat(np.tile([0, 1, 2], 4), 75)
    level = np.array([0.0, 0.5, -0.3])
    loss = 2 + level[which] + 0.1 * rng.normal(size=n)
    found = source_bumps(loss, {name: 100.0 * (which == i) for i, name in enumerate("xyz")} | {"none": np.zeros(n)})
    assert set(found.effects) == {"x", "y", "z"} and found.p < 1e-10
    assert found.effects["y"] - found.effects["z"] == pytest.approx(0.8, rel=0.1)
    assert sum(found.effects.values()) == pytest.approx(0, abs=1e-6), "equal shares: relative to the mixture"


def test_too_little_to_say() -> None:
    rng = np.random.default_rng(4)
    loss, tokens = run(rng, 600, True, 0.4)
    assert math.isnan(source_bumps(loss, {"a": tokens["a"]}).p)
    assert source_bumps(loss[:30], {k: v[:30] for k, v in tokens.items()}).blocks == 0
    assert source_bumps([], {}).effects == {}
    still = source_bumps(loss, {"a": np.full(600, 3.0), "b": np.full(600, 1.0)})
    assert math.isnan(still.r_squared)
    with pytest.raises(ValueError, match="points"):
        source_bumps(loss[:-1], tokens)


def test_what_is_not_known_is_left_out() -> None:
    rng = np.random.default_rng(5)
    loss, tokens = run(rng, 600, True, 0.4)
    loss[::7] = math.nan
    tokens["a"][3] = math.nan
    assert source_bumps(loss, tokens).r_squared > 0.85


def test_a_hundred_thousand_points_take_no_time() -> None:
    loss, tokens = run(np.random.default_rng(6), 100_000, True, 0.4)
    source_bumps(loss[:600], {k: v[:600] for k, v in tokens.items()})
    start = time.process_time()
    source_bumps(loss, tokens)
    assert time.process_time() - start < 0.2
