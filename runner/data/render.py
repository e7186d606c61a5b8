"""A chat as text, with the character span of every answer in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner.data.dropped import LEFT_OUT, NOT_LOCATED
from runner.data.rows import Chat, Dropped
from runner.data.template import ChatTemplate, TemplateRefuses


@dataclass(frozen=True)
class TextSpan:
    """One answer in the rendered text."""

    start: int
    """First character after the assistant header: where generation would begin."""

    end: int
    """Behind the end-of-turn token, without the line break that follows it."""

    tail: int
    """Where the end-of-turn token begins; equal to `end` if the template writes none."""

    trained: bool
    """False for context: answers with weight 0, leading ones, and those that the template rewrites."""


@dataclass(frozen=True)
class Rendered:
    """Text of a conversation and its answers, in order."""

    text: str
    """What is tokenised, without adding special tokens again."""

    spans: tuple[TextSpan, ...]
    """One per assistant turn."""


def with_system(chat: Chat, default_system: str | None) -> Chat:
    """The chat with `default_system` in front, if it has no system turn and one is asked for."""
    if not default_system or chat.messages[0]["role"] == "system":
        return chat
    messages = [{"role": "system", "content": default_system}, *chat.messages]
    return Chat(messages, chat.tools, frozenset(i + 1 for i in chat.untrained))


def render(chat: Chat, template: ChatTemplate, notes: list[str]) -> Rendered:
    """Text and answer spans of a chat. What had to be changed is appended to `notes`.

    The spans are found by rendering the chat once more with placeholders for the answers, so any template works that
    writes an answer in one piece; where it reformats one (thinking blocks), that turn is looked at alone. Raises
    `Dropped` if the template refuses the chat or an answer cannot be located.
    """
    tools = chat.tools if template.supports_tools else None
    if chat.tools and not tools:
        notes.append("tool schemas left out, the template has no tools")
    messages = template.adapt(chat.messages, notes)
    answers = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    try:
        text = template.render(messages, tools)
        spans = _all_at_once(text, messages, answers, tools, template)
        if spans is None:
            spans = [_one(text, messages, i, tools, template, notes) for i in answers]
    except TemplateRefuses as error:
        raise Dropped(f"the chat template refuses the conversation: {error}") from error
    spans = [
        TextSpan(s.start, s.end, s.tail, s.trained and i not in chat.untrained)
        for i, s in zip(answers, spans, strict=True)
    ]
    if not template.end and template.tokenizer.eos_token and text[spans[-1].end :].strip() == "":
        # Without an end-of-turn token the model would never learn to stop.
        last, eos = spans[-1], str(template.tokenizer.eos_token)
        text = text[: last.end] + eos
        spans[-1] = TextSpan(last.start, last.end + len(eos), last.end, last.trained)
    return Rendered(text, tuple(spans))


def _placeholder(i: int) -> str:
    return f"ZqAnswer{i}of7f3aZq"


def _replaced(messages: Sequence[dict[str, Any]], which: Sequence[int]) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": _placeholder(i)} if i in which else m for i, m in enumerate(messages)]


def _all_at_once(
    text: str,
    messages: list[dict[str, Any]],
    answers: list[int],
    tools: list[dict[str, Any]] | None,
    template: ChatTemplate,
) -> list[TextSpan] | None:
    """Spans from one rendering with every answer replaced; None if `text` is not that with the answers put in."""
    if any(messages[i].get("tool_calls") or messages[i].get("reasoning_content") for i in answers):
        return None
    rest = template.render(_replaced(messages, answers), tools)
    at, spans, pieces = 0, [], []
    for i in answers:
        if rest.count(_placeholder(i)) != 1:
            return None
        before, rest = rest.split(_placeholder(i))
        pieces.append(before)
    pieces.append(rest)
    for i, before, after in zip(answers, pieces, pieces[1:], strict=False):
        if not text.startswith(before, at):
            return None
        begin = at + len(before)
        content = messages[i]["content"]
        found = [
            c
            for c in (content, content.strip(), content.lstrip("\n"), content.rstrip())
            if text.startswith(c + after, begin)
        ]
        if not found:
            return None
        at = begin + len(found[0])
        spans.append(_span(text, begin - _own(before, template), at, template))
    return spans if text[at:] == rest else None


def _one(
    text: str,
    messages: list[dict[str, Any]],
    i: int,
    tools: list[dict[str, Any]] | None,
    template: ChatTemplate,
    notes: list[str],
) -> TextSpan:
    """Span of answer `i` alone: what differs when only this turn is replaced."""
    other = template.render(_replaced(messages, [i]), tools)
    if other.count(_placeholder(i)) != 1:
        raise Dropped(LEFT_OUT)
    before, after = other.split(_placeholder(i))
    before = before[: len(before) - _own(before, template)]
    if not (text.startswith(before) and text.endswith(after) and len(before) + len(after) <= len(text)):
        raise Dropped(NOT_LOCATED)
    tail = len(text) - len(after)
    region = "".join(text[len(before) : tail].split())
    kept = "".join(messages[i]["content"].split()) in region and bool(region)
    if not kept:
        notes.append("answers that the template rewrites (thinking blocks) carry no loss")
    return _span(text, len(before), tail, template, kept)


def _own(before: str, template: ChatTemplate) -> int:
    """Length of what the template writes between the assistant header and the answer (an empty thinking block)."""
    at = before.rfind(template.opener) if template.opener else -1
    # Behind an end of turn it is the header of an earlier turn: this answer has none of its own.
    if at < 0 or (template.end and template.end in before[at:]):
        return 0
    return len(before) - at - len(template.opener)


def _span(text: str, start: int, tail: int, template: ChatTemplate, trained: bool = True) -> TextSpan:
    """A span that begins where generation would: behind all of the generation prompt, if the text has all of it."""
    prompted = template.header[len(template.opener) :]
    if prompted and text.startswith(prompted, start, tail):
        start += len(prompted)
    end = tail + len(template.end) if template.end and text.startswith(template.end, tail) else tail
    return TextSpan(start, end, tail, trained)
