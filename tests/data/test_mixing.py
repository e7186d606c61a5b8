from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.data.mixing import check_limits, check_weights, drop_duplicates, interleave, limit_of, sample_rows
from runner.data.report import DataReport, SourceReport
from runner.data.rows import Labelled, Row
from runner.errors import DataError


def rows(source, *texts):
    return [Row(f"{source}/{i}", source, Labelled(t, "x")) for i, t in enumerate(texts)]


def test_duplicates_go_within_and_across_sources():
    report = DataReport(sources={"a": SourceReport("a"), "b": SourceReport("b")})
    out = drop_duplicates({"a": rows("a", "1", "2", "1"), "b": rows("b", "2", "3")}, report)
    assert [r.row_id for rs in out.values() for r in rs] == ["a/0", "a/1", "b/1"]
    assert (report.sources["a"].duplicates, report.sources["a"].first_duplicate) == (1, "a/2")
    assert (report.sources["b"].duplicates, report.sources["b"].first_duplicate) == (1, "b/0")


def test_the_validation_source_keeps_its_rows():
    report = DataReport(sources={"a": SourceReport("a"), "held": SourceReport("held")})
    out = drop_duplicates({"a": rows("a", "1", "2"), "held": rows("held", "2")}, report, first="held")
    assert list(out) == ["a", "held"]
    assert [r.row_id for rs in out.values() for r in rs] == ["a/0", "held/0"]


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 5))
def test_a_sample_is_ordered_and_nested(n, limit, seed):
    small = sample_rows(list(range(n)), limit, seed, "s")
    large = sample_rows(list(range(n)), limit + 1, seed, "s")
    assert len(small) == min(n, limit)
    assert small == sorted(set(small))
    assert set(small) <= set(large)


def test_limits():
    assert limit_of("a", None, None) is None
    assert limit_of("a", None, 5) == 5
    assert limit_of("a", 3, 5) == 3
    assert limit_of("a", None, {"a": 2}) == 2
    assert limit_of("b", None, {"a": 2}) is None
    with pytest.raises(DataError, match="at least 1"):
        limit_of("a", 0, None)
    with pytest.raises(DataError, match="'c' is no source; there are a, b"):
        check_limits({"c": 1}, ["a", "b"])


def test_weights():
    assert check_weights(None, ["a", "b"]) == {"a": 0.5, "b": 0.5}
    assert check_weights({"a": 1, "b": 3}, ["a", "b"]) == {"a": 0.25, "b": 0.75}
    with pytest.raises(DataError, match="'c' is no source"):
        check_weights({"a": 1, "c": 1}, ["a"])
    with pytest.raises(DataError, match="'b' has no weight"):
        check_weights({"a": 1}, ["a", "b"])
    for bad in ({"a": -1.0, "b": 1.0}, {"a": 0.0, "b": 0.0}, {"a": float("nan"), "b": 1.0}):
        with pytest.raises(DataError, match="numbers from 0 up"):
            check_weights(bad, ["a", "b"])


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.05, 0.95), st.integers(0, 9))
def test_interleave_ends_when_a_source_is_exhausted(a, b, weight, seed):
    drawn = interleave({"a": a, "b": b}, {"a": weight, "b": 1 - weight}, seed)
    assert len(set(drawn)) == len(drawn)
    counts = {n: sum(1 for s, _ in drawn if s == n) for n in "ab"}
    last = drawn[-1][0]
    assert counts[last] == {"a": a, "b": b}[last]
    other = "b" if last == "a" else "a"
    assert counts[other] < {"a": a, "b": b}[other]


def test_interleave_follows_its_weights():
    drawn = interleave({"a": 3000, "b": 3000}, {"a": 0.75, "b": 0.25}, 1)
    share = sum(1 for s, _ in drawn if s == "a") / len(drawn)
    assert abs(share - 0.75) < 0.03  # three standard errors at 4,000 draws are 0.02
    assert interleave({"a": 5, "b": 0}, {"a": 1.0, "b": 0.0}, 1) == interleave(
        {"a": 5, "b": 9}, {"a": 1.0, "b": 0.0}, 1
    )
