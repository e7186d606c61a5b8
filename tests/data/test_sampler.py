from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.data.sampler import KINDS, EpochSampler, epoch_order

SOURCES = st.lists(st.sampled_from("abcd"), max_size=120)


@given(st.sampled_from(KINDS), SOURCES, st.integers(0, 2**32), st.integers(0, 50), st.integers(1, 20))
def test_every_row_once_per_epoch_and_a_pure_function(kind, sources, seed, epoch, batch):
    lengths = [(7 * i) % 31 + 1 for i in range(len(sources))]
    order = epoch_order(kind, seed, epoch, sources, lengths, batch)
    assert sorted(order) == list(range(len(sources)))
    assert all(type(i) is int for i in order)
    assert order == epoch_order(kind, seed, epoch, sources, lengths, batch)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(1, 20), st.integers(0, 99))
@settings(max_examples=200)
def test_stratified_blocks_hold_each_source_in_proportion(sizes, batch, seed):
    sources = [str(s) for s, n in enumerate(sizes) for _ in range(n)]
    order = epoch_order("stratified", seed, 0, sources, [1] * len(sources), batch)
    full = len(sources) // batch
    for at in range(0, len(order), batch):
        block = Counter(sources[i] for i in order[at : at + batch])
        size = sum(block.values())
        for s, n in enumerate(sizes):
            error = abs(block[str(s)] - size * n / len(sources))
            assert error < 1 + 1 / max(1, full) + 1e-9


def test_stratified_by_hand():
    sources = ["en"] * 6 + ["zh"] * 2
    order = epoch_order("stratified", 0, 0, sources, [1] * 8, 4)
    assert [Counter(sources[i] for i in order[k : k + 4]) for k in (0, 4)] == [{"en": 3, "zh": 1}] * 2


@given(st.lists(st.integers(1, 999), min_size=1, max_size=300), st.integers(1, 8), st.integers(0, 9))
def test_length_grouped_starts_with_the_longest_full_batch(lengths, batch, seed):
    order = epoch_order("length_grouped", seed, 1, ["s"] * len(lengths), lengths, batch)
    blocks = [[lengths[i] for i in order[k : k + batch]] for k in range(0, len(order), batch)]
    full = [max(b) for b in blocks if len(b) == batch]
    if full:
        assert max(blocks[0]) == max(full)
    assert all(len(b) == batch for b in blocks[:-1])


def test_length_grouped_pads_less_than_random():
    lengths = [int(n) for n in np.random.default_rng(0).lognormal(4, 1, 2000)]

    def padding(kind):
        order = epoch_order(kind, 3, 0, ["s"] * 2000, lengths, 8)
        blocks = [[lengths[i] for i in order[k : k + 8]] for k in range(0, 2000, 8)]
        return sum(max(b) * len(b) - sum(b) for b in blocks)

    assert padding("length_grouped") < 0.1 * padding("random")


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_and_seeds_differ(kind):
    sources, lengths = ["a", "b"] * 40, list(range(80))
    orders = {tuple(epoch_order(kind, seed, epoch, sources, lengths, 8)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4


def test_the_order_is_pinned():
    """A change here would break resuming runs that an older version started."""
    assert epoch_order("random", 42, 0, ["a"] * 6, [1] * 6, 2) == [3, 2, 5, 4, 1, 0]
    assert epoch_order("stratified", 42, 0, ["a", "b"] * 3, [1] * 6, 2) == [2, 3, 5, 4, 0, 1]
    assert epoch_order("length_grouped", 42, 0, ["a"] * 6, [5, 1, 6, 2, 9, 3], 2) == [4, 2, 3, 1, 0, 5]


def test_epoch_sampler():
    sampler = EpochSampler("stratified", 5, ["a", "b"] * 10, [1] * 20, 4)
    first = list(sampler)
    assert len(sampler) == 20 and list(sampler) == first
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first and second == epoch_order("stratified", 5, 1, ["a", "b"] * 10, [1] * 20, 4)
    sampler.set_epoch(0)
    assert list(sampler) == first


@pytest.mark.parametrize(
    ("kind", "lengths", "batch", "message"),
    [("sorted", [1], 1, "random, stratified"), ("random", [1, 2], 1, "1 sources but 2"), ("random", [1], 0, "below 1")],
)
def test_wrong_arguments(kind, lengths, batch, message):
    with pytest.raises(ValueError, match=message):
        epoch_order(kind, 0, 0, ["a"], lengths, batch)
