"""Shared by the tests of the shipped data and the tiny model: folders, rows, and the scripts on the import path."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[2] / "data"
sys.path.insert(0, str(DATA / "scripts"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the shipped data."""
    return DATA


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The folder of the shipped tiny model."""
    return DATA / "models" / "qwen2_tiny"


@pytest.fixture(scope="session")
def rows() -> dict[str, list[dict[str, Any]]]:
    """Every shipped set by name."""

    def read(name: str) -> list[dict[str, Any]]:
        text = (DATA / name).read_text(encoding="utf-8")
        return json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]

    names = ("demo_en.json", "demo_zh.json", "demo_chat.json", "demo_messages.jsonl", "sentiment_zh.jsonl")
    return {name.split(".")[0]: read(name) for name in names}


@pytest.fixture(scope="session")
def tiny(model_dir: Path) -> Iterator[tuple[Any, Any]]:
    """(tokenizer, model) as a user loads them, on one thread: a model this small gains nothing from more."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield AutoTokenizer.from_pretrained(model_dir), AutoModelForCausalLM.from_pretrained(model_dir).eval()
    torch.set_num_threads(before)
