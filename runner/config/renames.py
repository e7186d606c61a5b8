"""Names from other tools, older versions and blog posts, and what they are called here.

The table is renames.yaml; names that popular advice is about are answered by advice.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from runner.config.advice import Advice, advice, by_key, by_value
from runner.config.names import known_keys


@dataclass(frozen=True)
class Rename:
    """today: a key, a whole override (holds `=`), or None if nothing corresponds; say: one sentence.
    carry: whether the value goes with the key; None = wherever only the name changed."""

    old: str
    today: str | None
    say: str
    carry: bool | None = None


@cache
def _table() -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (Path(__file__).parent / "renames.yaml").read_text(encoding="utf-8")
    return dict(yaml.load(text, Loader=loader))


@cache
def renames() -> dict[str, Rename]:
    """Every old name."""
    table = {old: Rename(old, today, say) for old, (today, say) in _table()["keys"].items()}
    return table | {key: _advised(key, a) for a in advice().values() for key in a.keys}


def _advised(name: str, entry: Advice) -> Rename:
    return Rename(name, entry.today, entry.text.en, entry.carry)


def find_rename(name: str, value: str | None = None) -> Rename | None:
    """The entry of a key that is none of ours: by its leaf, so `optim.lr` and `trainer.lr` are found too.

    A value may have an answer of its own (stage=dpo).
    """
    leaf = name.rpartition(".")[2]
    about = by_value(leaf, value) if value is not None else None
    if about is not None:
        return Rename(leaf, None, about.text.en)
    known = renames().get(name) or renames().get(leaf)
    entry = by_key(leaf) if known is None else None
    return _advised(leaf, entry) if entry is not None else known


def find_option(group: str, option: str) -> str | None:
    """A sentence about a group option that is asked for and does not exist."""
    entry = by_value(group, option)
    if entry is not None:
        return explain(_advised(option, entry), None)
    sentence = _table()["options"].get(group, {}).get(option)
    return str(sentence) if sentence else None


def explain(rename: Rename, value: str | None) -> str:
    """`use optim.learning_rate=1e-4 (peak learning rate)`; the value is carried over where only the name changed."""
    if rename.today is None:
        return rename.say
    if "=" in rename.today:
        return f"use {rename.today} ({rename.say})"
    carry = rename.carry
    if carry is None:
        carry = rename.today.rpartition(".")[2] not in ("lora", "task", "betas", "args") and not _lossy(rename)
    return f"use {rename.today}{'=' + value if carry and value else ''} ({rename.say})"


def _lossy(rename: Rename) -> bool:
    key = known_keys().get(rename.today or "")
    words = (
        "fa2",
        "4bit",
        "true or false",
        "a count",
        "{",
        "regexes",
        "epoch, or",
        "share",
        "sum of",
        "all is",
        "auto,",
    )
    return (key is not None and key.is_group) or any(w in rename.say for w in words)


def owned_trainer_field(name: str) -> str | None:
    """What to say about `trainer.NAME` when one of our groups decides it; None if the field may be passed through."""
    if name == "optim":
        return "use optim.name"
    entry = by_key(name)
    if entry is not None:
        return explain(_advised(name, entry), None)
    ours = [k for k, key in known_keys().items() if k.rpartition(".")[2] == name and not key.is_group]
    if ours:
        return f"use {ours[0]}"
    rename = renames().get(name)
    return explain(rename, None) if rename is not None and not _passes_through(rename) else None


def _passes_through(rename: Rename) -> bool:
    return rename.today is not None and rename.today.startswith("trainer.") and "=" not in rename.today
