"""The configuration: what differs from the defaults, and what the verdict suggests instead."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from runner.config.compare import changed
from runner.config.schema import Config
from runner.diagnosis.verdict import Verdict
from runner.report.page.html import both, element, escape, shown
from runner.text import Text

PRIVATE = ("dataset.default_system",)
"""Settings that hold text a person wrote for the model."""

PLACES = ("output_dir", "checks")
"""Settings that change no number."""


class Setting(NamedTuple):
    """One row of the table."""

    key: str
    value: Any
    default: Any
    suggested: str | None


def settings(config: dict[str, Any], suggested: dict[str, str]) -> list[Setting]:
    """Keys that differ from the defaults of the schema or that the cure changes; the cure's first."""
    defaults = dataclasses.asdict(Config())
    differing = {k: pair for k, pair in changed(defaults, config).items() if k.partition(".")[0] not in PLACES}
    rows = [Setting(key, at(config, key), at(defaults, key), new) for key, new in suggested.items()]
    return rows + [Setting(k, now, before, None) for k, (before, now) in differing.items() if k not in suggested]


def cure(verdict: Verdict) -> dict[str, str]:
    """{key: value} of the overrides that the findings suggest, the first one to name a key. A note is no cure: what it
    suggests makes nothing better."""
    lines = [line for f in verdict.findings if f.severity != "note" for line in f.changes.get("runner", ())]
    found: dict[str, str] = {}
    for word in (word for line in lines for word in line.split("  ")[0].split()):
        key, equals, value = word.partition("=")
        if equals and key:
            found.setdefault(key.lstrip("+"), value)
    return found


def at(config: dict[str, Any], key: str) -> Any:
    """The value at a dotted key; of a group, its first setting; None where there is none."""
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, dict):
        return next((f"{k}={shown(v)}" for k, v in node.items() if not isinstance(v, dict)), None)
    return node


def settings_table(config: dict[str, Any], verdict: Verdict, redact: bool) -> str:
    """The table of differences, and the whole configuration folded away."""

    def cell(key: str, value: Any) -> str:
        if redact and key in PRIVATE and value:
            return both(Text("(left out)", "（已隐去）"))
        if value == "???":
            return both(Text("(must be set)", "（必填）"))
        return escape(exact(value))

    rows = settings(config, cure(verdict))
    titles = [Text("key", "键"), Text("this run", "本次"), Text("default", "默认"), Text("suggested", "建议")]
    if all(row.suggested is None for row in rows):
        titles = titles[:3]
    head = "".join(element("th", both(title)) for title in titles)
    caps = [f'<span class="cap">{both(title)} </span>' for title in titles]
    body = []
    for row in rows:
        value = f'<td class="value">{caps[1]}{cell(row.key, row.value)}</td>'
        value += f'<td class="value dim">{caps[2]}{cell(row.key, row.default)}</td>'
        if row.suggested is not None:
            value += f'<td class="value">{caps[3]}<b>{escape(row.suggested)}</b></td>'
        elif len(titles) > 3:
            value += "<td></td>"
        kind = ' class="cure"' if row.suggested is not None else ""
        body.append(f'<tr{kind}><th scope="row">{escape(row.key)}</th>{value}</tr>')
    every = "".join(
        f'<tr><th scope="row">{escape(key)}</th><td class="value">{cell(key, value)}</td></tr>'
        for key, (_, value) in changed({}, nested(config)).items()
    )
    table = f'<table class="settings"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    told = Text("All settings", "全部设置")
    none = element("p", both(Text("Every setting is the default.", "所有设置均为默认值。")))
    return (table if rows else none) + (
        f"<details><summary>{both(told)}</summary><table class='settings'><tbody>{every}</tbody></table></details>"
    )


def nested(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{dotted key: leaf}."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found |= nested(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def exact(value: Any) -> str:
    """A setting as one would type it: all digits of a number."""
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else str(value)
    return str(value) if isinstance(value, int) else shown(value)
