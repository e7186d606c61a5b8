"""Whether a value has the type its key wants; if not, a sentence that says what the key takes."""

from __future__ import annotations

import dataclasses
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


def members(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a union, else the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def describe(kind: Any) -> str:
    """What a type takes, in words: `one of norm, value, none` or `a number or null`."""
    words: list[str] = []
    for member in members(kind):
        origin = get_origin(member)
        if origin is Literal:
            words.append("one of " + ", ".join(str(a) for a in get_args(member)))
        elif origin is list:
            words.append(f"a list of {_plural(get_args(member)[0])}")
        elif origin is tuple:
            words.append(f"{len(get_args(member))} numbers [a, b]")
        elif origin is dict:
            inner = get_args(member)[1]
            words.append("key: value pairs" if inner is Any else f"{{name: {describe(inner)}}}")
        elif dataclasses.is_dataclass(member):
            names = ", ".join(f.name for f in dataclasses.fields(member))
            words.append(f"keys below it ({names})")
        else:
            words.append(_WORDS.get(member, "any value"))
    return " or ".join(words)


def _plural(kind: Any) -> str:
    return {str: "texts", int: "whole numbers", float: "numbers"}.get(kind, describe(kind))


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(kind, config=ConfigDict(coerce_numbers_to_str=True))


def _has_bool(kind: Any) -> bool:
    return any(m in (bool, Any, object) for m in members(kind))


def _bool_mistake(kind: Any, value: Any) -> bool:
    """A bool where none is wanted, or something else where only a bool is (pydantic lets both pass)."""
    if isinstance(value, bool):
        return not _has_bool(kind)
    kinds = [m for m in members(kind) if m is not type(None)]
    if kinds == [bool] and value is not None:
        return str(value).lower() not in ("true", "false")
    for member in members(kind):
        origin, args = get_origin(member), get_args(member)
        if origin in (list, tuple) and isinstance(value, list | tuple):
            return any(_bool_mistake(args[0], v) for v in value)
        if origin is dict and isinstance(value, dict):
            return any(_bool_mistake(args[1], v) for v in value.values())
    return False


def typed(kind: Any, value: Any) -> tuple[Any, str | None]:
    """(the value as `kind`, None), or (the value as it was, what the key takes)."""
    from pydantic import ValidationError

    if kind is Any:
        return value, None
    if value is False and any("off" in get_args(m) for m in members(kind) if get_origin(m) is Literal):
        value = "off"  # YAML 1.1 reads a bare off as false
    if _bool_mistake(kind, value):
        quote = " (write '" + str(value).lower() + "' in quotes if it is text)" if isinstance(value, bool) else ""
        return value, f"takes {describe(kind)}" + (quote if str in members(kind) else "")
    try:
        return _adapter(kind).validate_python(value), None
    except ValidationError:
        return value, f"takes {describe(kind)}"
