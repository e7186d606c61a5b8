"""Wrapping and cutting by terminal columns."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from runner.report.columns import CLOSING, OPENING, clean, cut, wrap, wrap_shell

WORDS = st.text(alphabet="ab c，。（）学习率·1", max_size=120)


@given(WORDS, st.integers(4, 60))
def test_wrap_keeps_every_letter_within_the_room(text: str, room: int) -> None:
    rows = wrap(clean(text), room)
    assert "".join(rows).replace(" ", "") == text.replace(" ", "")
    assert all(0 < cell_len(r) <= room and r == r.strip() for r in rows)


def test_wrap_at_words() -> None:
    assert wrap("the learning rate is too high", 12) == ["the learning", "rate is too", "high"]
    assert wrap("abcdefgh", 3) == ["abc", "def", "gh"]
    assert wrap("", 10) == []


def test_chinese_takes_two_columns_and_breaks_anywhere_but_before_a_comma() -> None:
    assert wrap("学习率太高，降低", 10) == ["学习率太", "高，降低"]
    assert wrap("用 bf16（范围大）", 8) == ["用 bf16", "（范围", "大）"]
    assert wrap("loss 是 NaN", 7) == ["loss 是", "NaN"]


@given(WORDS)
def test_no_line_starts_with_closing_punctuation_after_a_word(text: str) -> None:
    for before, row in zip(rows := wrap(clean(text), 40), rows[1:], strict=False):
        if cell_len(before) < 30 and row[0] in CLOSING:
            assert before[-1] in OPENING + CLOSING or " " in text or len(row) > 10


@given(WORDS, st.integers(4, 60))
def test_cut(text: str, room: int) -> None:
    shown = cut(text, room)
    assert cell_len(shown) <= room
    assert shown == text if cell_len(text) <= room else shown.endswith("…") and text.startswith(shown[:-1])


def test_cut_at_a_word_and_without_a_dangling_comma() -> None:
    assert cut("one two three", 9) == "one two…"
    assert cut("one two, three", 10) == "one two…"
    assert cut("学习率太高", 7) == "学习率…"


@pytest.mark.parametrize("room", [40, 50, 70, 200])
def test_a_shell_joins_the_lines_again(room: int) -> None:
    command = "python -m runner +exp=a 'name=two words' optim.learning_rate=1e-5 dataset.path='/a b/c d.jsonl' seed=3"
    rows = wrap_shell(command, room)
    assert all(cell_len(r) <= room for r in rows)
    assert shlex.split("\n".join(rows).replace("\\\n", "")) == shlex.split(command)


def test_a_word_too_long_for_a_line_is_broken() -> None:
    assert wrap_shell("python " + "x" * 30, 20) == ["python", "x" * 20, "x" * 10]


def test_clean() -> None:
    assert clean(" a\n\tb\x1b[31m   c ") == "a  b[31m   c"
