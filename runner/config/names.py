"""Every key of the schema as a flat table, and the nearest one to a word that is none of them."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from runner.config.schema import Config

UNSET = object()
"""Default of a field that has none."""


@dataclass(frozen=True)
class Key:
    """One key of the schema: dotted name, type, default and the docstring under its field."""

    name: str
    type: Any
    default: Any
    doc: str

    @property
    def is_group(self) -> bool:
        """Whether the key holds further keys of the schema."""
        return dataclasses.is_dataclass(self.type)


@cache
def field_docs(schema: type) -> dict[str, str]:
    """Docstrings under the fields of a dataclass, read from its source; a field without one is absent."""
    body = ast.parse(inspect.getsource(schema)).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            if isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                docs[field.target.id] = " ".join(after.value.value.split())
    return docs


@cache
def fields_of(schema: type) -> dict[str, tuple[Any, Any]]:
    """(resolved type, default) of each field of a dataclass."""
    hints = get_type_hints(schema)
    found: dict[str, tuple[Any, Any]] = {}
    for field in dataclasses.fields(schema):
        if field.default_factory is not dataclasses.MISSING:
            default: Any = field.default_factory()
        else:
            default = UNSET if field.default is dataclasses.MISSING else field.default
        found[field.name] = (hints[field.name], default)
    return found


@cache
def known_keys() -> dict[str, Key]:
    """Every key of `Config` by its dotted name, groups included, in the order of the schema."""
    found: dict[str, Key] = {}

    def walk(schema: type, prefix: str) -> None:
        docs = field_docs(schema)
        for name, (kind, default) in fields_of(schema).items():
            key = Key(prefix + name, kind, default, docs.get(name, ""))
            found[key.name] = key
            if key.is_group:
                walk(kind, key.name + ".")

    walk(Config, "")
    return found


def free_below(name: str) -> bool:
    """Whether `name` lies below a key whose value is a dict (trainer.x, dataset.weights.zh, dataset.sources.a.path).

    Below `dataset.sources.NAME` the fields of `Source` are checked.
    """
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        key = known_keys().get(".".join(parts[:cut]))
        if key is None:
            continue
        value_type = dict_value(key.type)
        below = parts[cut + 1 :]
        if value_type is None:
            return False
        if dataclasses.is_dataclass(value_type) and below:
            kind = fields_of(value_type).get(below[0])  # type: ignore[arg-type]
            return kind is not None and (len(below) == 1 or dict_value(kind[0]) is not None)
        return len(below) == 0 or value_type is Any
    return False


def dict_value(kind: Any) -> Any:
    """The value type of `dict[str, X]` (also inside a union); None if `kind` holds no dict."""
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    for member in get_args(kind):
        if get_origin(member) is dict:
            return get_args(member)[1]
    return None


def is_known(name: str) -> bool:
    """Whether a dotted name may be set."""
    return name in known_keys() or free_below(name)


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar of `choices`; None if none is similar enough."""
    near = difflib.get_close_matches(word, list(choices), 1, cutoff)
    return near[0] if near else None


def suggest(name: str, choices: Iterable[str] | None = None) -> str | None:
    """The key a wrong `name` most likely means: the right leaf in another group, else a similar leaf in the named
    group, else the most similar leaf anywhere, else the most similar dotted name."""
    keys = [k for k in (choices or known_keys()) if k not in _group_names()]
    head, _, leaf = name.rpartition(".")
    same_leaf = [k for k in keys if k.rpartition(".")[2] == leaf]
    if same_leaf:
        return nearest(name, same_leaf, 0.0)
    in_group = [k for k in keys if head and k.startswith(head + ".")]
    near = nearest(name, in_group, 0.75)
    if near:
        return near
    leaves = {k.rpartition(".")[2]: k for k in reversed(keys)}
    near = nearest(leaf, leaves, 0.7)
    return leaves[near] if near else nearest(name, keys, 0.75)


@cache
def _group_names() -> frozenset[str]:
    return frozenset(name for name, key in known_keys().items() if key.is_group)
