"""E7 to E9: every fault is planted in the rows, or in the order of training, and seen as that alone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.config.compose import load
from runner.preflight.rows.classes import (
    balance_findings,
    continuous,
    gaps,
    hardly_repeat,
    look_alike,
    name_findings,
    unlabelled,
)
from runner.preflight.rows.classes_and_order import classes, duplicates, order, order_findings, outliers
from runner.preflight.rows.outliers import (
    REPEATS,
    alphabet,
    brace_rows,
    control_rows,
    longest_repeat,
    placeholders,
    replacement_rows,
    shortened,
    token_bytes,
    too_long,
)
from runner.preflight.rows.shuffled import mixing, repeated

from .kit_data import EVERY, alone, chat, dataset, findings, noted, rows_of, stopped

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def composes(overrides, *first):
    assert overrides
    load([*(first or ("dataset=demo_mix",)), *overrides])


def labelled(labels):
    return rows_of([{"text": f"warm and cold {i}", "label": label} for i, label in enumerate(labels)], "classification")


# E7


@pytest.mark.parametrize(
    ("labels", "severity", "where", "words"),
    [
        ([round(i / 7, 3) for i in range(24)], "error", "dataset.sources.s.columns.label", "24 different numbers"),
        ([f"a sentence {i}" for i in range(24)], "error", "dataset.sources.s.columns.label", "most come once"),
        ([(-1, 0, 1, 2)[i % 4] for i in range(24)], "warning", "-1", "6 of 24 rows have the label -1"),
        ([("Good", "good ", "bad")[i % 3] for i in range(24)], "warning", "Good", "'Good' 8, 'good' 8"),
        ([("a", "b", None)[i % 3] for i in range(24)], "warning", "s/2", "no label"),
        ([("a", "b", None, None)[i % 4] for i in range(24)], "error", "s/2", "12 of 24 rows"),
    ],
)
def test_labels_that_are_none(context, labels, severity, where, words):
    c = context("data", task="classification", spoil=labelled(labels))
    seen = alone(c, "labels.ids_or_dtype", severity)
    assert seen.where[0] == where and words in seen.sentence


def test_a_label_without_rows(context):
    c = context("data", task="classification", task__labels=["neg", "neu", "pos", "mixed"])
    seen = alone(c, "labels.ids_or_dtype", "warning")
    assert seen.where == ("mixed",) and "1 of 4 labels" in seen.sentence


def test_most_texts_empty(context):
    rows = [{"text": f"warm {i}" if i % 3 == 0 else " ", "label": "ab"[i % 2]} for i in range(24)]
    seen = alone(
        context("data", task="classification", spoil=rows_of(rows, "classification")), "data.bad_batch", "warning"
    )
    assert seen.where == ("s/1",) and "16 of 24 rows" in seen.sentence


@pytest.mark.parametrize(
    ("labels", "configured", "where"),
    [
        (["a", "b", "c"], ["a", "b"], ("s/2",)),
        (["a", "a", "a"], None, ("s/0",)),
        ([-1, -1, -1], None, ("s/0",)),
        ([None, None, None], None, ("s", "s/0")),
    ],
)
def test_labels_that_stop_the_loading(make_config, tmp_path, labels, configured, where):
    cfg = make_config("classification", task__labels=configured)
    labelled(labels)(cfg)
    seen = stopped(cfg, tmp_path)
    assert (seen.id, seen.severity, seen.where) == ("labels.ids_or_dtype", "error", where)


def test_numbers_with_a_gap(context):
    c = context("data", task="classification", spoil=labelled([(0, 1, 3)[i % 3] for i in range(24)]))
    assert "id 2 is label 3" in noted(c, "labels.ids_or_dtype").sentence


@pytest.mark.parametrize("kinds", [(1, 2, 3, 4, 5), (-1, 1), ("good", "bad"), (0.5, 1, 1.5, 2), (True, False)])
def test_ordinary_labels(context, kinds):
    labels = [kinds[i % len(kinds)] for i in range(24)]
    c = context("data", task="classification", spoil=labelled(labels))
    assert [f for f in findings(c) if f.severity != "note"] == []
    assert len(classes(c).findings) == (kinds == (1, 2, 3, 4, 5))  # 0 is not among them


def test_ids_out_of_range(context):
    c = context("data", task="classification")
    c.data = dataclasses.replace(c.data, train=dataset([([5, 6], 0), ([7, 8], 2), ([9, 9], -1), ([5, 9], 3)]))
    (seen,) = classes(c).findings
    assert (seen.id, seen.severity, seen.where) == ("labels.ids_or_dtype", "error", ("s/2", "s/3"))


@pytest.mark.parametrize(("rare", "usual", "severity"), [(1, 37, "warning"), (3, 37, "note"), (6, 70, "note")])
def test_one_sided_classes(context, rare, usual, severity):
    labels = ["rare"] * rare + ["usual"] * usual
    spoil = labelled(labels)
    c = context("data", task="classification", spoil=spoil)
    (seen,) = findings(c)
    assert (seen.id, seen.severity, seen.where) == ("data.class_balance", severity, ("rare",))
    # A class of one or three rows may be a misspelt label, which no weight mends.
    assert bool(seen.overrides) == (rare >= 5)
    if seen.overrides:
        composes(seen.overrides, "task=classification", "dataset=sentiment_zh")
    assert findings(context("data", task="classification", spoil=spoil, task__class_weights="balanced")) == []


# E8


def twins(rows, times):
    return [chat(i) for i in range(rows - times)] + [chat(i) for i in range(times)]


@pytest.mark.parametrize(("rows", "times", "severity"), [(20, 2, "warning"), (40, 1, "note")])
def test_duplicates_that_are_kept(context, rows, times, severity):
    c = context("data", spoil=rows_of(twins(rows, times)), dataset__dedup="off")
    (seen,) = findings(c)
    assert (seen.id, seen.severity) == ("data.duplicated", severity)
    assert seen.where == tuple(f"s/{rows - times + i}" for i in range(times))
    composes(seen.overrides)


def test_duplicates_that_were_dropped(context):
    c = context("data", spoil=rows_of(twins(20, 4)))
    seen = noted(c, "data.duplicated")
    assert seen.where == ("s/16",) and "4 of 20 rows read" in seen.sentence
    assert findings(context("data", spoil=rows_of(twins(40, 1)))) == []


def test_held_out_rows_that_are_trained_on(context):
    from runner.config.schema import Validation

    rows = [chat(i) for i in range(30)] * 2
    held = Validation(fraction=0.3)
    c = context("data", spoil=rows_of(rows), dataset__dedup="off", dataset__validation=held)
    text = {json.dumps(ids) for ids in c.data.train["input_ids"]}
    twice = {
        r
        for r, ids in zip(c.data.validation["row_id"], c.data.validation["input_ids"], strict=True)
        if json.dumps(ids) in text
    }
    kept = [f for f in duplicates(c).findings if f.id == "data.validation_overlap"]
    assert len(kept) == 1 and kept[0].severity == "warning" and twice
    assert kept[0].numbers == {"overlap": len(twice), "validation": 18} and set(kept[0].where) <= twice
    composes(kept[0].overrides)
    mended = context("data", spoil=rows_of(rows), dataset__validation=held)
    assert {f.id for f in duplicates(mended).findings} == {"data.duplicated"}  # only told that they were dropped


def test_overlap_alone(context):
    from runner.config.schema import Validation

    c = context("data", dataset__validation=Validation(fraction=0.3))
    assert findings(c) == []
    c.data = dataclasses.replace(
        c.data, train=c.data.train.select(range(10)), validation=c.data.train.select(range(9, 12))
    )
    seen = alone(c, "data.validation_overlap", "warning")
    assert seen.where == (c.data.validation["row_id"][0],)


def test_a_text_with_two_labels(context):
    rows = [{"text": f"warm {i % 18}", "label": "ab"[(i >= 18) ^ i % 2]} for i in range(20)]
    c = context("data", task="classification", spoil=rows_of(rows, "classification"))
    seen = alone(c, "data.hard_labels", "warning")
    assert seen.where == ("s/0", "s/1", "s/18", "s/19")


def told_by_length(rows):
    return [{"text": ("warm " * (2 + i % 3 + 12 * (i % 2))) + str(i), "label": "ab"[i % 2]} for i in range(rows)]


def test_length_that_tells_the_label(context):
    """E8: batches of rows of like length hold one label each."""
    spoil = rows_of(told_by_length(160), "classification")
    c = context("data", task="classification", spoil=spoil, batch__sampler="length_grouped")
    seen = alone(c, "data.order", "warning")
    assert seen.where == ("batch.sampler",) and seen.numbers["correlation"] > 0.8
    assert seen.numbers["blocks_of_one"] > 0.8 and seen.numbers["blocks_of_one_shuffled"] < 0.02
    composes(seen.overrides, "task=classification", "dataset=sentiment_zh")
    for sampler in ("random", "stratified"):
        assert findings(context("data", task="classification", spoil=spoil, batch__sampler=sampler)) == []


def test_length_that_tells_the_source_is_noted(context):
    c = context("data", rows=120, batch__sampler="length_grouped")
    seen = noted(c, "data.length_grouping")
    composes(seen.overrides)
    assert findings(context("data", rows=120)) == []


def test_orders_of_two_epochs():
    same, other = np.array([2, 0, 1, 3]), np.array([3, 1, 0, 2])
    assert order_findings([same, other], 4) == []
    (equal,) = order_findings([same, same], 4)
    assert (equal.id, equal.severity) == ("data.order", "warning")
    (twice,) = order_findings([np.array([2, 0, 2, 3]), other], 4)
    assert (twice.id, twice.severity, twice.numbers) == ("data.duplicated", "error", {"repeated": 1})
    assert order_findings([np.array([0, 1]), np.array([0, 1])], 2) == []
    assert repeated(np.array([0, 2, 2, 1, 1]), 4).tolist() == [1, 2]


def test_sorted_rows_are_clumps():
    blocks = np.repeat([0, 1, 2], 80)
    seen = mixing(blocks, 8)
    assert seen.alone == 1.0 and seen.correlation == pytest.approx(1.0, abs=0.05) and seen.sigmas > 30
    even = mixing(np.tile([0, 1], 80), 8)
    assert even.alone == 0.0 and even.correlation == pytest.approx(-1 / 7, abs=1e-3)


def test_expectations_against_a_thousand_shuffles():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [60, 25, 15])
    seen = [mixing(rng.permutation(groups), 4) for _ in range(2000)]
    assert np.mean([m.correlation for m in seen]) == pytest.approx(0.0, abs=0.004)
    assert np.mean([m.alone for m in seen]) == pytest.approx(seen[0].alone_shuffled, rel=0.05)
    assert np.std([m.sigmas for m in seen]) == pytest.approx(1.0, abs=0.15)


def test_nothing_to_mix():
    for groups, block in ((np.zeros(40, dtype=int), 8), (np.array([0, 1, 0, 1]), 4), (np.array([0, 1, 0, 1]), 1)):
        assert np.isnan(mixing(groups, block).correlation)


# E9


def test_a_row_far_longer_than_the_others(context):
    rows = [chat(i, answer=f"it is {i} " * 60 if i == 11 else "") for i in range(40)]
    seen = noted(context("data", spoil=rows_of(rows), dataset__max_length=400), "data.bad_batch")
    assert seen.where == ("s/11",) and seen.numbers["outliers"] == 1


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("it was \ufffd broken", "U+FFFD"),
        ("it was 黑\ufffd白", "U+FFFD"),
        ("it rang \x07 once", "control"),
        ("a" * 150, "repeated"),
        ("啊" * 90, "repeated"),
        ("龘" * 60, "repeated"),
    ],
)
def test_rows_of_odd_characters(context, broken, words):
    rows = [chat(i, answer=broken if i == 11 else "it is number one of the list " * 4) for i in range(40)]
    seen = alone(context("data", spoil=rows_of(rows)), "data.bad_batch", "warning")
    assert seen.where == ("s/11",) and words in seen.sentence


def test_few_odd_rows_are_noted(context):
    rows = [chat(i, answer="it \ufffd" if i == 11 else "") for i in range(120)]
    assert noted(context("data", spoil=rows_of(rows)), "data.bad_batch").where == ("s/11",)


def test_ordinary_text_is_not_odd(context):
    texts = [
        "，。！？：；“”",
        "|---|---|\n|-----|",
        "x" * 60,
        "=" * 80,
        "\t\n",
        "🎉🎉🎉 ünïcödé",
        "｛｛全角｝｝",
        "{'a': {'b': 1}}",
    ]
    rows = [chat(i, answer=f"{texts[i % len(texts)]} and {i}") for i in range(40)]
    assert findings(context("data", spoil=rows_of(rows))) == []


def test_placeholders_that_nobody_filled_in(context):
    rows = [chat(i, answer=f"I am {{{{name}}}}, number {i}" if i % 2 else "") for i in range(20)]
    seen = alone(context("data", spoil=rows_of(rows)), "data.bad_batch", "warning")
    assert seen.where[:2] == ("s", "s/1") and "{{name}} in up to 10 of 20 rows" in seen.sentence
    few = [chat(i, answer="use {{ name }} in the template" if i < 2 else "") for i in range(20)]
    assert findings(context("data", spoil=rows_of(few), dataset__dedup="off")) == []


# Pure functions


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["-1", "0", "1"], "note"),
        (["-1", "0", "1", "2"], "warning"),
        (["-1", "0"], "warning"),
        (["-1", "1"], None),
        (["-1", "a"], None),
        (["0", "1"], None),
        (["-1.0", "0.0", "3.0"], "warning"),
    ],
)
def test_minus_one(names, expected):
    assert unlabelled(names) == expected


def test_numbers_that_are_no_classes():
    assert continuous([str(i / 2) for i in range(11)]) and not continuous([str(i / 2) for i in range(10)])
    assert not continuous([str(i) for i in range(100)]) and not continuous([*map(str, range(20)), "x", "0.5"])
    assert not continuous(["nan", *(f"0.{i}" for i in range(20))])
    assert hardly_repeat(np.ones(11, dtype=int)) and not hardly_repeat(np.ones(10, dtype=int))
    assert not hardly_repeat(np.array([1] * 10 + [2] * 10))


def test_gaps_and_look_alikes():
    assert (
        gaps(["0", "1", "4"]) == [2, 3]
        and gaps(["0", "1"]) == []
        and gaps(["a", "5"]) == []
        and gaps(["-1", "3"]) == []
    )
    assert gaps(["20260101", "0"]) == []
    assert look_alike(["A", "ａ", "b", "B_c", "bc"]) == [("A", "ａ"), ("B_c", "bc")]
    assert look_alike(["1", "-1", "好", "坏"]) == []


def test_classes_in_numbers():
    assert name_findings(["a", "b"], np.array([3, 4]), ["k"]) == []
    assert balance_findings(["a", "b"], np.array([3, 4])) == [] and balance_findings(["a", "b"], np.array([0, 4])) == []
    (seen,) = balance_findings(["a", "b", "c"], np.array([0, 990, 10]))
    assert seen.where == ("c",) and "right in 99%" in seen.sentence


@given(st.lists(st.lists(st.integers(0, 3), max_size=14), min_size=1, max_size=5))
def test_repeats_against_a_loop(rows):
    starts = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    expected = []
    for row in rows:
        best = 0
        for period in range(1, 5):
            run = 0
            for i in range(period, len(row)):
                run = run + 1 if row[i] == row[i - period] else 0
                best = max(best, run + period if run else 0)
        expected.append(best)
    assert longest_repeat(np.array([x for r in rows for x in r], dtype=np.int64), starts).tolist() == expected


@pytest.fixture(scope="module")
def tokenizer(micro_model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(micro_model)


@given(
    texts=st.lists(
        st.text(st.sampled_from("a，\ufffdï\xbf\xbd{ \n\x07\x7f\u200b黑﾿"), max_size=8), min_size=1, max_size=6
    )
)
def test_odd_characters_against_the_text(tokenizer, texts):
    rows = [tokenizer(t)["input_ids"] for t in texts]
    starts = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    tokens = np.array([x for r in rows for x in r], dtype=np.int64)
    letters = alphabet(tokenizer, np.unique(tokens), len(tokenizer))

    def with_any(*of):
        return [i for i, t in enumerate(texts) if any(o in t for o in of)]

    assert replacement_rows(tokens, starts, letters).tolist() == with_any("\ufffd")
    assert control_rows(tokens, starts, letters).tolist() == with_any("\x07", "\x7f")
    assert brace_rows(tokens, starts, letters).tolist() == with_any("{{")


def test_bytes_of_tokens(tokenizer):
    for text in ("hello world", "，中文", "\ufffd\x07", "é"):
        tokens = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
        assert b"".join(token_bytes(t, True) for t in tokens) == text.encode()
    assert token_bytes("<0xEF>", False) == b"\xef" and token_bytes("▁中", False) == "▁中".encode()
    assert token_bytes(None, True) == b""


@given(st.lists(st.integers(10, 30), min_size=20, max_size=60))
def test_length_outliers_do_not_depend_on_the_unit(lengths):
    given_lengths = np.array([*lengths, 9000])
    assert too_long(given_lengths).tolist() == [len(lengths)]
    assert too_long(np.array(lengths)).tolist() == []
    assert too_long(given_lengths * 10).tolist() == too_long(given_lengths).tolist()
    assert len(too_long(given_lengths[-10:])) == 0


def test_placeholders():
    assert placeholders(["{{name}} {{name}}", "{{ name }}", "{{a b}} {x}", "{{name}}"]) == {
        "{{name}}": 2,
        "{{ name }}": 1,
    }
    assert shortened("x" * 100 + "\ufffd" + "y" * 100, ["\ufffd"]) == repr("x" * 20 + "\ufffd" + "y" * 19)
    assert REPEATS > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [[], ["dataset=demo_chat"], ["dataset=sentiment_zh", "task=classification"], ["dataset.max_samples=null"]],
)
def test_shipped_data_give_no_finding(prepared, overrides):
    assert findings(prepared(overrides)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alpaca_zh_demo", "alpaca_en_demo", "identity"])
def test_real_data(prepared, name):
    if not (SHARED / f"{name}.json").exists():
        pytest.skip("the real data are not here")
    seen = findings(prepared(["dataset=file", f"dataset.path={SHARED / name}.json"]))
    if name != "identity":
        assert seen == []
    else:
        assert [(f.id, f.severity) for f in seen] == [("data.bad_batch", "warning")]
        assert "{{name}}" in seen[0].sentence and "{{author}}" in seen[0].sentence


@pytest.fixture
def prepared(tmp_path):
    from runner.preflight.examine import build
    from runner.preflight.flow import Preflight

    def make(overrides):
        cfg = load(overrides).config
        pre = Preflight(cfg, "deep", tmp_path, checks=())
        build(cfg, pre, "data")
        return pre.context

    return make


def test_checks_leave_the_rows_as_they_are(context):
    c = context("data", task="classification")
    before = c.data.train[:]
    state = np.random.get_state()[1].tolist()
    for check in EVERY:
        check(c)
    assert c.data.train[:] == before and np.random.get_state()[1].tolist() == state
    assert "labels: correlation" in order(c).summary and "longest" in outliers(c).summary
