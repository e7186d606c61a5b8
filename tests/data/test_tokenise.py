from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.data.render import render
from runner.data.rows import Chat, Labelled, Row
from runner.data.template import ChatTemplate
from runner.data.tokenise import Settings, _in_segments, tokenise
from runner.errors import DataError
from tests.data.kit import MISTRAL, make_tokenizer

TOKENIZER = make_tokenizer()
TEMPLATE = ChatTemplate(TOKENIZER)
END = TOKENIZER.convert_tokens_to_ids("<|im_end|>")


def sft(**changes):
    values = {
        "task": "sft",
        "train_on": "answers",
        "max_length": 2048,
        "too_long": "truncate_answer",
        "default_system": None,
    }
    return Settings(**(values | changes))


def row(*contents, i=0):
    roles = ("user", "assistant")
    return Row(f"s/{i}", "s", Chat([{"role": roles[k % 2], "content": c} for k, c in enumerate(contents)]))


def trained_text(out, k=0, tokenizer=TOKENIZER):
    return tokenizer.decode([t for t, label in zip(out.input_ids[k], out.labels[k], strict=True) if label != -100])


def test_prompt_masked_answer_and_end_token_trained():
    out = tokenise([row("what", "the answer"), row("你好", "世界，好")], TOKENIZER, TEMPLATE, sft())
    assert out.position == [0, 1]
    assert trained_text(out, 0) == "the answer<|im_end|>"
    assert trained_text(out, 1) == "世界，好<|im_end|>"
    assert (
        TOKENIZER.decode(out.input_ids[0])
        == "<|im_start|>user\nwhat<|im_end|>\n<|im_start|>assistant\nthe answer<|im_end|>\n"
    )


def test_train_on():
    rows = [row("q", "a", "r", "b")]
    assert trained_text(tokenise(rows, TOKENIZER, TEMPLATE, sft(train_on="last_answer"))) == "b<|im_end|>"
    assert trained_text(tokenise(rows, TOKENIZER, TEMPLATE, sft())) == "a<|im_end|>b<|im_end|>"
    everything = tokenise(rows, TOKENIZER, TEMPLATE, sft(train_on="all"))
    assert everything.labels == everything.input_ids


def test_bos_is_written_once():
    tokenizer = make_tokenizer(MISTRAL)
    out = tokenise([row("q", "a")], tokenizer, ChatTemplate(tokenizer), sft())
    assert out.input_ids[0].count(tokenizer.bos_token_id) == 1
    assert trained_text(out, 0, tokenizer).strip() == "a<|im_end|>"


def test_too_long_three_ways():
    rows = [row("q", "a" * 50), row("q", "b", i=1)]
    whole = len(tokenise(rows, TOKENIZER, TEMPLATE, sft()).input_ids[0])
    cut = tokenise(rows, TOKENIZER, TEMPLATE, sft(max_length=whole - 10))
    assert cut.truncated == [0] and cut.position == [0, 1]
    assert len(cut.input_ids[0]) == whole - 10 and cut.labels[0][-1] == END
    dropped = tokenise(rows, TOKENIZER, TEMPLATE, sft(max_length=whole - 10, too_long="drop"))
    assert dropped.dropped == [(0, f"longer than max_length={whole - 10}")] and dropped.position == [1]
    with pytest.raises(DataError, match=rf"row s/0 has {whole} tokens.*max_length={whole - 10}"):
        tokenise(rows, TOKENIZER, TEMPLATE, sft(max_length=whole - 10, too_long="error"))


def test_a_prompt_beyond_max_length_is_dropped_for_that_reason():
    out = tokenise([row("q" * 90, "a")], TOKENIZER, TEMPLATE, sft(max_length=40))
    assert out.dropped == [(0, "the prompt alone fills max_length=40, no room for an answer")]


def test_a_row_without_supervision_is_dropped():
    chat = Chat(row("q", "a").example.messages, untrained=frozenset({1}))
    out = tokenise([Row("s/0", "s", chat)], TOKENIZER, TEMPLATE, sft())
    assert out.dropped == [(0, "no token carries loss")]


def test_default_system():
    out = tokenise([row("q", "a")], TOKENIZER, TEMPLATE, sft(default_system="S"))
    assert TOKENIZER.decode(out.input_ids[0]).startswith("<|im_start|>system\nS<|im_end|>\n<|im_start|>user")


def test_without_offsets_pieces_are_tokenised():
    rendered = render(row("what", "the answer 世界").example, TEMPLATE, [])
    slow = SimpleNamespace(is_fast=False)
    ids, spans = _in_segments(rendered.text, rendered.spans, TOKENIZER)
    assert not slow.is_fast
    assert TOKENIZER.decode(ids) == rendered.text
    assert TOKENIZER.decode(ids[spans[0].start : spans[0].end]) == "the answer 世界<|im_end|>"
    assert spans[0].tail == 1 and ids[spans[0].end - 1] == END


def test_classification():
    rows = [Row(f"s/{i}", "s", Labelled(t, "x")) for i, t in enumerate(["ab", "z" * 30])]
    out = tokenise(rows, TOKENIZER, None, sft(task="classification", max_length=8))
    assert TOKENIZER.decode(out.input_ids[0]) == "ab" and len(out.input_ids[1]) == 8
    assert out.truncated == [1] and out.labels == [[], []]
    out = tokenise(rows, TOKENIZER, None, sft(task="classification", max_length=8, too_long="drop"))
    assert out.dropped == [(1, "longer than max_length=8")]
    with pytest.raises(DataError, match="row s/1"):
        tokenise(rows, TOKENIZER, None, sft(task="classification", max_length=8, too_long="error"))


TEXT = st.text(min_size=1, max_size=30).filter(str.strip)


@given(st.lists(TEXT, min_size=2, max_size=6).filter(lambda t: len(t) % 2 == 0), st.integers(12, 120))
@settings(max_examples=120, deadline=None)
def test_every_row_keeps_an_ended_answer_or_is_counted(texts, limit):
    out = tokenise([row(*texts)], TOKENIZER, TEMPLATE, sft(max_length=limit))
    if not out.position:
        assert len(out.dropped) == 1
        return
    assert len(out.input_ids[0]) <= limit
    labels = out.labels[0]
    trained = [i for i, label in enumerate(labels) if label != -100]
    assert len(trained) >= 2
    assert labels[trained[-1]] == END
    if not out.truncated:
        assert trained_text(out) == "".join(t + "<|im_end|>" for t in texts[1::2])
