"""E1 to E6: every fault is planted in rows, template or tokenizer, and seen as that alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.config.compose import load
from runner.preflight.rows.answers import answers, begins_twice_with, ends_with, supervised_per_row
from runner.preflight.rows.columns import Columns, columns, row_hashes, row_sums
from runner.preflight.rows.labels import special_tokens, supervised, template, truncation, without_end
from runner.preflight.rows.lost import Lost

from .kit_data import (
    EVERY,
    alone,
    chat,
    dataset,
    findings,
    noted,
    other_tokenizer,
    reads,
    rows_of,
    stopped,
    template_file,
)

# Ends answers with plain text, which is no token.
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}"
# Shows the last answer only.
FORGETS = (
    "{% for m in messages %}{% if m.role != 'assistant' or loop.last %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DUMB = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"


def composes(overrides):
    assert overrides
    load(["dataset=demo_mix", *overrides])


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_healthy_rows_give_no_finding(context, task):
    c = context("data", task=task)
    assert findings(c) == []
    said = {check.__name__: check(c) for check in EVERY}
    assert said["classes"].skipped == (task == "sft") and said["template"].skipped == (task != "sft")
    assert "0 rows" in said["supervised"].summary and "0 of 26" in said["truncation"].summary


def test_measured_tokens_per_source(context):
    c = context("data")
    assert supervised(c).summary.startswith("median short ")
    counts = [sum(label != -100 for label in row[1:]) for row in c.data.train["labels"]]
    assert 0 < min(counts)
    c.data = dataclasses.replace(c.data, train=c.data.train.filter(lambda r: r["source"] == "long"))
    of_long = [n for n, s in zip(counts, ["short"] * 13 + ["long"] * 13, strict=True) if s == "long"]
    assert supervised(c).summary == f"median {np.median(of_long):.0f}, 0 rows empty"


# E1


@pytest.mark.parametrize(("silent", "severity"), [(1, "warning"), (10, "error")])
def test_answers_without_weight(context, silent, severity):
    rows = [chat(i, weight=0) if i < silent else chat(i) for i in range(20)]
    seen = alone(context("data", spoil=rows_of(rows)), "labels.no_supervised_token", severity)
    assert seen.where == ("s/0",) and seen.numbers == {"rows_lost": {"s": silent}, "rows": {"s": 20}}
    assert f"s loses {silent} of 20 rows" in seen.sentence


def test_no_answer_with_weight_at_all(make_config, tmp_path):
    cfg = make_config()
    reads(cfg, [chat(i, weight=0) for i in range(6)])
    seen = stopped(cfg, tmp_path)
    assert (seen.id, seen.severity, seen.where) == ("labels.no_supervised_token", "error", ("s", "s/0"))


def test_a_wrong_column_leaves_no_answer(make_config, tmp_path):
    cfg = make_config()
    reads(cfg, [{"instruction": f"ask {i}", "output": "", "answer": "yes"} for i in range(6)], "alpaca")
    seen = stopped(cfg, tmp_path)
    assert seen.id == "labels.no_supervised_token" and "empty answer" in seen.sentence


def test_most_rows_of_a_source_unusable(context):
    rows = [chat(i, answer="" if i % 2 else "\n") if i < 12 else chat(i) for i in range(20)]
    for row in rows[:12]:
        row["messages"][1]["content"] = " "
    seen = alone(context("data", spoil=rows_of(rows)), "labels.no_supervised_token", "warning")
    assert "empty answer" in seen.sentence and seen.where == ("s/0",)


def test_empty_rows_are_measured_in_the_labels(context):
    c = context("data")
    rows = [([5, 6, 7, 2], [-100, -100, 7, 2])] * 3 + [([5, 6, 7, 2], [5, -100, -100, -100])]
    c.data = dataclasses.replace(c.data, train=dataset(rows))
    (seen,) = supervised(c).findings
    assert (seen.id, seen.severity, seen.where) == ("labels.no_supervised_token", "warning", ("s/3",))


@pytest.mark.parametrize(("rows", "of", "severity"), [(1, 1000, "warning"), (49, 100, "warning"), (50, 100, "error")])
def test_half_of_a_source_is_an_error(rows, of, severity):
    assert Lost("s", rows, of, ("s/0",), ("why",)).severity == severity


# E2


@pytest.mark.parametrize(("long", "severity"), [(2, "warning"), (10, "error")])
def test_prompts_that_fill_the_row(context, long, severity):
    rows = [chat(i) for i in range(20)]
    for row in rows[:long]:
        row["messages"][0]["content"] = "far " * 90
    for i, row in enumerate(rows[:long]):
        row["messages"][0]["content"] += str(i)
    c = context("data", spoil=rows_of(rows), dataset__max_length=80)
    seen = alone(c, "labels.answer_truncated", severity)
    assert seen.where == ("s/0",) and f"{long} of 20" in seen.sentence
    composes(seen.overrides)
    c.cfg.dataset.max_length = int(seen.overrides[0].split("=")[1])
    mended = context("data", spoil=rows_of(rows), dataset__max_length=c.cfg.dataset.max_length)
    assert findings(mended) == []


def test_every_prompt_fills_the_row(make_config, tmp_path):
    seen = stopped(make_config(dataset__max_length=4), tmp_path)
    assert (seen.id, seen.severity) == ("labels.answer_truncated", "error")
    assert seen.where[1].startswith(seen.where[0])


@pytest.mark.parametrize(("long", "severity"), [(1, "note"), (4, "warning")])
def test_answers_cut(context, long, severity):
    rows = [chat(i, answer="on and on " * 60 if i < long else "") for i in range(20)]
    c = context("data", spoil=rows_of(rows), dataset__max_length=100)
    (seen,) = findings(c)
    assert (seen.id, seen.severity) == ("labels.answer_truncated", severity)
    assert seen.where == ("s/0",) and seen.numbers["cut"] == long and seen.numbers["longest"] > 100
    composes(seen.overrides)
    assert "end tokens cut from 0" in truncation(c).summary


def test_a_longer_row_than_the_model_has_positions_for(context):
    rows = [chat(i, answer="on and on " * 200 if i < 1 else "") for i in range(20)]
    (seen,) = findings(context("data", spoil=rows_of(rows), dataset__max_length=100))
    assert seen.overrides == ("dataset.too_long=drop",)  # the micro model has 512 positions
    composes(seen.overrides)


def test_dropping_half_of_a_source(context):
    rows = [chat(i, answer=f"on and on {i} " * 60 if i < 12 else "") for i in range(20)]
    few = context("data", spoil=rows_of(rows[8:]), dataset__max_length=100, dataset__too_long="drop")
    assert findings(few) == []
    c = context("data", spoil=rows_of(rows), dataset__max_length=100, dataset__too_long="drop")
    assert alone(c, "labels.answer_truncated", "warning").numbers["rows_lost"] == {"s": 12}


def test_a_row_beyond_the_limit_with_too_long_error(make_config, tmp_path):
    cfg = make_config(dataset__max_length=100, dataset__too_long="error")
    reads(cfg, [chat(0), chat(1, answer="on and on " * 60)])
    seen = stopped(cfg, tmp_path)
    assert (seen.id, seen.where) == ("labels.answer_truncated", ("s/1",))


def test_end_tokens_cut_are_measured(context):
    c = context("data")
    whole, cut = ([5, 6, 7, 2], [-100, 6, 7, 2]), ([5, 6, 7, 8, 9], [-100, 6, 7, 8, 9])
    c.data = dataclasses.replace(c.data, train=dataset([whole] * 9 + [cut]))
    c.cfg.dataset.max_length = 5
    (seen,) = truncation(c).findings
    assert (seen.id, seen.severity, seen.where) == ("labels.answer_truncated", "warning", ("s/9",))
    assert template(c).findings == ()


# E3


@pytest.mark.parametrize(("several", "severity"), [(2, "warning"), (15, "error")])
def test_a_template_that_forgets_answers(context, several, severity):
    rows = [chat(i) for i in range(20)]
    for row in rows[:several]:
        row["messages"] = row["messages"] * 2

    def spoil(cfg):
        reads(cfg, rows)
        template_file(cfg, FORGETS)

    seen = alone(context("data", spoil=spoil), "labels.no_generation_markers", severity)
    assert seen.where == ("s/0",) and "leaves out an answer" in seen.sentence
    composes(seen.overrides)


@pytest.mark.parametrize("text", [DUMB, "{% for m in messages %}{{ m.content }}", "{{ raise_exception('never') }}"])
def test_a_template_without_answers(make_config, tmp_path, text):
    cfg = make_config()
    template_file(cfg, text)
    seen = stopped(cfg, tmp_path)
    assert (seen.id, seen.severity) == ("labels.no_generation_markers", "error")
    assert seen.where == ("model.template",)


# E4


def test_an_end_that_is_no_token(context):
    c = context("data", spoil=lambda cfg: template_file(cfg, PLAIN))
    seen = alone(c, "labels.end_token", "warning")
    assert seen.where == ("model.template",) and seen.numbers["rows_without_end"] == 26
    assert "'</assistant>'" in seen.sentence and "<|endoftext|> (0)" in seen.sentence
    composes(seen.overrides)
    assert findings(context("data", model__template="chatml")) == []


def test_an_end_token_inside_the_answer(context):
    rows = [chat(i, answer="done <|im_end|> or not done yet after all" if i == 3 else "") for i in range(20)]
    seen = alone(context("data", spoil=rows_of(rows)), "labels.end_token", "warning")
    assert seen.where == ("s/3",)


def test_one_answer_without_its_end(context):
    c = context("data")
    whole, open_ended = ([5, 6, 7, 2], [-100, 6, 7, 2]), ([5, 6, 7, 8, 9], [-100, 6, 7, 8, -100])
    c.data = dataclasses.replace(c.data, train=dataset([whole] * 9 + [open_ended]))
    (seen,) = template(c).findings
    assert (seen.id, seen.severity, seen.where) == ("labels.end_token", "warning", ("s/9",))
    assert truncation(c).findings == ()


def test_pad_is_the_end_token(context):
    def spoil(cfg):
        other_tokenizer(cfg, lambda settings, body: settings.update(pad_token="<|im_end|>"))

    c = context("data", spoil=spoil)
    seen = noted(c, "labels.end_token")
    assert seen.where == ("tokenizer.pad_token",) and seen.numbers["trained"] == 26


@pytest.mark.parametrize("train_on", ["last_answer", "all"])
def test_end_tokens_of_other_supervision(context, train_on):
    rows = [chat(i) for i in range(8)]
    for row in rows:
        row["messages"] = row["messages"] * 3
    c = context("data", spoil=rows_of(rows), task__train_on=train_on)
    assert findings(c) == [] and "8 of 8 answers" in template(c).summary


# E5


def test_a_template_that_writes_two_begin_tokens(context):
    def spoil(cfg):
        other_tokenizer(cfg, lambda settings, body: settings.update(bos_token="<|im_start|>"))
        chatml = (Path(cfg.model.path) / "chat_template.jinja").read_text(encoding="utf-8")
        template_file(cfg, "{{ bos_token }}" + chatml)

    seen = alone(context("data", spoil=spoil), "labels.double_bos", "warning")
    assert seen.where[0] == "short/0" and seen.numbers["rows_twice"] == 26


def test_a_tokenizer_that_adds_the_begin_token_of_the_text_again(context):
    def twice(settings, body):
        settings.update(bos_token="<|im_start|>")
        sequence = {"Sequence": {"id": "A", "type_id": 0}}
        begin = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
        name = {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}
        body["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [begin, sequence],
            "pair": [begin, sequence, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|im_start|>": name},
        }

    rows = [{"text": f"{'<|im_start|>' * (i == 4)}warm {i}", "label": "ab"[i % 2]} for i in range(20)]

    def spoil(cfg):
        reads(cfg, rows, "classification")
        other_tokenizer(cfg, twice)

    c = context("data", task="classification", spoil=spoil)
    assert c.data.train["input_ids"][0][0] == 1
    assert alone(c, "labels.double_bos", "warning").where == ("s/4",)


# E6


def test_texts_that_end_with_the_pad_token(context):
    rows = [{"text": f"warm {i}{'<|endoftext|>' * (i == 7)}", "label": "ab"[i % 2]} for i in range(20)]
    c = context("data", task="classification", spoil=rows_of(rows, "classification"))
    seen = alone(c, "labels.pad_token", "warning")
    assert seen.where == ("s/7",) and "reads an earlier token" in seen.sentence


def test_a_pad_token_inside_is_no_fault(context):
    rows = [{"text": f"warm <|endoftext|> {i}", "label": "ab"[i % 2]} for i in range(20)]
    assert findings(context("data", task="classification", spoil=rows_of(rows, "classification"))) == []


def test_no_pad_token(context):
    c = context("data", task="classification")
    c.tokenizer.pad_token = None
    seen = alone(c, "labels.pad_token", "error")
    assert seen.where == ("tokenizer.pad_token",) and seen.sentence == "there is no pad token"


def test_ids_beyond_the_tokenizer(context):
    c = context("data")
    size = len(c.tokenizer)
    c.data = dataclasses.replace(c.data, train=dataset([([5, 6, 2], [-100, 6, 2]), ([5, size, 2], [-100, size, 2])]))
    (seen,) = special_tokens(c).findings
    assert (seen.id, seen.severity, seen.where) == ("weights.token_rows", "error", ("s/1",))


# Pure functions

token_rows = st.lists(st.lists(st.sampled_from([-100, -100, 3, 4, 9]), max_size=12), min_size=1, max_size=6)


def flat(rows):
    starts = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    return np.array([x for r in rows for x in r], dtype=np.int64), starts


@given(token_rows)
def test_supervised_tokens_against_a_loop(rows):
    values, starts = flat(rows)
    assert supervised_per_row(values, starts).tolist() == [sum(x != -100 for x in r[1:]) for r in rows]
    assert row_sums(values, starts).tolist() == [sum(r) for r in rows]


@given(token_rows)
def test_answers_against_a_loop(rows):
    values, starts = flat(rows)
    expected = []
    for i, row in enumerate(rows):
        run: list[int] = []
        for x in [*row, -100]:
            if x != -100:
                run.append(x)
            elif run:
                expected.append((i, 9 in run[-4:], run[:-4].count(9)))
                run = []
    seen = answers(values, starts, [9])
    assert list(zip(seen.row.tolist(), seen.ended.tolist(), seen.within.tolist(), strict=True)) == expected


@given(token_rows)
def test_first_and_last_tokens_against_a_loop(rows):
    values, starts = flat(rows)
    assert begins_twice_with(values, starts, 3).tolist() == [i for i, r in enumerate(rows) if r[:2] == [3, 3]]
    assert ends_with(values, starts, 9).tolist() == [i for i, r in enumerate(rows) if r[-1:] == [9]]


@given(token_rows)
def test_hashes_are_equal_for_equal_rows_only(rows):
    hashes = row_hashes(*flat(rows)).tolist()
    assert all((hashes[i] == hashes[j]) == (rows[i] == rows[j]) for i in range(len(rows)) for j in range(i))


def test_what_the_cut_explains():
    lengths = np.array([5, 5, 3, 4, 4, 4, 4])
    broken = answers(*flat([[3], [3, 9], [3]] + [[3, 9]] * 4), [9])
    by_cut, others = without_end(broken, lengths, 5)
    assert (by_cut.tolist(), others.tolist()) == ([0], [2])
    by_cut, others = without_end(answers(*flat([[3]] * 7), [9]), lengths, 5)
    assert (len(by_cut), len(others)) == (0, 7)


@given(token_rows, st.integers(1, 20))
def test_blocks_hold_every_row_once(rows, size):
    values, starts = flat(rows)
    c = Columns(values, starts, values, None, ["s"], np.zeros(len(rows), dtype=np.int64))
    spans = list(c.blocks(size))
    assert [i for a, b in spans for i in range(a, b)] == list(range(len(rows)))
    assert [c.tokens_of(a, b)[0].tolist() for a, b in spans] == [[x for r in rows[a:b] for x in r] for a, b in spans]
    assert all(b - a == 1 or starts[b] - starts[a] <= size for a, b in spans)


def test_columns_of_selected_rows(context):
    train = context("data").data.train
    chosen = train.select([20, 3, 7])
    seen = columns(chosen)
    assert seen.row_ids(np.array([0, 1, 2])) == tuple(chosen["row_id"])
    assert [seen.names[s] for s in seen.source] == chosen["source"][:]
    assert [seen.tokens_of(i, i + 1)[0].tolist() for i in range(3)] == chosen["input_ids"][:]
    assert [seen.labels_of(i, i + 1).tolist() for i in range(3)] == chosen["labels"][:]
