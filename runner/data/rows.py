"""What a row is after its format is understood: a chat or a labelled text."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Dropped(Exception):
    """This row cannot be used; the message is the reason that is counted."""


@dataclass(frozen=True)
class Chat:
    """One conversation that ends with an answer."""

    messages: list[dict[str, Any]]
    """role (system, user, assistant, tool), content (str), and for tool calls `tool_calls` as transformers expects."""

    tools: list[dict[str, Any]] | None = None
    """JSON schemas of the tools the assistant may call."""

    untrained: frozenset[int] = frozenset()
    """Indices of assistant turns that are context only, whatever task.train_on says (unless it says all)."""


@dataclass(frozen=True)
class Labelled:
    """One text and its label."""

    text: str
    """The text to classify."""

    label: str
    """Name of its class."""


Example = Chat | Labelled


@dataclass
class Row:
    """An example with its origin."""

    row_id: str
    """<source>/<index of the row in its files>: stable whatever else is configured."""

    source: str
    """Name of the source."""

    example: Example
    """The content."""

    digest: str = field(default="")
    """Content hash; equal for exact duplicates."""

    def __post_init__(self) -> None:
        if not self.digest:
            self.digest = digest(self.example)


def digest(example: Example) -> str:
    """Content hash of an example, the same on every machine and for every order of keys."""
    if isinstance(example, Chat):
        content: list[Any] = [example.messages, example.tools, sorted(example.untrained)]
    else:
        content = [example.text, example.label]
    text = json.dumps(content, ensure_ascii=True, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def as_text(value: Any, what: str, notes: list[str]) -> str:
    """`value` as a string: null and NaN are empty, numbers are written out (noted), lists and objects drop the row."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool | int | float):
        notes.append(f"{what} was a {type(value).__name__}, made text")
        return str(value)
    if not isinstance(value, str):
        raise Dropped(f"{what} is a {type(value).__name__}, not text")
    if _LONE_SURROGATE.search(value):
        notes.append("half a surrogate pair replaced by U+FFFD")
        return _LONE_SURROGATE.sub("\ufffd", value)
    return value


def without_surrogates(value: Any) -> Any:
    """A JSON value with every lone surrogate replaced, since tokenizers refuse those."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [without_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {without_surrogates(k): without_surrogates(v) for k, v in value.items()}
    return value
