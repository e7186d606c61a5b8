from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.data.split import held_out
from runner.errors import DataError

GROUPS = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([0, 1, None])), max_size=80)


@given(GROUPS, st.floats(0.001, 0.999), st.integers(0, 5))
def test_every_group_gives_its_share(groups, fraction, seed):
    held = held_out(groups, fraction, seed)
    for group in set(groups):
        n = groups.count(group)
        count = sum(h for g, h in zip(groups, held, strict=True) if g == group)
        expected = 0 if n == 1 else min(n - 1, max(1, int(fraction * n + 0.5)))
        assert count == expected


def test_a_source_more_changes_nothing_for_the_others():
    one = [("a", None)] * 50
    assert held_out(one, 0.2, 3) == held_out(one + [("b", None)] * 20, 0.2, 3)[:50]
    assert held_out(one, 0.2, 3) != held_out(one, 0.2, 4)


def test_no_fraction_and_bad_fractions():
    assert held_out([("a", 1)] * 3, 0, 1) == [False] * 3
    for bad in (-0.1, 1.0, 2):
        with pytest.raises(DataError, match="from 0 to below 1"):
            held_out([("a", 1)], bad, 1)
