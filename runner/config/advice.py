"""Popular advice about unstable fine-tuning and what is true of it.

One data file, advice.yaml, that config errors, preflight and verdicts quote; read only once something asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from runner.config.advice_conditions import CONDITIONS
from runner.config.schema import Config
from runner.text import Text

VERDICTS = (
    "never_existed",
    "removed",
    "renamed",
    "moved",
    "contradiction",
    "needless",
    "wrong",
    "depends",
    "starting_points",
    "no_effect",
    "incomplete",
    "rarely",
    "useful",
    "wasteful",
    "not_repeatable",
    "fault",
    "not_a_cause",
    "out_of_scope",
    "silent_loss",
)
"""What is to be said of a claim, in a word."""


@dataclass(frozen=True)
class Advice:
    """One claim. The fields are described at the head of advice.yaml."""

    id: str
    row: str
    verdict: str
    text: Text
    keys: tuple[str, ...] = ()
    today: str | None = None
    carry: bool = False
    values: tuple[tuple[str, str], ...] = ()
    """(key or group, value) pairs."""

    together: tuple[str, ...] = ()
    when: str | None = None
    where: tuple[str, ...] = ()
    quoted_by: str | None = None
    overrides: tuple[str, ...] = ()

    @property
    def settable(self) -> bool:
        """Whether a user can type or set it."""
        return bool(self.keys or self.values or self.together or self.when)

    def holds(self, c: Config) -> bool:
        """Whether the configuration does it; False for an entry without a condition."""
        return self.when is not None and CONDITIONS[self.when](c)


@cache
def advice() -> dict[str, Advice]:
    """Every entry by its id, in the order of the file."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (Path(__file__).parent / "advice.yaml").read_text(encoding="utf-8")
    return {id: _entry(id, dict(content)) for id, content in yaml.load(text, Loader=loader).items()}


def _entry(id: str, content: dict[str, Any]) -> Advice:
    say = content.pop("say")
    values = tuple((key, value) for key, listed in content.pop("values", {}).items() for value in listed)
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    return Advice(id=id, text=Text(say["en"], say["zh"]), values=values, **fields)


def by_key(name: str) -> Advice | None:
    """The entry about a key that is none of ours, by its leaf, in any case and with or without _ and -."""
    return _keys().get(_bare(name.rpartition(".")[2]))


def by_value(name: str, value: str) -> Advice | None:
    """The entry about a value of a key or group, such as task=dpo."""
    return _values().get((_bare(name.rpartition(".")[2]), _bare(value)))


def applying(c: Config) -> list[Advice]:
    """Entries whose condition holds and that no other finding says."""
    return [a for a in advice().values() if a.quoted_by is None and a.holds(c)]


def quoted_by(cause: str, c: Config) -> list[Advice]:
    """Entries that a finding of this cause answers, where the configuration follows them."""
    return [a for a in advice().values() if a.quoted_by == cause and a.holds(c)]


@cache
def _keys() -> dict[str, Advice]:
    return {_bare(key): a for a in advice().values() for key in a.keys}


@cache
def _values() -> dict[tuple[str, str], Advice]:
    return {(_bare(key), _bare(value)): a for a in advice().values() for key, value in a.values}


def _bare(word: str) -> str:
    return re.sub(r"[\s_-]", "", word).lower()


_FORMAT_KEYS = ("precision", "precision.compute", "torch_dtype", "dtype", "compute_dtype", "mixed_precision")
_FORMATS = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "half": "fp16"}
_SWITCHES = {"bf16": "bf16", "purebf16": "bf16", "fp16": "fp16", "gradscaler": "scaler", "usegradscaler": "scaler"}
_OFF = ("", "false", "no", "off", "0", "null", "none")


def contradictions(asked: Iterable[tuple[str, str]]) -> list[tuple[Advice, tuple[str, ...]]]:
    """Entries about number formats that are asked for together, with the keys that do so.

    `asked` are (dotted key, value as text) pairs: ("trainer.fp16", "true"), ("precision", "bf16").
    """
    askers: dict[str, str] = {}
    for name, value in asked:
        leaf = name.rpartition(".")[2]
        switch = _SWITCHES.get(_bare(leaf)) if value.lower() not in _OFF else None
        chosen = _FORMATS.get(value.lower().removeprefix("torch.")) if _is_format_key(name) else None
        if wanted := switch or chosen:
            askers.setdefault(wanted, name)
    if len(askers) < 2:
        return []
    return [
        (a, tuple(askers[t] for t in a.together))
        for a in advice().values()
        if a.together and set(a.together) <= set(askers)
    ]


def _is_format_key(name: str) -> bool:
    return name in _FORMAT_KEYS or name.rpartition(".")[2] in _FORMAT_KEYS[2:]


def value_of(c: Config, key: str) -> Any:
    """The value at a dotted key of the configuration. Raises AttributeError where there is none."""
    value: Any = c
    for part in key.split("."):
        value = getattr(value, part)
    return value
