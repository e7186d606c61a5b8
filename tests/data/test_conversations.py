from __future__ import annotations

import pytest

from runner.data.formats import make_reader
from runner.data.rows import Dropped


def read(row, form="auto", tags=None, notes=None, leading=True):
    reader = make_reader("s", [row], form, {}, tags or {}, "sft", leading)
    return reader(row, notes if notes is not None else [])


def share(*turns, **rest):
    return {"conversations": [{"from": who, "value": text} for who, text in turns], **rest}


def roles(chat):
    return [m["role"] for m in chat.messages]


def test_sharegpt_roles_and_tools():
    schema = '[{"name": "f", "description": "d", "parameters": {}}]'
    chat = read(
        share(
            ("human", "q"),
            ("function_call", '{"name": "f", "arguments": {"x": 1}}'), ("observation", "42"), ("gpt", "a"),
            system="S", tools=schema,
        )
    )  # fmt: skip
    assert roles(chat) == ["system", "user", "assistant", "tool", "assistant"]
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    assert chat.messages[2] == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert chat.tools == [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]


def test_a_system_turn_wins_over_the_system_column():
    chat = read(share(("system", "turn"), ("human", "q"), ("gpt", "a"), system="column"))
    assert [m["content"] for m in chat.messages] == ["turn", "q", "a"]
    assert roles(read(share(("system", " "), ("human", "q"), ("gpt", "a")))) == ["user", "assistant"]


def test_tags():
    row = {"conversations": [{"who": "me", "say": "q"}, {"who": "bot", "say": "a"}]}
    tags = {"role_tag": "who", "content_tag": "say", "user_tag": "me", "assistant_tag": "bot"}
    chat = read(row, "sharegpt", tags)
    assert [(m["role"], m["content"]) for m in chat.messages] == [("user", "q"), ("assistant", "a")]


def test_starting_with_the_assistant():
    row, notes = share(("gpt", "Welcome"), ("human", "q"), ("gpt", "a")), []
    chat = read(row, notes=notes)
    assert roles(chat) == ["assistant", "user", "assistant"]
    assert chat.untrained == {0}
    assert "starts with the assistant" in notes[0]
    notes = []
    chat = read(row, notes=notes, leading=False)
    assert roles(chat) == ["user", "assistant"] and chat.untrained == frozenset()
    assert "left out" in notes[0]


def test_trailing_user_turns_go():
    notes = []
    chat = read(share(("human", "q"), ("gpt", "a"), ("human", "thanks")), notes=notes)
    assert roles(chat) == ["user", "assistant"]
    assert notes == ["turns after the last answer left out"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (share(("human", "q")), "no answer"),
        (share(("gpt", "a")), "no prompt"),
        (share(("human", "q"), ("gpt", " ")), "empty answer"),
        (share(("human", ""), ("gpt", "a")), "empty prompt"),
        (share(("human", "q"), ("alien", "a")), "unknown role 'alien'"),
        ({"conversations": []}, "the conversation is empty"),
        ({"conversations": None}, "the conversation is empty"),
        ({"conversations": 5}, "not a list of turns"),
        ({"conversations": ["q", "a"]}, "a turn is not an object"),
        ({"conversations": "q then a"}, "text, but not JSON"),
        (share(("human", "q"), ("gpt", {"x": 1})), "content is a dict"),
    ],
)
def test_unusable_conversations(row, reason):
    with pytest.raises(Dropped, match=reason):
        read(row, "sharegpt")


def test_openai_messages():
    row = {
        "messages": [
            {"role": "developer", "content": "S"},
            {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "text", "text": "!"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}],
            },
            {"role": "tool", "content": "42", "name": "f"},
            {"role": "assistant", "content": "first", "weight": 0},
            {"role": "user", "content": "more"},
            {"role": "assistant", "content": "second", "weight": 1},
        ]
    }
    chat = read(row)
    assert roles(chat) == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert chat.messages[1]["content"] == "q!"
    assert chat.messages[2]["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert chat.untrained == {4}


def test_image_parts_drop_the_row():
    row = {
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": "x"}]},
            {"role": "assistant", "content": "a"},
        ]
    }
    with pytest.raises(Dropped, match="'image_url', not text"):
        read(row)


def test_a_conversation_stored_as_json_text():
    row = {"messages": '[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]'}
    assert roles(read(row)) == ["user", "assistant"]


def test_a_call_that_is_no_json_stays_text():
    notes = []
    chat = read(share(("human", "q"), ("function_call", "f(x)"), ("observation", "1"), ("gpt", "a")), notes=notes)
    assert chat.messages[1] == {"role": "assistant", "content": "f(x)"}
    assert notes == ["a function call that is not JSON kept as plain text"]
