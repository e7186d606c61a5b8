"""Single spikes and bursts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.signals.spikes import bursts, heights, spikes


def quiet(n=200, seed=0):
    return 1.0 + 0.05 * np.random.default_rng(seed).standard_normal(n)


def test_one_spike_is_found_with_its_height():
    loss = quiet()
    loss[120] = 3.0
    found = spikes(loss, 8, 1.8)
    assert found.at.tolist() == [120] and found.ratio[0] == pytest.approx(3, abs=0.2) and found.z[0] > 20


def test_a_steep_start_is_no_spike():
    loss = 1 + 10 * np.exp(-np.arange(100) / 5) + 0.02 * np.sin(np.arange(100) * 7.0)
    assert len(spikes(loss, 8, 1.8).at) == 0 and len(bursts(loss, 4)) == 0


def test_the_tail_of_single_rows_is_no_spike():
    loss = np.exp(0.8 * np.random.default_rng(1).standard_normal(2000))
    assert len(spikes(loss, 10, 2).at) <= 1


@pytest.mark.parametrize("at", [10, 30, 54])
def test_a_burst_is_found_once(at):
    loss = quiet(60)
    loss[at : at + 5] += 0.4
    found = bursts(loss, 3.7)
    assert len(found) == 1 and abs(found[0] - at) <= 3


def test_a_level_that_stays_is_no_burst():
    loss = quiet()
    loss[100:] += 0.5
    assert len(bursts(loss, 3.7)) == 0


def test_one_among_few():
    assert spikes([0.7, 0.8, 4.3, 0.75, 0.7, 0.8], 10, 2).at.tolist() == [2]
    assert len(spikes([0.7, 0.8, 4.3, 0.1, 0.7, 2.8], 10, 2).at) == 0
    assert len(spikes([], 10, 2).at) == 0 and len(bursts([1.0], 4)) == 0


def test_heights_have_one_entry_per_point():
    z, ratio = heights(quiet(50))
    assert z.shape == ratio.shape == (50,)


def test_the_settling_time_is_left_out():
    loss = quiet()
    loss[5] = loss[150] = 3.0
    assert spikes(loss, 8, 1.8).at.tolist() == [150]


def test_a_spike_at_the_very_end_does_not_hide_itself():
    loss = quiet()
    loss[-1] = 3.0
    assert spikes(loss, 8, 1.8).at.tolist() == [199]
    loss = quiet(60)
    loss[-5:] += 0.4
    assert len(bursts(loss, 3.7)) == 1


def test_two_bursts_are_two():
    loss = quiet()
    loss[60:65] += 0.5
    loss[140:145] += 0.5
    assert [abs(int(a) - b) <= 3 for a, b in zip(bursts(loss, 3.7), (60, 140), strict=True)] == [True, True]


def test_independent_noise_has_hardly_any_bursts():
    from runner.causes.thresholds import BURST_Z, SPIKE_RATIO, SPIKE_Z

    rng = np.random.default_rng(2)
    found = [1 + 0.16 * rng.standard_normal(60) for _ in range(300)]
    assert sum(bool(len(bursts(x, BURST_Z))) for x in found) <= 3
    assert not any(len(spikes(x, SPIKE_Z, SPIKE_RATIO).at) for x in found)


@given(st.integers(0, 1000), st.integers(20, 120), st.sampled_from([2.0, 8.0, 1024.0]))
def test_the_unit_does_not_matter_where_the_noise_is_above_the_floor(seed, n, factor):
    """Losses of more than 0.05 nats of noise; below, `least` is absolute on purpose."""
    loss = 2 + 0.2 * np.random.default_rng(seed).standard_normal(n)
    loss[n // 2] = 7.0
    a, b = spikes(loss, 10, 2), spikes(loss * factor, 10, 2)
    assert a.at.tolist() == b.at.tolist() and a.z == pytest.approx(b.z) and a.ratio == pytest.approx(b.ratio)
    assert bursts(loss, 3.7).tolist() == bursts(loss * factor, 3.7).tolist()


def test_near_zero_everything_is_large_and_nothing_is_a_spike():
    loss = 1e-4 * (1 + 0.05 * np.random.default_rng(0).standard_normal(200))
    loss[120] = 3e-3
    assert len(spikes(loss, 10, 2).at) == 0 and len(spikes(loss, 10, 2, least=0.0).at) == 1


@pytest.mark.parametrize("n", [0, 1, 4, 5, 8, 9, 13, 14, 40])
def test_constant_curves_have_none(n):
    assert len(spikes(np.ones(n), 10, 2).at) == 0 and len(bursts(np.ones(n), 3.7)) == 0
    assert len(spikes(np.zeros(n), 10, 2).at) == 0 and len(bursts(np.zeros(n), 3.7)) == 0
