"""Fixtures: the tiny tokenizer, a cache folder of its own for each test, a config for rows given as lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from runner.config.schema import Config, Source
from tests.data.kit import make_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Config]:
    """config(name=rows, ...): a Config whose sources are JSON files with these rows."""

    def make(**sources: list[Any]) -> Config:
        cfg = Config()
        for name, rows in sources.items():
            path = tmp_path / f"{name}.json"
            path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
            cfg.dataset.sources[name] = Source(path=str(path))
        return cfg

    return make
