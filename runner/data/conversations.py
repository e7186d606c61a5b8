"""Turn lists, sharegpt or OpenAI style, into one chat with the roles system, user, assistant and tool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.data.rows import Chat, Dropped, as_text, without_surrogates

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "observation": "tool",
    "tool": "tool",
    "function": "tool",
    "function_call": "call",
    "tool_call": "call",
}
_TAGS = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
    "observation_tag": "tool",
    "function_tag": "call",
}
TAG_NAMES = ("role_tag", "content_tag", *_TAGS)
"""Keys allowed in `tags`, as in LLaMA-Factory."""


@dataclass(frozen=True)
class Tags:
    """How a turn names its role and content."""

    role: str
    """Key of the role: from, role, ..."""

    content: str
    """Key of the content: value, content, ..."""

    roles: Mapping[str, str] = field(default_factory=lambda: dict(_ROLES))
    """Role name in the data -> user, assistant, system, tool, or call (an assistant turn that is a tool call)."""


def make_tags(tags: Mapping[str, str], first_turn: Any) -> Tags:
    """Tags as set, else by the keys of a turn: from/value (sharegpt) or role/content (OpenAI)."""
    openai = isinstance(first_turn, Mapping) and "role" in first_turn and "from" not in first_turn
    roles = dict(_ROLES) | {tags[tag]: role for tag, role in _TAGS.items() if tag in tags}
    return Tags(
        role=tags.get("role_tag", "role" if openai else "from"),
        content=tags.get("content_tag", "content" if openai else "value"),
        roles=roles,
    )


def parsed(value: Any, what: str) -> Any:
    """A list or object that csv and parquet files store as JSON text."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise Dropped(f"{what} is text, but not JSON") from error


def to_tools(value: Any) -> list[dict[str, Any]] | None:
    """Tool schemas as transformers wants them; a bare {"name", "parameters"} is wrapped as a function."""
    tools = parsed(value, "tools")
    if not tools:
        return None
    if isinstance(tools, dict):
        tools = [tools]
    if not isinstance(tools, list) or not all(isinstance(t, dict) for t in tools):
        raise Dropped("tools is not a list of objects")
    tools = without_surrogates(tools)
    return [t if "function" in t else {"type": "function", "function": t} for t in tools]


def to_turns(value: Any, tags: Tags, notes: list[str]) -> tuple[list[dict[str, Any]], set[int]]:
    """Messages with our roles, and the indices of assistant turns with OpenAI's `weight: 0` (not trained)."""
    turns = parsed(value, "the conversation")
    if not isinstance(turns, list) or not turns:
        raise Dropped("the conversation is empty" if not turns else "the conversation is not a list of turns")
    messages: list[dict[str, Any]] = []
    unweighted: set[int] = set()
    for turn in turns:
        if not isinstance(turn, Mapping):
            raise Dropped("a turn is not an object")
        name = turn.get(tags.role)
        role = tags.roles.get(name) if isinstance(name, str) else None
        if role is None:
            raise Dropped(f"unknown role {name!r} (key {tags.role!r})")
        if role == "assistant" and turn.get("weight") in (0, "0"):
            unweighted.add(len(messages))
        messages.append(_message(role, turn, tags, notes))
    return messages, unweighted


def _message(role: str, turn: Mapping[str, Any], tags: Tags, notes: list[str]) -> dict[str, Any]:
    content = turn.get(tags.content)
    if isinstance(content, list):
        content = _text_parts(content)
    text = as_text(content, "content", notes)
    if role == "call":
        calls = _calls_from_text(text)
        if calls is None:
            notes.append("a function call that is not JSON kept as plain text")
            return {"role": "assistant", "content": text}
        return {"role": "assistant", "content": "", "tool_calls": calls}
    message: dict[str, Any] = {"role": role, "content": text}
    if role == "assistant":
        calls = _calls_from_openai(parsed(turn.get("tool_calls"), "tool_calls"))
        if calls:
            message["tool_calls"] = calls
        if isinstance(turn.get("reasoning_content"), str):
            message["reasoning_content"] = as_text(turn["reasoning_content"], "reasoning_content", notes)
    if role == "tool" and isinstance(turn.get("name"), str):
        message["name"] = turn["name"]
    return message


def _text_parts(parts: list[Any]) -> str:
    """OpenAI's content as a list of parts; only text is trained on here."""
    texts = []
    for part in parts:
        if isinstance(part, Mapping) and part.get("type", "text") == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, Mapping) and isinstance(part.get("type"), str) and part["type"] != "text":
            raise Dropped(f"content of type {part['type']!r}, not text")
        else:
            raise Dropped("content is a list, not text")
    return "".join(texts)


def _calls_from_text(text: str) -> list[dict[str, Any]] | None:
    try:
        value = without_surrogates(json.loads(text))
    except (ValueError, RecursionError):
        return None
    calls = value if isinstance(value, list) else [value]
    if not calls or not all(isinstance(c, dict) and isinstance(c.get("name"), str) for c in calls):
        return None
    return [_call(c["name"], c.get("arguments")) for c in calls]


def _calls_from_openai(value: Any) -> list[dict[str, Any]]:
    if not value:
        return []
    if not isinstance(value, list):
        raise Dropped("tool_calls is not a list")
    calls = []
    for item in without_surrogates(value):
        function = item.get("function", item) if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise Dropped("a tool call without a function name")
        calls.append(_call(function["name"], function.get("arguments")))
    return calls


def _call(name: str, arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str):
        # OpenAI stores arguments as JSON text; templates apply `tojson`, which would quote that text a second time.
        with_json = _json_or_none(arguments)
        arguments = with_json if isinstance(with_json, dict) else arguments
    return {"type": "function", "function": {"name": name, "arguments": {} if arguments is None else arguments}}


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def to_chat(
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    unweighted: set[int],
    notes: list[str],
    leading_answers: bool = True,
) -> Chat:
    """A chat that can be trained on: system only if it says something, no leading or trailing half of an exchange.

    Assistant turns before the first user turn stay as untrained context if `leading_answers` (the template allows
    them), else they go. Drops (raises `Dropped`) chats without an answer, with an empty answer or an empty prompt.
    """
    kept = [(i, m) for i, m in enumerate(messages) if m["role"] != "system" or m["content"].strip()]
    head = 1 if kept and kept[0][1]["role"] == "system" else 0
    lead = head
    while lead < len(kept) and kept[lead][1]["role"] == "assistant":
        lead += 1
    untrained = set(unweighted)
    if lead > head and any(m["role"] == "user" for _, m in kept[lead:]):
        if leading_answers:
            notes.append("starts with the assistant: that turn is context without loss")
            untrained |= {i for i, _ in kept[head:lead]}
        else:
            notes.append("starts with the assistant: that turn left out, the template refuses it")
            del kept[head:lead]
    before = len(kept)
    while kept and kept[-1][1]["role"] != "assistant":
        kept.pop()
    if not kept:
        raise Dropped("no answer (no assistant turn)")
    if len(kept) < before:
        notes.append("turns after the last answer left out")
    for _, message in kept:
        if message["role"] == "assistant" and not message["content"].strip() and not message.get("tool_calls"):
            raise Dropped("empty answer")
        if message["role"] == "user" and not message["content"].strip():
            raise Dropped("empty prompt")
    if not any(m["role"] == "user" for _, m in kept):
        raise Dropped("no prompt (no user turn)")
    return Chat(
        messages=[m for _, m in kept],
        tools=tools,
        untrained=frozenset(new for new, (old, _) in enumerate(kept) if old in untrained),
    )
