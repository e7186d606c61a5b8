from __future__ import annotations

import json

from runner.data.report import DataReport, SourceReport


def make():
    source = SourceReport(
        "rows.json", "alpaca", True, read=20, duplicates=2, first_duplicate="s/4", beyond_max_samples=3
    )
    source.kept, source.train, source.validation, source.not_drawn = 12, 10, 2, 1
    source.total_tokens, source.supervised_tokens = 1000, 250
    source.drop("empty answer", "s/7")
    source.drop("empty answer", "s/9")
    source.adjust("output was a int, made text", "s/1")
    source.truncated, source.first_truncated = 4, "s/2"
    return DataReport(sources={"s": source}, notes=["a note"])


def test_lines_mention_everything():
    assert make().lines() == [
        "s: 20 rows read (alpaca, recognised): 10 train, 2 validation, 3 beyond max_samples, 1 not drawn by interleave",
        "  250 of 1,000 training tokens carry loss (25%), 750 do not",
        "  dropped 2: exact duplicate (first: s/4)",
        "  dropped 2: empty answer (first: s/7)",
        "  cut 4: longer than max_length (first: s/2)",
        "  changed 1: output was a int, made text (first: s/1)",
        "note: a note",
    ]


def test_as_dict_is_json():
    plain = json.loads(json.dumps(make().as_dict()))
    assert plain["sources"]["s"]["dropped"] == {"empty answer": {"rows": 2, "first": "s/7"}}
    assert plain["sources"]["s"]["unsupervised_tokens"] == 750
    assert plain["notes"] == ["a note"]


def test_classes_and_a_note_only_once():
    report = DataReport(task="classification", classes={"train": {"a": 1200, "b": 3}})
    report.note("x")
    report.note("x")
    assert report.lines() == ["labels, train: a 1,200, b 3", "note: x"]
