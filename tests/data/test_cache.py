from __future__ import annotations

import pytest

from runner.data import cache
from runner.data.cache import cache_key, cached, tokenizer_key
from runner.data.rows import Labelled, Row
from runner.data.tokenise import Settings, Tokenised
from tests.data.kit import QWEN25, make_tokenizer

ROWS = Tokenised([0, 2], [[1, 2], [3]], [[-100, 2], [-100]], [2], [(1, "empty")], [(0, "made text")])
SETTINGS = Settings("sft", "answers", 10, "drop", None)


def never():
    raise AssertionError("computed although cached")


def test_round_trip(tmp_path):
    notes = []
    assert cached("k", lambda: ROWS, notes.append, tmp_path) is ROWS
    assert cached("k", never, notes.append, tmp_path) == ROWS
    assert notes == []
    assert [p.name for p in (tmp_path / "tokenised").iterdir()] == ["k.arrow"]


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"", lambda b: b[:200] + bytes([b[200] ^ 1]) + b[201:]])
def test_a_damaged_file_is_rebuilt_and_told(tmp_path, damage):
    notes = []
    cached("k", lambda: ROWS, notes.append, tmp_path)
    file = tmp_path / "tokenised" / "k.arrow"
    file.write_bytes(damage(file.read_bytes()))
    assert cached("k", lambda: ROWS, notes.append, tmp_path) == ROWS
    assert len(notes) == 1 and "rebuilt" in notes[0]
    assert cached("k", never, notes.append, tmp_path) == ROWS


def test_an_unwritable_folder_costs_only_time(tmp_path):
    (tmp_path / "file").write_text("")
    notes = []
    assert cached("k", lambda: ROWS, notes.append, tmp_path / "file") is ROWS
    assert any("cannot be written" in n and "RUNNER_CACHE" in n for n in notes)


def test_a_full_disk_costs_only_time(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write_bytes", full)
    notes = []
    assert cached("k", lambda: ROWS, notes.append, tmp_path) is ROWS
    assert "No space left" in notes[0]


def test_the_key_holds_all_that_matters():
    rows = [Row("s/0", "s", Labelled("a", "x")), Row("s/1", "s", Labelled("b", "x"))]
    base = cache_key(rows, "t", SETTINGS)
    assert cache_key([Row("other/9", "other", r.example) for r in rows], "t", SETTINGS) == base
    others = [
        cache_key(rows[::-1], "t", SETTINGS),
        cache_key(rows[:1], "t", SETTINGS),
        cache_key(rows, "u", SETTINGS),
        cache_key(rows, "t", Settings("sft", "answers", 11, "drop", None)),
        cache_key([rows[0], Row("s/1", "s", Labelled("b", "y"))], "t", SETTINGS),
    ]
    assert len({base, *others}) == 6


def test_the_tokenizers_key():
    tokenizer = make_tokenizer()
    key = tokenizer_key(tokenizer)
    tokenizer("a long text", truncation=True, max_length=2)
    assert tokenizer_key(tokenizer) == key
    assert tokenizer_key(make_tokenizer()) == key
    assert tokenizer_key(make_tokenizer(QWEN25)) != key
    tokenizer.add_tokens(["new"])
    assert tokenizer_key(tokenizer) != key


def test_the_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("RUNNER_CACHE", str(tmp_path))
    assert cache.cache_folder() == tmp_path
    monkeypatch.delenv("RUNNER_CACHE")
    assert cache.cache_folder().parts[-2:] == (".cache", "runner")
