"""Writes the demo data sets that ship with the project: ``python data/scripts/make_demo_data.py [--out DIR] [--seed N]``.

The same seed gives the same bytes: each set draws from its own ``random.Random``, so one set can change without the others.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable
from pathlib import Path

from demo_dialogues import as_messages, as_sharegpt, dialogues
from demo_en import english_rows
from demo_sentiment import sentiment_rows
from demo_zh import chinese_rows

SEED = 20240607
ALPACA_ROWS = 1500
DIALOGUE_ROWS = 1000
SENTIMENT_ROWS = 1500

_ALPACA_COLUMNS = {"prompt": "instruction", "query": "input", "response": "output"}
DATASET_INFO: dict[str, dict[str, object]] = {
    "demo_en": {"file_name": "demo_en.json", "formatting": "alpaca", "columns": _ALPACA_COLUMNS},
    "demo_zh": {"file_name": "demo_zh.json", "formatting": "alpaca", "columns": _ALPACA_COLUMNS},
    "demo_chat": {
        "file_name": "demo_chat.json",
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "system": "system"},
    },
    "demo_messages": {
        "file_name": "demo_messages.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {
            "role_tag": "role",
            "content_tag": "content",
            "user_tag": "user",
            "assistant_tag": "assistant",
            "system_tag": "system",
        },
    },
}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _jsonl(rows: Iterable[object]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def build(seed: int = SEED) -> dict[str, str]:
    """All files of the demo data, name to content."""

    def stream(name: str) -> random.Random:
        return random.Random(f"{seed}/{name}")

    seen: set[object] = set()
    chat = [as_sharegpt(d) for d in dialogues(stream("chat"), DIALOGUE_ROWS, 0.25, seen)]
    messages = [as_messages(d) for d in dialogues(stream("messages"), DIALOGUE_ROWS, 0.5, seen)]
    return {
        "demo_en.json": _json(english_rows(stream("en"), ALPACA_ROWS)),
        "demo_zh.json": _json(chinese_rows(stream("zh"), ALPACA_ROWS)),
        "demo_chat.json": _json(chat),
        "demo_messages.jsonl": _jsonl(messages),
        "sentiment_zh.jsonl": _jsonl(sentiment_rows(stream("sentiment"), SENTIMENT_ROWS)),
        "dataset_info.json": _json(DATASET_INFO),
    }


def main(argv: list[str] | None = None) -> None:
    """Command line entry: writes every file and prints its size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent, help="folder to write into")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, content in build(options.seed).items():
        (options.out / name).write_bytes(content.encode("utf-8"))
        print(f"{name}: {len(content.encode('utf-8')):,} bytes")


if __name__ == "__main__":
    main()
