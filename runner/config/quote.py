"""Quotes what Hydra's lexer refuses: Chinese values, odd paths, Chinese dict keys. Valid Hydra stays untouched."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from runner.errors import ConfigError

_FUNCTIONS = ("int", "str", "bool", "float", "choice", "range", "interval", "tag", "sort", "shuffle", "glob")
_CLOSE = {"[": "]", "{": "}", "(": ")"}
_KEY = re.compile(r"^[A-Za-z0-9_$./@~+-]+$")


def parse(line: str) -> Override | None:
    """The override as Hydra understands it, or None if its grammar refuses it."""
    override = _parse(line)
    return copy.copy(override) if override is not None else None


@lru_cache(maxsize=4096)  # the trials of a sweep repeat most of their lines
def _parse(line: str) -> Override | None:
    try:
        return OverridesParser.create().parse_overrides([line])[0]
    except (HydraException, RecursionError, AssertionError):
        return None


@dataclass
class _Node:
    """A value: plain text, or a container ("[", "{", "f(" or "," for a comma list) with its items."""

    kind: str
    text: str = ""
    items: list[_Node] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


class _Unreadable(Exception):
    pass


class _Reader:
    """A forgiving reader of Hydra values: any character may occur in plain text."""

    def __init__(self, text: str):
        self.text, self.at = text, 0

    def value(self, stop: str) -> _Node:
        rest = self.text[self.at :]
        self.at += len(rest) - len(rest.lstrip())
        call = re.match(rf"({'|'.join(_FUNCTIONS)})\s*\(", self.text[self.at :])
        if call:
            self.at += call.end()
            return _Node("f", call.group(1), self.items(")"))
        if self.text[self.at : self.at + 1] == "[":
            self.at += 1
            return _Node("[", items=self.items("]"))
        if self.text[self.at : self.at + 1] == "{":
            self.at += 1
            node = _Node("{")
            for item in self.items("}", keyed=node.keys):
                node.items.append(item)
            return node
        return _Node("text", self.plain(stop))

    def items(self, close: str, keyed: list[str] | None = None) -> list[_Node]:
        found: list[_Node] = []
        while True:
            self.skip()
            if self.peek() == close and not found:
                break
            if keyed is not None:
                keyed.append(self.plain(":"))
                self.expect(":")
            found.append(self.value("," + close))
            self.skip()
            if self.peek() == close:
                break
            self.expect(",")
        self.at += 1
        return found

    def plain(self, stop: str) -> str:
        start, first = self.at, self.peek()
        if first in ("'", '"'):
            end = re.compile(rf"{first}(?:\\.|[^\\{first}])*{first}").match(self.text, self.at)
            if end:
                self.at = end.end()
                self.skip()
                if not self.peek() or self.peek() in stop:
                    return end.group(0)
                self.at = start
        while self.at < len(self.text) and self.text[self.at] not in stop:
            hole = re.compile(r"\$\{[^}]*\}").match(self.text, self.at)
            if hole:
                self.at = hole.end()
            else:
                self.at += 2 if self.text[self.at] == "\\" and self.at + 1 < len(self.text) else 1
        return self.text[start : self.at].strip()

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip(self) -> None:
        while self.peek().isspace():
            self.at += 1

    def expect(self, char: str) -> None:
        self.skip()
        if self.peek() != char:
            raise _Unreadable
        self.at += 1


def _read(text: str) -> _Node:
    """The whole text as one value, or as a comma list of values."""
    reader = _Reader(text)
    found = [reader.value(",")]
    while reader.at < len(text):
        reader.expect(",")
        found.append(reader.value(","))
    return found[0] if len(found) == 1 else _Node(",", items=found)


def quoted(text: str) -> str:
    """`text` as one quoted Hydra string (Hydra halves backslashes only where they meet a quote)."""
    text = re.sub(r"(\\*)'", lambda m: m.group(1) * 2 + "\\'", text)
    text = re.sub(r"(\\+)$", lambda m: m.group(1) * 2, text)
    return f"'{text}'"


def _plain(text: str) -> str:
    return text if not text or parse(f"k={text}") else quoted(text)


def _bare(text: str) -> Any:
    """Plain text as the value YAML would read; quotes are taken off."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _content(node: _Node) -> Any:
    if node.kind == "text":
        return _bare(node.text)
    if node.kind == "{":
        return {str(_bare(k)): _content(v) for k, v in zip(node.keys, node.items, strict=True)}
    return [_content(item) for item in node.items]


def _as_yaml(node: _Node) -> str:
    """A dict whose keys Hydra's grammar cannot hold, as a resolver call that Hydra sees as one string."""
    import yaml

    text = yaml.safe_dump(
        _content(node), allow_unicode=True, default_flow_style=True, sort_keys=False, width=10**9
    ).strip()
    if any(c in text for c in "'\"\\"):
        raise _Unreadable
    return f"\"${{runner_yaml:'{text}'}}\""


def _render(node: _Node) -> str:
    if node.kind == "text":
        return _plain(node.text)
    inner = [_render(item) for item in node.items]
    if node.kind == "{":
        body = "{" + ",".join(f"{k}:{v}" for k, v in zip(node.keys, inner, strict=True)) + "}"
        return body if parse(f"k={body}") else _as_yaml(node)
    open_close = {"[": ("[", "]"), "f": (node.text + "(", ")"), ",": ("", "")}[node.kind]
    return open_close[0] + ",".join(inner) + open_close[1]


def quote(line: str) -> str:
    """An override that Hydra's grammar accepts and that means what was typed; valid overrides come back unchanged.

    Raises ConfigError, naming the override, if it has no `key=` or its key cannot be written for Hydra.
    """
    if parse(line):
        return line
    key, equals, value = line.partition("=")
    if not equals:
        raise ConfigError([f"{line!r} (command line): an override is written key=value; python -m runner --help"])
    if not _KEY.match(key.strip()):
        raise ConfigError(
            [f"{line!r} (command line): the key {key!r} holds characters a Hydra key cannot; set it in a YAML file"]
        )
    key, value = key.strip(), value.strip()
    candidates: list[str] = []
    try:
        candidates.append(_render(_read(value)))
    except _Unreadable:
        pass
    candidates.append(quoted(value))
    for text in candidates:
        if parse(f"{key}={text}"):
            return f"{key}={text}"
    raise ConfigError([f"{line!r} (command line): cannot be read; put the value in quotes inside the shell's quotes"])
