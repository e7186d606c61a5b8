from __future__ import annotations

import pytest

from runner.data.template import ChatTemplate, TemplateRefuses
from runner.errors import UserError
from tests.data.kit import CHATML, MISTRAL, QWEN3, QWEN25, make_tokenizer

USER, ANSWER = {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}
# Like Llama 3: a system block that is always there, even without a system turn.
LLAMA3 = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% set m = messages[1:] %}"
    "{% else %}{% set s = '' %}{% set m = messages %}{% endif %}{{ '<sys>Today\n' + s + '<|endoftext|>' }}"
    "{% for x in m %}{{ '<' + x.role + '>' + x.content + '<|endoftext|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
# Like GLM: a constant start that is no system turn and must stay.
GLM = (
    "{{ '[gMASK]<sop>' }}{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def test_what_is_known_of_chatml():
    template = ChatTemplate(make_tokenizer(CHATML))
    assert template.header == "<|im_start|>assistant\n"
    assert template.end == "<|im_end|>"
    assert template.stop_id == template.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert template.injected == ""
    assert template.leading_answers and template.supports_tool_role
    assert not template.supports_tools and not template.supports_calls


def test_qwen_knows_tools_and_its_system_turn_is_left_out():
    template = ChatTemplate(make_tokenizer(QWEN25))
    assert template.injected == "<|im_start|>system\nYou are Qwen.<|im_end|>\n"
    assert template.supports_tools and template.supports_calls and template.supports_tool_role
    assert template.render([USER, ANSWER]) == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
    assert template.render([USER], add_generation_prompt=True).endswith("Q<|im_end|>\n<|im_start|>assistant\n")
    asked = template.render([{"role": "system", "content": "You are Qwen."}, USER])
    assert asked.startswith("<|im_start|>system\nYou are Qwen.<|im_end|>\n")
    tools = [{"type": "function", "function": {"name": "f"}}]
    with_tools = template.render([USER], tools)
    assert "You are Qwen" not in with_tools and '"name": "f"' in with_tools


def test_other_families():
    mistral = ChatTemplate(make_tokenizer(MISTRAL))
    assert (mistral.header, mistral.injected, mistral.leading_answers) == ("", "", False)
    assert mistral.render([USER, ANSWER]) == "<s>[INST] Q [/INST] A<|im_end|>"
    llama = ChatTemplate(make_tokenizer(LLAMA3))
    assert llama.injected == "<s><sys>Today\n<|endoftext|>"
    assert llama.render([USER, ANSWER]) == "<s><user>Q<|endoftext|><assistant>A<|endoftext|>"
    glm = ChatTemplate(make_tokenizer(GLM))
    assert glm.injected == ""
    assert glm.render([USER]) == "[gMASK]<sop><|user|>\nQ"
    assert ChatTemplate(make_tokenizer(QWEN3)).injected == ""


def test_a_refusal_carries_the_templates_words():
    with pytest.raises(TemplateRefuses, match="roles must alternate"):
        ChatTemplate(make_tokenizer(MISTRAL)).render([USER, USER])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template.*model.template=chatml"),
        ("{% if %}", "not valid Jinja"),
        ("constant", "leaves out"),
        ("{{ raise_exception('no') }}", "no"),
    ],
)
def test_unusable_templates(template, message):
    with pytest.raises(UserError, match=message):
        ChatTemplate(make_tokenizer(template))


# Like Phi 3: the end of text stands behind the very last answer only.
PHI3 = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)


def test_the_end_of_turn_is_what_every_answer_has():
    assert ChatTemplate(make_tokenizer(PHI3)).end == "<|end|>"
    tokenizer = make_tokenizer(PHI3)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>", "<|user|>"]})
    assert ChatTemplate(tokenizer).end == "<|end|>"
    two = make_tokenizer(CHATML.replace("<|im_end|>", "<|im_end|><|endoftext|>"))
    assert ChatTemplate(two).end == "<|im_end|><|endoftext|>"


def test_a_bos_that_opens_every_turn_leaves_with_its_turn():
    tokenizer = make_tokenizer(QWEN25)
    tokenizer.bos_token = "<|im_start|>"  # as in SmolLM2
    assert ChatTemplate(tokenizer).render([USER]) == "<|im_start|>user\nQ<|im_end|>\n"
