"""A sentence in the two languages that summaries and reports are written in."""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]


class Text(NamedTuple):
    """The same statement twice; numbers, keys and commands are equal in both."""

    en: str
    zh: str

    def within(self, language: Language) -> str:
        """The wording of `language`."""
        return self.zh if language == "zh" else self.en

    def as_json(self) -> dict[str, str]:
        """{"en": ..., "zh": ...}."""
        return {"en": self.en, "zh": self.zh}


def same(words: str) -> Text:
    """A `Text` that reads alike in both languages: numbers, keys, commands."""
    return Text(words, words)


def language(wanted: str = "auto") -> Language:
    """`en` or `zh`; auto = zh where the locale (LC_ALL, LC_MESSAGES, LANG, the first that is set) is Chinese."""
    if wanted in ("en", "zh"):
        return "zh" if wanted == "zh" else "en"
    named = next((os.environ[k] for k in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(k)), "")
    return "zh" if named.lower().startswith("zh") else "en"
