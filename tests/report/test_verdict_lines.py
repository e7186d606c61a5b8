"""The summary on a terminal: its slots, its size, and what is never cut."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from runner.causes.catalogue import CAUSES, cause
from runner.causes.dialects import NAMES, fill
from runner.diagnosis.verdict import Confidence, Finding, Verdict
from runner.report.verdict_lines import ACTIONS, CONFIDENCE, LABELS, MOST, NARROWEST, lines, styles
from runner.text import Language, Text, same

VALUES: dict[str, object] = {"learning_rate_tenth": 1e-5, "warmup_three_percent": 9, "lora_learning_rate": 1e-4}
REPORT = "outputs/qwen14b_lora/2026-12-01_10-00-00/report.html"


def finding(id: str, confidence: Confidence = "likely") -> Finding:
    c = cause(id)
    changes = {tool: fill(c, tool, VALUES) for tool in NAMES}
    return Finding(c.id, c.code, c.title, confidence, 0.5, c.severity, (), c.would_change, c.check, c.remedy, changes)


def verdict(**changed: Any) -> Verdict:
    plain = Verdict(
        stability="normal",
        learning="yes",
        action="keep",
        confidence="likely",
        headline=Text("Healthy.", "正常。"),
        saw=(),
        findings=(),
        learns=None,
        not_it=None,
        separate=None,
        missing=(),
        unknown=Text("What the model writes was not read.", "未检查模型生成的内容。"),
        do=(),
        tool="runner",
        source={},
        numbers={},
    )
    return dataclasses.replace(plain, **changed)


FULL = verdict(
    action="change_next_run",
    saw=(same("loss 1 -> 2"), same("norm 9")),
    findings=tuple(finding(i) for i in ("optim.learning_rate_too_high", "precision.fp16_overflow", "data.bad_batch")),
    learns=same("eval 1.4 -> 1.3"),
    not_it=same("weight decay"),
    missing=(same("logging_steps=1"),),
    do=("python -m runner +exp=a optim.learning_rate=1.0e-05",),
)
ORDER = ["Saw", "Why", "Learns", "Not it", "Do", "Check", "Better", "Next", "Unknown", "Report"]

TEXTS = st.one_of(
    st.builds(Text, st.text(max_size=300), st.text(max_size=200)),
    st.builds(
        Text,
        st.text(alphabet="loss grad_norm 0.1 x\n", max_size=400),
        st.text(alphabet="学习率，loss。（） 1", max_size=300),
    ),
)
CONFIDENCES = st.sampled_from(list(CONFIDENCE))
COMMANDS = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(["python -m runner", "'a b'=1", "x" * 50, "k: 1\n", "  note"])).map(" ".join),
)
VERDICTS = st.builds(
    Verdict,
    stability=st.sampled_from(["normal", "broken"]),
    learning=st.sampled_from(["yes", "no"]),
    action=st.sampled_from(list(ACTIONS)),
    confidence=CONFIDENCES,
    headline=TEXTS,
    saw=st.lists(TEXTS, max_size=5).map(tuple),
    findings=st.lists(st.builds(finding, st.sampled_from(list(CAUSES)), CONFIDENCES), max_size=5).map(tuple),
    learns=st.none() | TEXTS,
    not_it=st.none() | TEXTS,
    separate=st.none() | TEXTS,
    missing=st.lists(TEXTS, max_size=3).map(tuple),
    unknown=TEXTS,
    do=st.lists(COMMANDS, max_size=4).map(tuple),
    tool=st.just("runner"),
    source=st.just({}),
    numbers=st.just({}),
    control=st.none(),
)


@settings(deadline=None, max_examples=80)
@given(VERDICTS, st.sampled_from(["en", "zh"]), st.integers(1, 160), st.none() | st.text(max_size=90))
def test_size_and_order_hold_for_any_verdict(v: Verdict, language: Language, width: int, report: str | None) -> None:
    shown = lines(v, language, width, report)
    assert 1 <= len(shown) <= MOST
    assert max(cell_len(line) for line in shown) <= max(width, NARROWEST)
    assert shown[0].startswith(ACTIONS[v.action].within(language))
    assert shown[0].endswith(CONFIDENCE[v.confidence].within(language))
    names = [text.within(language) for text in LABELS.values()]
    heads = [next((n for n in names if line.startswith(n + "  ")), None) for line in shown[1:]]
    places = [names.index(h) for h in heads if h]
    assert places == sorted(set(places))
    assert all(line.startswith(" " * 9) for line, head in zip(shown[1:], heads, strict=True) if head is None)
    assert all(line == line.rstrip() and "\n" not in line for line in shown)


def test_every_slot_in_its_order() -> None:
    shown = lines(FULL, "en", report=REPORT)
    assert [line.split("  ")[0] for line in shown if not line.startswith(" ")] == ["CHANGE", *ORDER]
    assert len(shown) == MOST


def test_the_same_slots_in_chinese() -> None:
    shown = lines(FULL, "zh", report=REPORT)
    heads = [line.split("  ")[0] for line in shown if not line.startswith(" ")]
    assert heads == ["调整", *[t.zh for t in LABELS.values() if t.en in ORDER]]
    texts = [line for line in shown if not line.startswith(" ")]
    starts = {cell_len(line) - cell_len(line[len(head) :].lstrip()) for line, head in zip(texts, heads, strict=True)}
    assert starts == {9}


def test_empty_slots_are_left_out() -> None:
    assert [line.split("  ")[0] for line in lines(verdict(), "en")] == ["KEEP", "Do", "Unknown"]
    assert lines(verdict(action="stop"), "en")[1].startswith("Unknown")


def test_confidence_stands_at_the_right_edge() -> None:
    for language in ("en", "zh"):
        shown = lines(FULL, language, 100)
        sure = [line for line in shown if line.endswith(("likely", "很可能"))]
        assert len(sure) == 3 and {cell_len(line) for line in sure} == {100}


def test_two_causes_and_the_rest_counted() -> None:
    shown = lines(FULL, "en", report=REPORT)
    at = next(i for i, line in enumerate(shown) if line.startswith("Why"))
    assert "steps overshoot" in shown[at] and "fp16 overflows" in shown[at + 1]
    assert "(and 1 more in the report)" in shown[at + 1]
    assert "bad" not in "".join(shown) and "Single batches" not in "".join(shown)
    assert "（另有 1 个见报告）" in "".join(lines(FULL, "zh", report=REPORT))
    assert "--json" in "".join(lines(FULL, "en"))


def test_a_note_beside_a_cause_is_called_normal() -> None:
    both = (finding("optim.learning_rate_low"), finding("data.sampling_noise"))
    assert "(normal) The oscillation" in "\n".join(lines(verdict(findings=both), "en"))
    assert "（正常）震荡" in "\n".join(lines(verdict(findings=both), "zh"))
    assert "(normal)" not in "\n".join(lines(verdict(findings=both[1:]), "en"))


def test_the_separating_experiment_has_its_own_slot() -> None:
    open_case = dataclasses.replace(FULL, separate=Text("Run it in fp32.", "用 fp32 跑一次。"))
    assert "Test     Run it in fp32." in lines(open_case, "en")
    assert "区分     用 fp32 跑一次。" in lines(open_case, "zh")
    assert not any(line.startswith("Better") for line in lines(open_case, "en"))


@pytest.mark.parametrize("width", [60, 80, 110])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_command_is_never_cut(language: Language, width: int) -> None:
    words = ["python", "-m", "runner", "+exp=qwen14b_lora", "name=two words", "dataset.max_length=1024"]
    words += ["batch.per_device_train_batch_size=4", "tracking.logging_steps=5", "optim.learning_rate=1.0e-05"]
    shown = lines(dataclasses.replace(FULL, do=(shlex.join(words),)), language, width, REPORT)
    first = next(i for i, line in enumerate(shown) if "python -m runner +exp" in line)
    last = next(i for i in range(first, len(shown)) if not shown[i].endswith("\\"))
    pasted = "\n".join(line[9:] if line.isascii() else line.split("  ")[-1] for line in shown[first : last + 1])
    assert shlex.split(pasted.replace("\\\n", "")) == words


def test_yaml_stays_one_key_a_line() -> None:
    shown = lines(verdict(do=("learning_rate: 2.0e-05\nwarmup_steps: 30",)), "en")
    assert "         warmup_steps: 30" in shown and any(s.endswith("learning_rate: 2.0e-05") for s in shown)


def test_a_comment_stays_beside_its_command_where_there_is_room() -> None:
    shown = lines(verdict(do=("python -m runner check  (1 min)",)), "en")
    assert any(s.endswith("python -m runner check  (1 min)") for s in shown)
    narrow = lines(verdict(do=("python -m runner check +exp=some_experiment  (one minute)",)), "en", 60)
    assert any(s.endswith("+exp=some_experiment") for s in narrow) and any(s.endswith("(one minute)") for s in narrow)


def test_nothing_is_cut_where_there_is_room() -> None:
    long = Text("word " * 40, "很长的句子，" * 20)
    assert "…" not in "".join(lines(verdict(unknown=long, headline=long), "en"))
    assert "…" not in "".join(lines(verdict(unknown=long, headline=long), "zh"))
    assert "word…" in "".join(lines(dataclasses.replace(FULL, unknown=long), "en", report=REPORT))


def test_styles() -> None:
    assert [styles(verdict(action=a)).split()[-1] for a in ACTIONS] == ["green", "yellow", "red"]
