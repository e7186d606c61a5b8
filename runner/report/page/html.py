"""Pieces of HTML. Everything that comes from a run passes through `escape` or `embed`."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from runner.runfolder import to_json
from runner.text import Text

STEP = 2
"""Spaces before the comment of a command line."""


def escape(words: str) -> str:
    """Safe as text and in a quoted attribute; characters that HTML cannot hold become U+FFFD."""
    return html.escape(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", "\ufffd", words))


def both(text: Text) -> str:
    """The text in both languages, one of which is shown; once where they are alike."""
    if text.en == text.zh:
        return escape(text.en)
    return f'<span class="en" lang="en">{escape(text.en)}</span><span class="zh" lang="zh">{escape(text.zh)}</span>'


def element(tag: str, inner: str, kind: str = "") -> str:
    """`<tag class="kind">inner</tag>`; `inner` is HTML."""
    return f'<{tag} class="{kind}">{inner}</{tag}>' if kind else f"<{tag}>{inner}</{tag}>"


def split_comment(line: str) -> tuple[str, str]:
    """(what to paste, the comment that two spaces set apart); leading spaces belong to what is pasted."""
    found = re.match(rf"(\s*\S.*?)(?:\s{{{STEP},}}(\S.*))?$", line, re.DOTALL)
    return (found[1], found[2] or "") if found else (line, "")


def paste(lines: tuple[str, ...] | list[str], label: Text | None = None) -> str:
    """A block of lines to paste with a button that copies them, comments left out; "" for no lines."""
    if not lines:
        return ""
    shown = []
    for words, comment in map(split_comment, lines):
        note = f' <span class="comment">{escape(comment)}</span>' if comment else ""
        shown.append(f'<span class="row"><code>{escape(words)}</code>{note}</span>')
    head = element("span", both(label), "tool") if label else ""
    button = f'<button type="button" class="copy">{both(Text("Copy", "复制"))}</button>'
    return f'<div class="paste">{head}<div class="rows">{"".join(shown)}</div>{button}</div>'


def embed(content: Any) -> str:
    """JSON that cannot end the script element it lies in; NaN and infinities are strings."""
    words = json.dumps(to_json(content), ensure_ascii=True, separators=(",", ":"))
    return words.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shown(value: Any) -> str:
    """A value in few words: four digits of a number, yes or no, JSON of what is nested."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == round(value, 0) and 1000 <= abs(value) < 1e7 else f"{value:.4g}"
    if isinstance(value, str):
        return value
    return json.dumps(to_json(value), ensure_ascii=False)
