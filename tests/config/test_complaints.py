"""Mistakes in a user's own YAML: one sentence with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.config.compose import load
from runner.errors import ConfigError

HEADER = b"# @package _global_\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEADER + b"optim: {learning_rate: 1e-4\n", r"conf/exp/mine\.yaml line \d+, column \d+: this is not YAML"),
        (HEADER + b"optim:\n\tlearning_rate: 1e-4\n", "indented with spaces, not tabs"),
        (HEADER + b"name: a\nname: b\n", "found duplicate key name"),
        (HEADER + b"name: \xd6\xd0\n", r"conf/exp/mine\.yaml: not UTF-8 text"),
        (
            HEADER + b"defaults:\n  - override /optim: adamww\n",
            r"optim has no option 'adamww'.*did you mean optim=adamw",
        ),
        (b"optim:\n  learning_rate: 1e-4\n", "its first line must be '# @package _global_'"),
        (b"\xef\xbb\xbf" + HEADER + b"optim: {learning_rate: 1e-4}\n", "byte order mark"),
    ],
)
def test_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str) -> None:
    (tmp_path / "conf" / "exp").mkdir(parents=True)
    (tmp_path / "conf" / "exp" / "mine.yaml").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=words):
        load(["+exp=mine"])
