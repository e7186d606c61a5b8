"""The verdict on a terminal: at most twelve lines, the same slots in the same order for every run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.cells import cell_len

from runner.diagnosis.verdict import Finding, Verdict
from runner.report.columns import clean, cut, wrap, wrap_shell
from runner.text import Language, Text, same

MOST = 12
LABEL = 9
"""Columns of the first column."""

NARROWEST = 60
"""Columns below which no summary can be set; smaller widths are treated as this one."""

ACTIONS = {
    "keep": Text("KEEP", "继续"),
    "change_next_run": Text("CHANGE", "调整"),
    "stop": Text("STOP", "停止"),
}
CONFIDENCE = {
    "certain": Text("certain", "确定"),
    "proven": Text("proven", "已证实"),
    "likely": Text("likely", "很可能"),
    "possible": Text("possible", "有可能"),
}
LABELS = {
    "saw": Text("Saw", "看到"),
    "why": Text("Why", "原因"),
    "learns": Text("Learns", "学习"),
    "not_it": Text("Not it", "无关"),
    "test": Text("Test", "区分"),
    "do": Text("Do", "请做"),
    "check": Text("Check", "验证"),
    "better": Text("Better", "更好"),
    "next": Text("Next", "另外"),
    "unknown": Text("Unknown", "未知"),
    "report": Text("Report", "报告"),
}
"""The slots in their order, behind the headline."""

GROWTH = ("head", "report", "why", "saw", "do", "check", "test", "unknown", "better", "learns", "not_it", "next")
"""Every slot has one line; the lines left over go round in this order to slots that need more."""

GIVE_WAY = ("next", "better", "not_it", "learns")
"""Slots that are left out where a command would have to be cut otherwise."""

NOTHING = Text("Nothing.", "无需处理。")
NORMAL = Text("(normal) ", "（正常）")
SHELL = re.compile(r"(python|swift|accelerate|torchrun|llamafactory-cli)\s")


@dataclass(frozen=True)
class Item:
    """One statement of a slot."""

    text: str
    right: str = ""
    """At the right edge of its first line."""

    tail: str = ""
    """Behind its last line, never cut."""

    spare: bool = False
    """The first to go where lines are short."""


@dataclass(frozen=True)
class Slot:
    """A label and the statements behind it, given how many lines there are."""

    name: str
    label: str
    items: Callable[[int], list[Item]]
    least: int = 1
    """Lines without which it is of no use: a command that is cut cannot be pasted."""


def lines(verdict: Verdict, language: Language, width: int = 110, report: str | None = None) -> list[str]:
    """The summary of a verdict: at most `MOST` lines of at most `width` columns (a Chinese character takes two).

    `report` is the path of the report, where there is one. A slot without content is left out. What does not fit is cut
    at a word with an ellipsis; it is whole in the report and in verdict.json.
    """
    width = max(width, NARROWEST)
    slots = _slots(verdict, language, report, width)
    for name in GIVE_WAY:
        if sum(s.least for s in slots) > MOST:
            slots = [s for s in slots if s.name != name]
    given = {s.name: min(s.least, MOST + 1 - len(slots)) for s in slots}
    most = {s.name: sum(len(_wrapped(i, width)) for i in s.items(MOST)) for s in slots}
    while sum(given.values()) < MOST and any(given[n] < most[n] for n in most):
        for name in GROWTH:
            if name in most and given[name] < most[name] and sum(given.values()) < MOST:
                given[name] += 1
    return [line for slot in slots for line in _slot_lines(slot, given[slot.name], width)]


def styles(verdict: Verdict) -> str:
    """Rich style of the first line: green, yellow or red by action."""
    return {"keep": "bold green", "change_next_run": "bold yellow", "stop": "bold red"}[verdict.action]


def _slots(v: Verdict, lang: Language, report: str | None, width: int) -> list[Slot]:
    """The slots that have content, in their order."""

    def plain(*texts: Text | None) -> list[Item]:
        return [Item(t.within(lang)) for t in texts if t is not None and clean(t.within(lang))]

    causes = [f for f in v.findings if f.severity != "note"]
    head = [Item(v.headline.within(lang), CONFIDENCE[v.confidence].within(lang))]
    content: dict[str, Callable[[int], list[Item]]] = {
        "saw": lambda n: plain(*v.saw[:3]),
        "why": lambda n: _why(v.findings, lang, n, report is not None),
        "learns": lambda n: plain(v.learns),
        "not_it": lambda n: plain(v.not_it),
        "test": lambda n: plain(v.separate),
        "do": lambda n: _do(v, lang, n, width),
        "check": lambda n: [Item(f.check) for f in v.findings[:1] if f.check],
        "better": lambda n: [] if v.separate else plain(*[f.remedy for f in causes[1:2]]),
        "next": lambda n: plain(*v.missing[:2]),
        "unknown": lambda n: plain(v.unknown),
        "report": lambda n: plain(same(report)) if report else [],
    }
    slots = [Slot("head", ACTIONS[v.action].within(lang), lambda n: head)]
    for name, items in content.items():
        if items(MOST):
            least = _pasted(_commands(v, width), width) if name == "do" else 1
            slots.append(Slot(name, LABELS[name].within(lang), items, max(1, least)))
    return slots


def _why(findings: tuple[Finding, ...], lang: Language, n: int, report: bool) -> list[Item]:
    """Two causes at most, each with its confidence; the others are counted. Beside a cause, a note is called normal."""
    shown = findings[: min(2, n)]
    mixed = any(f.severity != "note" for f in findings)
    items = [
        Item(
            (NORMAL.within(lang) if mixed and f.severity == "note" else "") + f.title.within(lang),
            CONFIDENCE[f.confidence].within(lang),
        )
        for f in shown
    ]
    rest = len(findings) - len(shown)
    if rest and items:
        where = Text(" in the report", "见报告") if report else Text(": --json", "见 --json")
        more = Text(f" (and {rest} more{where.en})", f"（另有 {rest} 个{where.zh}）")
        items[-1] = replace(items[-1], tail=more.within(lang))
    return items


def _commands(v: Verdict, width: int) -> list[Item]:
    """What to paste, row by row; a comment behind two spaces moves to a row of its own where there is no room."""
    items: list[Item] = []
    for row in (clean(row) for block in v.do for row in block.splitlines()):
        command, *comment = re.split(r" {2,}", row, maxsplit=1)
        if comment and cell_len(row) > width - LABEL:
            items += [Item(command), Item(comment[0], spare=True)]
        elif row:
            items.append(Item(row))
    return items


def _do(v: Verdict, lang: Language, n: int, width: int) -> list[Item]:
    """What to paste, under the sentence that says it; the sentence alone where there is nothing to paste."""
    commands = _commands(v, width)
    sentence = v.findings[0].remedy if v.findings else NOTHING if v.action == "keep" else None
    items = [Item(sentence.within(lang), spare=bool(commands))] if sentence else []
    items += commands
    pasted = _pasted(commands, width)
    while any(i.spare for i in items) and pasted + sum(i.spare for i in items) > n:
        items.remove(next(i for i in reversed(items) if i.spare))
    return items


def _pasted(commands: list[Item], width: int) -> int:
    """Lines of the commands alone."""
    return sum(len(_wrapped(i, width)) for i in commands if not i.spare)


def _wrapped(item: Item, width: int) -> list[str]:
    """The lines of one item, without label."""
    room = width - LABEL - (cell_len(item.right) + 2 if item.right else 0)
    text = clean(item.text)
    if SHELL.match(text):
        return wrap_shell(text, room)
    rows = wrap(text, room) or [""]
    if item.tail:
        whole = rows[-1] + item.tail
        rows = [*rows[:-1], whole] if cell_len(whole) <= room else [*rows, item.tail.strip()]
    return rows


def _shown(item: Item, n: int, width: int) -> list[str]:
    """The item in at most `n` lines, the last one cut where it has more."""
    rows = _wrapped(item, width)
    if len(rows) <= n:
        return rows
    room = width - LABEL - (cell_len(item.right) + 2 if item.right else 0)
    whole = clean(item.text)
    kept = rows[: n - 1]
    used = sum(len(r.removesuffix(" \\").replace(" ", "")) for r in kept)
    rest = _after(whole, used)
    return [*kept, cut(rest, room - cell_len(item.tail), always=True) + item.tail]


def _after(text: str, letters: int) -> str:
    """`text` without its first `letters` characters that are no spaces."""
    for at, letter in enumerate(text):
        if letters == 0 and letter != " ":
            return text[at:]
        letters -= letter != " "
    return ""


def _slot_lines(slot: Slot, n: int, width: int) -> list[str]:
    """A slot in exactly as many lines as it needs, `n` at most."""
    items = slot.items(n)[:n]
    extra = n - len(items)
    rows: dict[int, list[str]] = {}
    for at in sorted(range(len(items)), key=lambda i: items[i].spare):
        rows[at] = _shown(items[at], 1 + extra, width)
        extra -= len(rows[at]) - 1
    aligned = [(text, items[at].right if i == 0 else "") for at in sorted(rows) for i, text in enumerate(rows[at])]
    return [_line(slot.label if i == 0 else "", text, right, width) for i, (text, right) in enumerate(aligned)]


def _line(label: str, text: str, right: str, width: int) -> str:
    left = label + " " * (LABEL - cell_len(label)) + text
    gap = " " * (width - cell_len(left) - cell_len(right)) if right else ""
    return (left + gap + right).rstrip()
