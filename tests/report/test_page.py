"""The text of `report.html`."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.diagnosis.trace import RunFacts, Trace
from runner.report.page import write_page
from runner.report.page.html import embed, escape, paste, split_comment
from runner.report.page.numbers import numbers_table
from runner.report.page.settings import cure, settings_table
from runner.report.page.settings import settings as differing
from runner.report.page.write import page
from runner.text import Text
from tests.report import traces

VOID = ("meta", "link", "br", "input", "img", "hr")


class Checker(HTMLParser):
    """Fails on a tag that is closed out of order, and collects what the tests look at."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        self.loads += [str(known[k]) for k in ("src", "href", "srcset", "action", "data") if k in known]
        assert not [k for k in known if k.startswith("on")], "no handlers in attributes"
        if tag == "script":
            self.scripts.append((known, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            known, before = self.scripts[-1]
            self.scripts[-1] = (known, before + data)
        elif not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(next(s for known, s in self.scripts if known.get("id") == "data"))
        return found


def parsed(words: str) -> Checker:
    """The page, whole and in order."""
    checker = Checker()
    checker.feed(words)
    checker.close()
    assert checker.open == [] and len(checker.scripts) == 3
    return checker


def strict_json(checker: Checker) -> None:
    """No NaN or Infinity, which browsers refuse."""
    found = next(s for known, s in checker.scripts if known.get("id") == "data")
    json.loads(found, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


CASES = {
    "healthy": (traces.healthy(), traces.verdict()),
    "broken": (traces.broken(), traces.stop()),
    "foreign": (traces.foreign(), traces.verdict(action="keep", tool="llamafactory")),
    "eval only": (traces.eval_only(), traces.verdict()),
    "no point": (traces.foreign(0), traces.verdict(findings=(), saw=(), do=(), numbers={})),
    "one point": (traces.foreign(1), traces.verdict(stability="cannot_tell", learning="cannot_tell")),
    "short run": (traces.healthy(3), traces.verdict()),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_is_whole_and_asks_for_nothing(case: str, language: Any, tmp_path: Path) -> None:
    trace, verdict = CASES[case]
    write_page(trace, verdict, tmp_path / "new" / "report.html", language)
    words = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    checker = parsed(words)
    strict_json(checker)
    assert checker.loads == ["data:,"]
    assert not re.search(r"@import|url\((?!#)(?!\$)|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", words)
    assert re.findall(r"https?://[^\"'<) ]+", words) in ([], ["http://www.w3.org/2000/svg"]), "only SVG's own name"
    assert "default-src 'none'" in words and f'data-lang="{language}"' in words
    assert verdict.headline.en in checker.text and verdict.headline.zh in checker.text
    assert {"keep": "KEEP", "change_next_run": "CHANGE", "stop": "STOP"}[verdict.action] in checker.text
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["report.html"]


def test_the_verdict_comes_first_then_charts_numbers_config() -> None:
    words = page(*CASES["healthy"], "en")
    places = [words.index(f'id="{key}"') for key in ("verdict", "charts", "numbers", "config", "read")]
    assert places == sorted(places)
    text = parsed(words).text
    for said in ("98 % of the movement", "python -m runner prove outputs/qwen14b_lora", "batch.sampler=stratified",
                 "movement above 1.5 times the prediction", "answers were not read", "how long a step is",
                 "they change the movement by about 0 %", "noise.sampling · E1", "学习率对 LoRA 来说偏低"):  # fmt: skip
        assert said in text, said


def test_the_charts_are_those_that_have_data() -> None:
    keys = {case: [c["key"] for c in parsed(page(*CASES[case], "en")).data["charts"]] for case in CASES}
    assert keys["healthy"] == [
        "loss", "grad_norm", "learning_rate", "sources", "update_ratio", "loss_scale", "noise_scale",
        "second_moment", "probes", "replay", "line_probe",
    ]  # fmt: skip
    assert keys["foreign"] == keys["one point"] == ["loss", "grad_norm", "learning_rate"]
    assert keys["eval only"] == ["loss"] and keys["no point"] == []
    assert 'id="plots"' not in page(*CASES["no point"], "en")


def test_exact_values_and_every_broken_point_reach_the_page() -> None:
    trace = traces.broken()
    loss = next(c for c in parsed(page(trace, traces.stop(), "en")).data["charts"] if c["key"] == "loss")
    raw = loss["lines"][0]
    there = {x: y for x, y in zip(raw["x"], raw["y"], strict=True) if y is not None}
    finite = trace.loss.finite
    assert list(there) == trace.step[finite].tolist()
    assert list(there.values()) == pytest.approx(trace.loss.values[finite], rel=1e-8)
    assert raw["lost"] == [[141, 300, 160, "NaN"]]


evil = st.one_of(
    st.text(max_size=40),
    st.sampled_from([
        "</script><script>alert(1)</script>", "<!--<script>", "]]>", "<img src=x onerror=alert(1)>", "' onload='x",
        '" autofocus onfocus="x', "&lt;b&gt;", "\u2028\u2029", "\ud800", "\udcff.jsonl", "\x00\x1b[31m", "</style>",
        "</title>", "`${alert(1)}`", "</textarea>", "javascript:alert(1)",
    ]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(evil, evil)
def test_no_name_in_a_run_can_become_markup(name: str, other: str) -> None:
    trace = traces.healthy(12)
    assert trace.facts is not None
    said = Text(name, other)
    trace.facts.config = traces.config(name=name) | {other or "x": name}
    trace.facts.incidents = [{"step": 3, "sentence": other}]
    trace = dataclasses.replace(trace, path=Path("/runs") / (other.replace("/", "_").replace("\0", "") or "x"),
                                sources={name: trace.loss, other + "2": trace.loss}, notes=[said])  # fmt: skip
    found = traces.finding(title=said, check=name, remedy=said, changes={"runner": (other,), name: (other,)})
    verdict = traces.verdict(headline=said, saw=(said,), do=(name, other), findings=(found,), unknown=said,
                             numbers={name: other, other: [name], "x": {name: name}}, tool=name)  # fmt: skip
    words = page(trace, verdict, "en")
    checker, calm = parsed(words), parsed(page(*CASES["healthy"], "en"))
    assert checker.loads == ["data:,"] and set(checker.tags) <= set(calm.tags)
    assert checker.data["sentences"] == {"3": other} or not other
    words.encode("utf-8")


@given(st.recursive(st.none() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_embedded_json_says_the_same_and_holds_no_markup(content: Any) -> None:
    words = embed(content)
    assert not set("<>&\u2028\u2029") & set(words)
    json.loads(words, parse_constant=lambda word: pytest.fail(word))
    assert embed(json.loads(words)) == words


def test_what_stands_for_text_is_left_out_when_redacted() -> None:
    trace, verdict = traces.healthy(), traces.verdict()
    assert trace.facts is not None
    trace.facts.incidents[0]["rows"] = [{"row_id": 3, "text": "a row of the data"}]
    trace.facts.incidents[0]["text"] = "a row of the data"
    told, redacted = page(trace, verdict, "en"), page(trace, verdict, "en", redact=True)
    assert "a row of the data" not in told + redacted, "no row of the data, ever"
    assert "rows 88 and 1041" in told and "rows 88 and 1041" not in redacted
    assert "harbour master" in told and "harbour master" not in redacted
    assert [e["count"] for e in parsed(redacted).data["events"] if e["kind"] == "incident"] == [1]


def test_a_hundred_thousand_points_are_thinned_and_keep_their_extremes(tmp_path: Path) -> None:
    trace = traces.healthy(100_000)
    trace.loss.values[77_777] = 50.0
    trace.loss.values[33_333] = np.nan
    write_page(trace, traces.verdict(), tmp_path / "report.html", "en")
    checker = parsed((tmp_path / "report.html").read_text(encoding="utf-8"))
    lines = [line for chart in checker.data["charts"] for line in chart["lines"]]
    assert max(len(line["x"]) for line in lines) <= 4000
    raw = lines[0]
    assert raw["of"] == 100_000 and raw["y"][raw["x"].index(77_778)] == 50.0
    assert raw["lost"] == [[33_334, 33_334, 1, "NaN"]]
    assert (tmp_path / "report.html").stat().st_size < 3e6


def test_commands_are_copied_without_their_comments() -> None:
    assert split_comment("python -m runner cure x  (~40 min)") == ("python -m runner cure x", "(~40 min)")
    assert split_comment("  lr: 1.0e-4") == ("  lr: 1.0e-4", "") and split_comment("") == ("", "")
    assert paste(["a  <b>"]).count("<code>a</code>") == 1 and "&lt;b&gt;" in paste(["a  <b>"])
    assert paste([]) == "" and escape("\x07<\ud800") == "\ufffd&lt;\ufffd"


def test_numbers_are_shown_with_interval_and_meaning_known_or_not() -> None:
    numbers = {"kappa": 0.78, "kappa_interval": [0.66, 0.93], "r_squared": 0.98, "line_s": 1.0, "line_s_low": 0.9,
               "line_s_high": 1.1, "clip_share": 0.03, "novel": {"thing": 12345, "none": None},
               "bad": float("nan")}  # fmt: skip
    table = parsed_text(numbers_table(numbers))
    for said in ("κ (kappa)", "0.66 … 0.93", "0.9 … 1.1", "3.0%", "novel.thing", "12,345", "nan", "–"):
        assert said in table, said
    assert "kappa interval" not in table and "0.6 to 1.5 is noise" in table and numbers_table({}) == ""


def parsed_text(words: str) -> str:
    """What a fragment shows."""
    checker = Checker()
    checker.feed(words)
    assert checker.open == []
    return checker.text


def test_the_configuration_shows_what_differs_and_what_would_cure() -> None:
    config, verdict = traces.config(), traces.verdict()
    assert cure(verdict) == {"optim.learning_rate": "1e-4", "precision.compute": "bf16"}, "a note is no cure"
    rows = {row.key: row for row in differing(config, cure(verdict))}
    assert rows["optim.learning_rate"][1:] == (1e-5, None, "1e-4")
    assert rows["precision.compute"][1:] == ("fp16", "auto", "bf16")
    assert rows["model.path"].suggested is None and "seed" not in rows and "output_dir" not in rows
    text = parsed_text(settings_table(config, verdict, redact=False))
    assert text.index("optim.learning_rate") < text.index("model.path") and "1e-05" in text
    group = traces.verdict(findings=(traces.NAN,))
    row = next(row for row in differing(config, cure(group)) if row.key == "precision")
    assert row[1:] == ("compute=fp16", "compute=auto", "bf16"), "a group is shown by its first setting"
    from runner.config.schema import Config

    default = settings_table(dataclasses.asdict(Config()), traces.verdict(findings=()), redact=False)
    assert "Every setting is the default" in parsed_text(default)


def test_a_run_folder_without_anything_in_it_has_a_page() -> None:
    empty = traces.foreign(0)
    facts = RunFacts(config={}, run={}, summary={}, probes=[{"probe": "line"}, {}], noise={}, incidents=[{}])
    trace: Trace = dataclasses.replace(empty, facts=facts, evaluations=[])
    checker = parsed(page(trace, traces.verdict(), "zh"))
    assert "没有可画的数据" in checker.text and 'id="config"' not in page(trace, traces.verdict(), "zh")
