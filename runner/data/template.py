"""A tokenizer's chat template, and what training must know about it, found by rendering probes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError
from transformers import PreTrainedTokenizerBase

from runner.errors import UserError

_USER, _ANSWER, _SYSTEM, _TOOL = "ZqProbeUserZq", "ZqProbeAnswerZq", "ZqProbeSystemZq", "ZqProbeToolZq"
_PROBE_TOOL = {
    "type": "function",
    "function": {"name": _TOOL, "description": "probe", "parameters": {"type": "object", "properties": {}}},
}
# A template is a program of its author: on odd conversations it raises its own error, or trips over a missing value.
_REFUSALS = (TemplateError, TypeError, ValueError, KeyError, AttributeError)

CAUSE = "labels.no_generation_markers"
"""What a template is, in `runner.causes.catalogue`, whose answers cannot be found."""


class TemplateRefuses(Exception):
    """The template raised an error on this conversation; the message is the template's."""


class ChatTemplate:
    """Renders conversations with `tokenizer.chat_template`, without a system turn that nobody asked for.

    Raises UserError if the tokenizer has no chat template or one that is not valid Jinja.
    """

    header: str
    """What the generation prompt adds (`<|im_start|>assistant\\n`); empty if the template has none."""

    opener: str
    """Start of `header` that precedes answers in the history too; some templates only open a thinking block when asked
    to generate."""

    end: str
    """What the template writes right after an answer, through its first special token (`<|im_end|>`); may be empty."""

    injected: str
    """Start of a rendering that holds a system turn nobody wrote (Qwen2 and 2.5 do that); empty = none."""

    supports_tools: bool
    """Whether `tools=` shows up in the rendering."""

    supports_calls: bool
    """Whether `tool_calls` of an assistant turn show up in the rendering."""

    supports_tool_role: bool
    """Whether a turn of role `tool` shows up in the rendering."""

    leading_answers: bool
    """Whether a conversation may start with the assistant."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer
        if not tokenizer.chat_template:
            raise UserError(
                "The tokenizer has no chat template, so a conversation cannot be written as text. Set "
                "model.template=chatml "
                "(or qwen, or the path of a .jinja file).",
                finding=CAUSE,
                where=("model.template",),
            )
        self.injected = self._bos = ""
        user = {"role": "user", "content": _USER}
        answer = {"role": "assistant", "content": _ANSWER}
        try:
            alone, pair = self.render([user]), self.render([user, answer])
        except TemplateRefuses as error:
            raise UserError(
                f"The chat template cannot render a plain question and answer: {error}. Set "
                "model.template=chatml, qwen, or "
                "the path of a working .jinja file.",
                finding=CAUSE,
                where=("model.template",),
            ) from error
        if alone.count(_USER) != 1 or pair.count(_ANSWER) != 1:
            raise UserError(
                "The chat template leaves out or repeats turns. Set model.template=chatml, qwen, or a .jinja file.",
                finding=CAUSE,
                where=("model.template",),
            )
        prompt = self._try([user], add_generation_prompt=True) or ""
        self.header = prompt[len(alone) :] if prompt.startswith(alone) else ""
        tail = pair.split(_ANSWER)[1]
        second = self._try([{"role": "user", "content": "x"}, answer, user]) or ""
        self.opener = self._find_opener(alone, pair, second)
        between = second.split(_ANSWER)[1] if _ANSWER in second else tail
        self.end = self._find_end(tail, between)
        self.supports_tools = _TOOL in (self._try([user], tools=[_PROBE_TOOL]) or "")
        call = {"type": "function", "function": {"name": _TOOL, "arguments": {"x": 1}}}
        calling = {"role": "assistant", "content": "", "tool_calls": [call]}
        self.supports_calls = _TOOL in (self._try([user, calling]) or "")
        observed = self._try([user, answer, {"role": "tool", "content": _TOOL}, answer])
        self.supports_tool_role = _TOOL in (observed or "")
        leading = self._try([{"role": "assistant", "content": _TOOL}, user, answer]) or ""
        self.leading_answers = all(leading.count(part) == 1 for part in (_TOOL, _USER, _ANSWER))
        self._find_injected(alone, tail, second)

    @property
    def stop_id(self) -> int | None:
        """Id of the token that ends an answer, for `generation_config.eos_token_id`; None if it is not one token."""
        text = self.end or str(self.tokenizer.eos_token or "")
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
        return int(ids[0]) if len(ids) == 1 else None

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """The conversation as text. A system turn that the template adds by itself is left out.

        Raises TemplateRefuses with the template's message if it does not allow this conversation.
        """
        shown = list(messages)
        has_system = bool(shown) and shown[0]["role"] == "system"
        if tools and self.injected and not has_system:
            # The tool list lives in the system turn, which must stay; an empty one keeps the injected sentence out.
            shown.insert(0, {"role": "system", "content": ""})
        try:
            text = self.tokenizer.apply_chat_template(
                shown, tools=tools, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        except TemplateSyntaxError as error:
            raise UserError(
                f"The chat template is not valid Jinja, line {error.lineno}: {error.message}. Set model.template.",
                finding=CAUSE,
                where=("model.template",),
            ) from error
        except _REFUSALS as error:
            raise TemplateRefuses(str(error).strip().split("\n")[0] or type(error).__name__) from error
        text = str(text)
        if self.injected and not has_system and not tools and text.startswith(self.injected):
            text = self._bos + text[len(self.injected) :]
        return text

    def adapt(self, messages: Sequence[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
        """Messages in roles that this template knows: tool calls and results become plain text where it does not."""
        adapted = []
        for message in messages:
            if message.get("tool_calls") and not self.supports_calls:
                calls = [json.dumps(c["function"], ensure_ascii=False) for c in message["tool_calls"]]
                content = "\n".join([part for part in (message["content"],) if part] + calls)
                message = {k: v for k, v in message.items() if k != "tool_calls"} | {"content": content}
                notes.append("tool calls written as plain text, the template knows none")
            elif message["role"] == "tool" and not self.supports_tool_role:
                message = {"role": "user", "content": message["content"]}
                notes.append("tool results written as user turns, the template has no tool role")
            adapted.append(message)
        return adapted

    def _try(self, messages: list[dict[str, Any]], **options: Any) -> str | None:
        try:
            return self.render(messages, **options)
        except TemplateRefuses:
            return None

    def _find_end(self, tail: str, between: str) -> str:
        """What follows the last answer and an earlier one alike, through the special tokens in it.

        Some templates write the end of text behind the very last answer only, which is not the end of a turn.
        """
        common = _common_prefix([tail, between])
        tokens = [token for token in self._special_tokens() if token]
        for text in (common, tail):
            at = min((text.index(token) for token in tokens if token in text), default=-1)
            if at >= 0:
                while following := [token for token in tokens if text.startswith(token, at)]:
                    at += max(map(len, following))
                return text[:at]
            # Without a special token: all of it, less half a tag that two tails have in common by chance.
            if end := re.sub(r"<[^<>]*$", "", text).rstrip():
                return end
        return ""

    def _special_tokens(self) -> list[str]:
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        return [*self.tokenizer.all_special_tokens, *(str(token) for token in added.values())]

    def _find_opener(self, alone: str, pair: str, second: str) -> str:
        before_last, before_first = pair.split(_ANSWER)[0], second.split(_ANSWER)[0]
        first = self._try([{"role": "user", "content": "x"}]) or ""
        shown = [self.header]
        shown += [before_last[len(alone) :]] if before_last.startswith(alone) else []
        shown += [before_first[len(first) :]] if _ANSWER in second and before_first.startswith(first) else []
        return _common_prefix(shown)

    def _find_injected(self, alone: str, tail: str, second: str) -> None:
        """Compare what precedes the first user turn with a system turn, and without one.

        The header of a user turn is what stands between an answer's tail and the next user's text. Whatever else
        precedes the first user's text is an injected system turn if it begins as a real system turn begins.
        """
        user = {"role": "user", "content": _USER}
        system = self._try([{"role": "system", "content": _SYSTEM}, user])
        if not system or _SYSTEM not in system or _ANSWER not in second:
            return
        between = second.split(_ANSWER)[1].split(_USER)[0]
        user_header = between[len(tail) :] if between.startswith(tail) else None
        before = alone.split(_USER)[0]
        if not user_header or not before.endswith(user_header):
            return
        block = before[: -len(user_header)]
        start = system.split(_SYSTEM)[0]
        bos = self.tokenizer.bos_token or ""
        # SmolLM2's bos is <|im_start|>, which opens every turn: such a one leaves together with its turn.
        bos = bos if bos and block.startswith(bos) and start.startswith(bos) and not user_header.startswith(bos) else ""
        if len(block) > len(bos) and block.startswith(start):
            self.injected, self._bos = block, bos


def _common_prefix(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same]
