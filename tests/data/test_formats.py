from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.data.formats import make_reader
from runner.data.rows import Chat, Dropped, Labelled
from runner.errors import DataError


def read(row, form="auto", task="sft", columns=None, tags=None, notes=None, leading=True):
    reader = make_reader("s", [row], form, columns or {}, tags or {}, task, leading)
    return reader(row, notes if notes is not None else [])


def pairs(chat):
    return [(m["role"], m["content"]) for m in chat.messages]


def test_alpaca():
    row = {"instruction": "Add", "input": "1+1", "output": "2", "system": "Be brief", "history": [["hi", "hello"]]}
    assert pairs(read(row)) == [
        ("system", "Be brief"), ("user", "hi"), ("assistant", "hello"), ("user", "Add\n1+1"), ("assistant", "2"),
    ]  # fmt: skip
    assert pairs(read({"instruction": "Hi", "input": None, "output": "Ho"})) == [("user", "Hi"), ("assistant", "Ho")]
    assert pairs(read({"instruction": "Hi", "output": "Ho", "system": "  ", "history": None}))[0] == ("user", "Hi")


def test_history_as_json_text():
    row = {"instruction": "a", "output": "b", "history": '[["x", "y"]]'}
    assert pairs(read(row))[:2] == [("user", "x"), ("assistant", "y")]


def test_columns_rename_and_an_empty_name_means_not_used():
    row = {"q": "Q", "a": "A", "history": [["x", "y"]], "sys": "S"}
    chat = read(row, "alpaca", columns={"prompt": "q", "response": "a", "system": "sys", "history": ""})
    assert pairs(chat) == [("system", "S"), ("user", "Q"), ("assistant", "A")]
    assert pairs(read(row, "alpaca", columns={"instruction": "q", "output": "a"}))[-1] == ("assistant", "A")


def test_prompt_completion():
    assert pairs(read({"prompt": "p", "completion": "c"})) == [("user", "p"), ("assistant", "c")]
    assert pairs(read({"prompt": "p", "response": "c"})) == [("user", "p"), ("assistant", "c")]
    prompt = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    chat = read({"prompt": prompt, "completion": [{"role": "assistant", "content": "d"}]})
    assert [c for _, c in pairs(chat)] == ["a", "b", "c", "d"]
    assert chat.untrained == {1}  # answers in the prompt are context


def test_classification():
    assert read({"text": "好", "label": "积极"}, task="classification") == Labelled("好", "积极")
    assert read({"text": "a", "label": 2}, task="classification") == Labelled("a", "2")
    assert read({"text": "a", "label": 2.0}, task="classification") == Labelled("a", "2")
    row = {"review": "a", "score": "x"}
    assert read(row, task="classification", columns={"text": "review", "label": "score"}) == Labelled("a", "x")


@pytest.mark.parametrize(
    ("row", "form"),
    [
        ({"instruction": "a", "output": "b"}, "alpaca"),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, "sharegpt"),
        ({"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "messages"),
        ({"messages": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, "sharegpt"),
        ({"prompt": "a", "completion": "b"}, "prompt_completion"),
    ],
)
def test_auto_recognises(row, form):
    reader = make_reader("s", [row], "auto", {}, {}, "sft")
    assert reader.format == form
    assert pairs(reader(row, [])) == [("user", "a"), ("assistant", "b")]


def test_a_missing_column_lists_those_there():
    with pytest.raises(DataError, match=r"needs the column 'output'.*instruction, answer.*response: "):
        read({"instruction": "a", "answer": "b"}, "alpaca")
    with pytest.raises(DataError, match=r"cannot be recognised.*foo, bar.*dataset\.sources\.s\.columns"):
        read({"foo": 1, "bar": 2})
    with pytest.raises(DataError, match="needs the column 'label'; the rows have: text, score"):
        read({"text": "a", "score": "b"}, "classification", task="classification")


def test_a_column_or_tag_that_is_no_column_or_tag():
    with pytest.raises(DataError, match="'prompz' is unknown"):
        read({"instruction": "a", "output": "b"}, columns={"prompz": "x"})
    with pytest.raises(DataError, match="'rol_tag' is unknown"):
        read({"messages": [{"role": "user", "content": "a"}]}, tags={"rol_tag": "x"})


def test_format_must_fit_the_task():
    with pytest.raises(DataError, match="task=classification needs text and label"):
        read({"instruction": "a", "output": "b"}, task="classification")
    with pytest.raises(DataError, match="Set task=classification"):
        read({"text": "a", "label": "b"}, task="sft")


@pytest.mark.parametrize(
    ("column", "what"),
    [("chosen", "DPO"), ("kto_tag", "KTO"), ("images", "vision"), ("audios", "audio"), ("videos", "vision")],
)
def test_out_of_scope_is_refused_by_name(column, what):
    with pytest.raises(DataError, match=what):
        read({"instruction": "a", "output": "b", column: ["x"]})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"instruction": "a", "output": ""}, "empty answer"),
        ({"instruction": "a", "output": None}, "empty answer"),
        ({"instruction": "", "input": " ", "output": "b"}, "empty prompt"),
        ({"instruction": "a", "output": ["b"]}, "output is a list"),
        ({"instruction": {"x": 1}, "output": "b"}, "instruction is a dict"),
        ({"instruction": "a", "output": "b", "history": [["x"]]}, "history is not a list of"),
        ({"instruction": "a", "output": "b", "history": "oops"}, "history is text, but not JSON"),
        ({"instruction": "a", "output": "b", "tools": "{oops"}, "tools is text, but not JSON"),
    ],
)
def test_unusable_rows_are_dropped_for_a_reason(row, reason):
    with pytest.raises(Dropped, match=reason):
        read(row)


def test_unusable_labelled_rows():
    for row, reason in [
        ({"text": "", "label": "a"}, "empty text"),
        ({"text": None, "label": "a"}, "empty text"),
        ({"text": "a", "label": None}, "no label"),
        ({"text": "a", "label": ""}, "no label"),
        ({"text": "a", "label": float("nan")}, "no label"),
        ({"text": float("nan"), "label": "a"}, "empty text"),
        ({"text": ["a"], "label": "x"}, "text is a list"),
    ]:
        with pytest.raises(Dropped, match=reason):
            read(row, "classification", task="classification")


def test_a_row_that_is_no_object():
    reader = make_reader("s", [{"instruction": "a", "output": "b"}, 3], "auto", {}, {}, "sft")
    with pytest.raises(Dropped, match="the row is a int"):
        reader(3, [])


def test_numbers_become_text_and_are_noted():
    notes = []
    assert pairs(read({"instruction": 7, "output": 2.5}, notes=notes)) == [("user", "7"), ("assistant", "2.5")]
    assert notes == ["instruction was a int, made text", "output was a float, made text"]


def test_half_a_surrogate_pair_is_replaced():
    notes = []
    assert pairs(read({"instruction": "a\ud83d", "output": "b"}, notes=notes))[0] == ("user", "a\ufffd")
    assert notes


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda v: (
        st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["from", "value", "role", "content"]), v, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(["alpaca", "sharegpt", "messages", "prompt_completion", "classification"]), JSON, JSON, JSON)
@settings(max_examples=250, deadline=None)
def test_any_row_is_an_example_or_dropped(form, a, b, c):
    task = "classification" if form == "classification" else "sft"
    names = {
        "alpaca": ("instruction", "output", "history"), "sharegpt": ("conversations", "system", "tools"),
        "messages": ("messages", "system", "tools"), "prompt_completion": ("prompt", "completion", "system"),
        "classification": ("text", "label", "x"),
    }[form]  # fmt: skip
    row = dict(zip(names, (a, b, c), strict=True))
    try:
        example = read(row, form, task)
    except Dropped as error:
        assert str(error)
        return
    if isinstance(example, Chat):
        assert example.messages[-1]["role"] == "assistant"
        assert all(isinstance(m["content"], str) for m in example.messages)
    else:
        assert example.text.strip() and example.label
