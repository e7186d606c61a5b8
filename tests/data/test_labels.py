from __future__ import annotations

import pytest

from runner.data.labels import label_names
from runner.data.rows import Labelled, Row
from runner.errors import DataError


def rows(*labels):
    return [Row(f"s/{i}", "s", Labelled(f"t{i}", label)) for i, label in enumerate(labels)]


def test_from_the_data_sorted_and_numbers_by_value():
    assert label_names(rows("b", "a", "b"), None) == ["a", "b"]
    assert label_names(rows("10", "9", "-1"), None) == ["-1", "9", "10"]


def test_configured_order_stays():
    assert label_names(rows("消极"), ["积极", "消极", "中立"]) == ["积极", "消极", "中立"]


def test_an_unknown_label_names_row_and_known_ones():
    with pytest.raises(DataError, match=r"row s/1: unknown label '积及'.*积极, 消极.*Did you mean '积极'"):
        label_names(rows("积极", "积及"), ["积极", "消极"])


def test_too_few_or_twice():
    with pytest.raises(DataError, match="All rows have the label 'a'"):
        label_names(rows("a", "a"), None)
    with pytest.raises(DataError, match="at least two"):
        label_names(rows("a"), ["a"])
    with pytest.raises(DataError, match="'a' twice"):
        label_names(rows("a"), ["a", "a"])
