"""The verdict as HTML: what a worried person reads first."""

from __future__ import annotations

from runner.diagnosis.verdict import Evidence, Finding, Verdict
from runner.report.page import words
from runner.report.page.html import both, element, escape, paste
from runner.text import Text, same


def chip(label: Text, value: Text, tone: str) -> str:
    """A question and its answer in one word."""
    return f'<div class="chip {tone}"><dt>{both(label)}</dt><dd>{both(value)}</dd></div>'


def hero(verdict: Verdict) -> str:
    """The word, the sentence, the three answers, and how sure they are."""
    tone = words.TONES[verdict.action]
    chips = [
        chip(Text("stability", "稳定性"), words.STABILITY[verdict.stability], words.TONES.get(verdict.stability, "")),
        chip(Text("learning", "在学习"), words.LEARNING[verdict.learning], words.TONES.get(verdict.learning, "")),
        chip(Text("action", "行动"), words.NEXT[verdict.action], tone),
    ]
    sure = f"<b>{both(words.CONFIDENCE[verdict.confidence])}</b>: {both(words.RULES[verdict.confidence])}"
    return (
        f'<section id="verdict" class="hero {tone}"><p class="word">{both(words.ACTIONS[verdict.action])}</p>'
        f'<div class="said"><h1>{both(verdict.headline)}</h1><p class="sure">{sure}</p></div>'
        f'<dl class="chips">{"".join(chips)}</dl></section>'
    )


def first_things(verdict: Verdict) -> str:
    """What the log shows, and what to do, side by side where there is room."""
    blocks = []
    if verdict.saw:
        blocks.append(titled(words.SAW, element("ul", "".join(element("li", both(t)) for t in verdict.saw), "saw")))
    if verdict.do:
        tool = words.TOOLS.get(verdict.tool, same(verdict.tool))
        blocks.append(titled(words.DO, paste(verdict.do, None if verdict.tool == "runner" else tool)))
    return element("div", "".join(blocks), "pair") if blocks else ""


def titled(title: Text, inner: str, kind: str = "block") -> str:
    """A block under its title."""
    return element("section", element("h2", both(title)) + inner, kind)


def causes(verdict: Verdict) -> str:
    """A card for each cause, notes last."""
    if not verdict.findings:
        return ""
    cards = "".join(card(f, verdict.tool, i == 0) for i, f in enumerate(verdict.findings))
    told = f'<p class="plain">{both(verdict.separate)}</p>' if verdict.separate else ""
    apart = titled(words.SEPARATE, told, "block apart") if told else ""
    return titled(words.WHY, f'<div class="cards">{cards}</div>', "block wide") + apart


def card(finding: Finding, tool: str, first: bool) -> str:
    """One cause: how sure, what speaks for it, what to do, how to check, what would overturn it."""
    tone = {"error": "bad", "warning": "warn", "note": "info"}[finding.severity]
    label = both(words.CONFIDENCE[finding.confidence])
    if finding.severity == "note":
        label = f"{both(Text('for information', '供参考'))} · {label}"
    code = f" · {escape(finding.code)}" if finding.code else ""
    evidence = "".join(evidence_line(e) for e in finding.evidence)
    own = {k: v for k, v in finding.changes.items() if k == tool}
    other = {k: v for k, v in finding.changes.items() if k != tool and v}
    remedy = paste(own.get(tool, ()), words.TOOLS.get(tool) if tool != "runner" else None)
    if other:
        rest = "".join(paste(v, words.TOOLS.get(k, same(k))) for k, v in other.items())
        remedy += element("details", f"<summary>{both(Text('for other tools', '其他工具的写法'))}</summary>{rest}")
    parts = [
        f'<p class="tags"><span class="tag {tone}">{label}</span></p>',
        f"<h3>{both(finding.title)}</h3>",
        element("ul", evidence, "evidence") if evidence else "",
        labelled(Text("What to do", "怎么办"), both(finding.remedy)) + remedy,
        labelled(Text("Check it", "验证"), "") + paste((finding.check,)) if finding.check else "",
        labelled(Text("What would change this", "什么会推翻它"), both(finding.would_change)),
        f'<p class="slug">{escape(finding.id)}{code}</p>',
    ]
    return element("article", "".join(parts), f"card {tone}{' first' if first else ''}")


def labelled(label: Text, inner: str) -> str:
    """A line with a small title."""
    return f'<p class="labelled"><span class="label">{both(label)}</span>{inner}</p>'


def evidence_line(evidence: Evidence) -> str:
    """One observation; its steps are buttons that lead to the charts."""
    steps = "".join(f'<button type="button" class="go" data-step="{int(s)}">{int(s)}</button>' for s in evidence.steps)
    at = f' <span class="steps">{both(Text("step", "步"))} {steps}</span>' if steps else ""
    return element("li", both(evidence.text) + at)


def rest(verdict: Verdict) -> str:
    """Learning, what it is not, what is not known, what is missing."""
    blocks = [
        titled(title, f'<p class="plain">{both(text)}</p>')
        for title, text in (
            (words.LEARNS, verdict.learns),
            (words.NOT_IT, verdict.not_it),
            (words.UNKNOWN, verdict.unknown),
        )
        if text is not None and (text.en or text.zh)
    ]
    if verdict.missing:
        lines = "".join(element("li", both(t)) for t in verdict.missing)
        blocks.append(titled(words.MISSING, element("ul", lines)))
    return element("div", "".join(blocks), "pair")
