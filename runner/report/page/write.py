"""`write_page`: the parts of the page put together."""

from __future__ import annotations

import os
from pathlib import Path

from runner.diagnosis.trace import Trace
from runner.diagnosis.verdict import Verdict
from runner.report.page import words
from runner.report.page.data import chart_data
from runner.report.page.html import both, element, embed, escape
from runner.report.page.numbers import numbers_table
from runner.report.page.settings import settings_table
from runner.report.page.verdict import causes, first_things, hero, rest
from runner.text import Language, Text, same

HERE = Path(__file__).parent

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Nothing may be fetched, whatever a name in the run contains."""


def write_page(trace: Trace, verdict: Verdict, path: Path, language: Language, redact: bool = False) -> None:
    """Write `report.html`, which opens in `language` and can switch to the other.

    The page holds no row of the training data. `redact` also leaves out the sentences of incidents, which may quote a
    token, and a system prompt in the configuration. The file is replaced as a whole.
    """
    content = page(trace, verdict, language, redact).encode("utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)


def page(trace: Trace, verdict: Verdict, language: Language, redact: bool = False) -> str:
    """The whole document."""
    title = name_of(trace)
    data = chart_data(trace, redact)
    body = "".join(
        [
            header(trace, title),
            "<main>",
            hero(verdict),
            first_things(verdict),
            causes(verdict),
            rest(verdict),
            chart_section(len(data["charts"])),
            section("numbers", words.NUMBERS, numbers_table(verdict.numbers)),
            section("control", words.CONTROL, numbers_table(verdict.control or {})),
            section("config", words.CONFIG, config_part(trace, verdict, redact)),
            section("read", words.READ, what_was_read(trace)),
            "</main>",
        ]
    )
    return (
        f'<!doctype html>\n<html lang="{"zh-CN" if language == "zh" else "en"}" data-lang="{language}"><head>'
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="data:,"><title>{escape(words.ACTIONS[verdict.action].within(language))} · '
        f"{escape(title)}</title><style>{asset('page.css')}</style></head><body>{body}"
        f'<script type="application/json" id="data">{embed(data)}</script>'
        f"<script>{asset('tools.js')}{asset('charts.js')}</script><script>{asset('page.js')}</script></body></html>\n"
    )


def asset(name: str) -> str:
    """Style or script that lies beside this file."""
    return (HERE / name).read_text(encoding="utf-8")


def name_of(trace: Trace) -> str:
    """What to call the run: folder and its parent's name, or the file's."""
    config = trace.facts.config if trace.facts is not None else {}
    name = config.get("name")
    return f"{name}/{trace.path.name}" if isinstance(name, str) and name else trace.path.name


def header(trace: Trace, title: str) -> str:
    """Name of the run, kind of log, language switch."""
    kind = both(words.KINDS.get(trace.kind, same(trace.kind)))
    facts = [kind, size(trace)]
    run = trace.facts.run if trace.facts is not None else {}
    if run.get("state"):
        state = str(run["state"])
        facts.append(both(words.STATES.get(state, same(state))))
    return (
        f'<header><div class="name" title="{escape(str(trace.path))}">{escape(title)}</div>'
        f'<div class="facts">{" · ".join(facts)}</div>'
        '<button type="button" id="language"><span class="en" lang="zh">中文</span>'
        '<span class="zh" lang="en">English</span></button></header>'
    )


def size(trace: Trace) -> str:
    """ "470 of 500 steps" or "60 points up to step 300"."""
    if not len(trace.step):
        return both(Text("no training points", "没有训练记录"))
    last, points = int(trace.step[-1]), trace.points
    planned = f" / {trace.max_steps:,}" if trace.max_steps else ""
    return both(Text(f"step {last:,}{planned}, {points:,} points", f"第 {last:,}{planned} 步，{points:,} 个点"))


def section(key: str, title: Text, inner: str) -> str:
    """A section with an anchor; "" where it would be empty."""
    return f'<section id="{key}" class="block wide"><h2>{both(title)}</h2>{inner}</section>' if inner else ""


def chart_section(n: int) -> str:
    """The place that `charts.js` fills, its toolbar, and what a browser without scripts shows."""
    if not n:
        return section("charts", words.CHARTS, element("p", both(Text("Nothing to draw.", "没有可画的数据。"))))
    reset = both(Text("Whole run", "显示全程"))
    hint = Text("Drag across a chart to zoom in on all, double click to go back. A name in a legend hides its line.",
                "在任一图上横向拖动即可放大（所有图同步），双击还原；点击图例可隐藏曲线。")  # fmt: skip
    tools = (
        f'<div class="toolbar"><span id="where"></span><button type="button" id="reset" disabled>{reset}</button></div>'
        f'<p class="hint">{both(hint)}</p><div id="events"></div>'
    )
    script = f"<noscript><p>{both(Text('The charts need JavaScript.', '图表需要 JavaScript。'))}</p></noscript>"
    return section("charts", words.CHARTS, f'{tools}{script}<div id="plots"></div>')


def config_part(trace: Trace, verdict: Verdict, redact: bool) -> str:
    """Configuration of a run folder; a foreign log has none."""
    if trace.facts is None or not trace.facts.config:
        return ""
    return settings_table(trace.facts.config, verdict, redact)


def what_was_read(trace: Trace) -> str:
    """Path, counts of what was repeated or unreadable, and the reader's notes."""
    lines = [f"<code>{escape(str(trace.path))}</code>", size(trace)]
    if trace.repeated:
        n = trace.repeated
        lines.append(both(Text(f"{n:,} points were made again after a resume; the last value counts",
                               f"{n:,} 个点在续训后重新记录，以最后一次为准")))  # fmt: skip
    if trace.unreadable:
        n = trace.unreadable
        lines.append(both(Text(f"{n:,} lines could not be read", f"{n:,} 行无法读取")))
    if trace.steps_counted:
        lines.append(
            both(Text("the log has no steps: its points were counted from 1", "日志没有步数：按顺序从 1 计数"))
        )
    lines += [both(note) for note in trace.notes]
    return element("ul", "".join(element("li", line) for line in lines))
