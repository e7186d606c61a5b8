"""The pretraining text: reproducible, in both languages, and without a single row of the demo sets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from pretrain_corpus import documents

STEM = 5
"""Texts of at least so many characters are looked for anywhere, shorter ones and single words as whole lines."""


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    return documents()


def _texts(rows: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    for name in ("demo_en", "demo_zh"):
        for row in rows[name]:
            yield from (row["instruction"], row["input"], row["output"])
    for row in rows["demo_chat"]:
        yield from (turn["value"] for turn in row["conversations"])
        yield row.get("system", "")
    for row in rows["demo_messages"]:
        yield from (message["content"] for message in row["messages"])
    for row in rows["sentiment_zh"]:
        yield row["text"]


def test_documents_are_distinct_and_reproducible(corpus: list[str]) -> None:
    assert len(set(corpus)) == len(corpus) == 26_000
    assert documents(count=500) == corpus[:500]
    assert documents(seed=8, count=500) != corpus[:500]


def test_both_languages_and_the_turn_markers_occur(corpus: list[str]) -> None:
    chinese = sum(any("\u4e00" <= letter <= "\u9fff" for letter in text) for text in corpus)
    assert 0.4 < chinese / len(corpus) < 0.6
    assert 0.02 < sum("<|im_start|>" in text for text in corpus) / len(corpus) < 0.3


def test_no_demo_text_occurs_in_the_corpus(corpus: list[str], rows: dict[str, list[dict[str, Any]]]) -> None:
    texts = {text for text in _texts(rows) if text}
    lines = {line for document in corpus for line in document.split("\n")}
    assert not texts & lines
    by_stem: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        if len(text) >= STEM and not (text.isascii() and text.isalpha()):
            by_stem[text[:STEM]].append(text)
    whole = "\x00".join(corpus)
    starts = ((i, by_stem.get(whole[i : i + STEM], ())) for i in range(len(whole)))
    shared = {text for i, candidates in starts for text in candidates if whole.startswith(text, i)}
    assert not shared
