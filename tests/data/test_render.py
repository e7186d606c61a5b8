from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.data.render import render, with_system
from runner.data.rows import Chat, Dropped
from runner.data.template import ChatTemplate
from tests.data.kit import CHATML, MISTRAL, QWEN3, QWEN25, make_tokenizer

TEMPLATES = {
    n: ChatTemplate(make_tokenizer(t))
    for n, t in [("chatml", CHATML), ("qwen25", QWEN25), ("qwen3", QWEN3), ("mistral", MISTRAL)]
}


def chat(*contents, **rest):
    roles = ("user", "assistant")
    return Chat([{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)], **rest)


def answers(example, name="chatml", notes=None):
    rendered = render(example, TEMPLATES[name], notes if notes is not None else [])
    return [rendered.text[s.start : s.end] if s.trained else None for s in rendered.spans]


def test_answers_with_their_end_token():
    rendered = render(chat("q", "a", "r", "b"), TEMPLATES["chatml"], [])
    assert rendered.text == (
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
        "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
    )
    assert [rendered.text[s.start : s.end] for s in rendered.spans] == ["a<|im_end|>", "b<|im_end|>"]
    assert [rendered.text[s.tail : s.end] for s in rendered.spans] == ["<|im_end|>"] * 2


def test_answers_equal_to_prompts_or_markers_are_found():
    assert answers(chat("same", "same", "same", "same")) == ["same<|im_end|>"] * 2
    assert answers(chat("q", "a<|im_end|>\n<|im_start|>user\nx")) == ["a<|im_end|>\n<|im_start|>user\nx<|im_end|>"]


def test_untrained_turns():
    assert answers(chat("q", "a", "r", "b", untrained=frozenset({1}))) == [None, "b<|im_end|>"]


def test_mistral_trims():
    assert answers(chat("q", " a "), "mistral") == ["a<|im_end|>"]
    assert answers(chat("q", "a", "r", "b"), "mistral") == ["a<|im_end|>", "b<|im_end|>"]


def test_qwen3_thinking():
    # The block that the template puts before the last answer is what the model must generate: it is trained.
    assert answers(chat("q", "a"), "qwen3") == ["<think>\n\n</think>\n\na<|im_end|>"]
    assert answers(chat("q", "<think>t</think>a"), "qwen3") == ["<think>\nt\n</think>\n\na<|im_end|>"]
    assert answers(chat("q", "a", "r", "b"), "qwen3") == ["a<|im_end|>", "<think>\n\n</think>\n\nb<|im_end|>"]
    notes = []
    got = answers(chat("q", "<think>t</think>a", "r", "<think>u</think>b"), "qwen3", notes)
    assert got == [None, "<think>\nu\n</think>\n\nb<|im_end|>"]
    assert len(notes) == 1 and "rewrites" in notes[0]


def test_a_generation_prompt_that_opens_a_thinking_block():
    """Qwen3.5 and DeepSeek: the prompt holds more than the history does; training begins where generation would."""
    opens = QWEN3.replace(
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n'",
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n'",
    )
    template = ChatTemplate(make_tokenizer(opens))
    assert (template.header, template.opener) == ("<|im_start|>assistant\n<think>\n", "<|im_start|>assistant\n")
    rendered = render(chat("q", "a", "r", "<think>t</think>b"), template, [])
    assert [rendered.text[s.start : s.end] for s in rendered.spans] == ["a<|im_end|>", "t\n</think>\n\nb<|im_end|>"]


CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": "一"}}}],
}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALLING = Chat(
    [{"role": "user", "content": "q"}, CALL, {"role": "tool", "content": "42"}, {"role": "assistant", "content": "a"}],
    TOOLS,
)


def test_tool_calls_are_answers():
    call = '<tool_call>\n{"name": "f", "arguments": {"x": "一"}}\n</tool_call><|im_end|>'
    notes = []
    assert [a.lstrip("\n") for a in answers(CALLING, "qwen25", notes)] == [call, "a<|im_end|>"]
    assert notes == []


def test_tool_calls_without_support_become_text():
    notes = []
    assert answers(CALLING, "chatml", notes) == ['{"name": "f", "arguments": {"x": "一"}}<|im_end|>', "a<|im_end|>"]
    assert notes == [
        "tool schemas left out, the template has no tools",
        "tool calls written as plain text, the template knows none",
    ]


def test_a_refused_chat_is_dropped():
    twice = Chat([{"role": "user", "content": "q"}, *chat("r", "a").messages])
    with pytest.raises(Dropped, match="refuses the conversation: roles must alternate"):
        answers(twice, "mistral")


def test_system_only_if_asked():
    assert with_system(chat("q", "a"), None) == chat("q", "a")
    system = with_system(chat("q", "a", untrained=frozenset({1})), "S")
    assert system.messages[0] == {"role": "system", "content": "S"} and system.untrained == {2}
    assert with_system(system, "T") == system
    assert render(chat("q", "a"), TEMPLATES["qwen25"], []).text.count("system") == 0
    assert "system\nS<|im_end|>" in render(system, TEMPLATES["qwen25"], []).text


def test_a_template_without_end_of_turn_gets_the_end_token():
    bare = ChatTemplate(make_tokenizer("{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"))
    rendered = render(chat("q", "a"), bare, [])
    assert rendered.text == "user: q\nassistant: a<|im_end|>"
    span = rendered.spans[-1]
    assert rendered.text[span.start : span.end] == "a<|im_end|>" and rendered.text[span.tail : span.end] == "<|im_end|>"


TURNS = st.lists(
    st.tuples(st.text(min_size=1), st.text(min_size=1)).filter(lambda p: p[0].strip() and p[1].strip()),
    min_size=1,
    max_size=4,
)


@given(TURNS, st.sampled_from(["chatml", "qwen25"]))
@settings(max_examples=150, deadline=None)
def test_any_answer_is_marked_exactly(turns, name):
    rendered = render(chat(*[c for turn in turns for c in turn]), TEMPLATES[name], [])
    assert [rendered.text[s.start : s.end] for s in rendered.spans] == [a + "<|im_end|>" for _, a in turns]
    at = 0
    for (question, _), span in zip(turns, rendered.spans, strict=True):
        between = rendered.text[at : span.start].removeprefix("\n")
        assert between == f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        at = span.end


@given(TURNS, st.sampled_from(["qwen3", "mistral"]))
@settings(max_examples=150, deadline=None)
def test_templates_that_rewrite_lose_no_last_answer(turns, name):
    try:
        got = answers(chat(*[c for turn in turns for c in turn]), name)
    except Dropped:
        assert name == "mistral" and not all(a.strip() for _, a in turns)
        return
    assert turns[-1][1].strip() in got[-1]
    assert got[-1].endswith("<|im_end|>")
