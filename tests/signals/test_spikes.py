"""Single spikes and bursts."""

import numpy as np
import pytest

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
