from __future__ import annotations

from runner.data.prepare import prepare_data
from runner.data.preview import TRAINED, preview
from tests.data.kit import alpaca


def coloured(text, style):
    return "".join(text.plain[s.start : s.end] for s in text.spans if s.style == style)


def test_trained_tokens_are_in_colour(config, tokenizer):
    data = prepare_data(config(s=[{"instruction": "问", "output": "答"}]), tokenizer)
    legend, row = preview(data, tokenizer, 3)
    assert "carry loss" in legend.plain
    assert coloured(row, TRAINED) == "答<|im_end|>"
    assert (
        row.plain
        == "s/0 (13 tokens)\n<|im_start|>user\n问<|im_end|>\n<|im_start|>assistant\n答<|im_end|>\n".replace(
            "13", str(data.train[0]["length"])
        )
    )


def test_rows_zero_is_nothing(config, tokenizer):
    assert preview(prepare_data(config(s=alpaca(2)), tokenizer), tokenizer, 0) == []


def test_long_rows_say_what_is_left_out(config, tokenizer):
    data = prepare_data(config(s=[{"instruction": "q", "output": "z" * 1500}]), tokenizer)
    text = preview(data, tokenizer, 1)[1].plain
    assert "tokens ...]" in text and len(text) < 1200 and text.endswith("z<|im_end|>\n")


def test_classification_shows_text_and_label(config, tokenizer):
    cfg = config(s=[{"text": "好", "label": "积极"}, {"text": "坏", "label": "消极"}])
    cfg.task.name = "classification"
    shown = preview(prepare_data(cfg, tokenizer), tokenizer, 1)
    assert len(shown) == 1
    assert "好" in shown[0].plain and coloured(shown[0], TRAINED) == "积极"
