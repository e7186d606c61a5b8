"""Real files: LLaMA-Factory's demo sets and the Qwen3 tokenizer. Skipped where they are not."""

from __future__ import annotations

import json
import time

import pytest
from transformers import PreTrainedTokenizerFast

from runner.config.schema import Config
from runner.data.llamafactory import read_dataset_info
from runner.data.prepare import prepare_data
from runner.errors import DataError
from tests.data.kit import QWEN25, SHARED

pytestmark = pytest.mark.skipif(not (SHARED / "dataset_info.json").is_file(), reason="the shared real data is not here")


@pytest.fixture(scope="module")
def qwen():
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(SHARED / "qwen3_tokenizer" / "tokenizer.json"),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.chat_template = QWEN25
    return tokenizer


def make(*names):
    cfg = Config()
    cfg.dataset.dir, cfg.dataset.names = str(SHARED), list(names)
    return cfg


def test_all_four_demo_sets(qwen):
    cfg = make("identity", "alpaca_en_demo", "alpaca_zh_demo", "glaive_toolcall_en_demo")
    cfg.dataset.validation.fraction = 0.05
    start = time.perf_counter()
    data = prepare_data(cfg, qwen)
    fresh = time.perf_counter() - start
    assert fresh < 30
    assert prepare_data(cfg, qwen).fingerprint == data.fingerprint
    counts = data.report.sources
    assert [s.read for s in counts.values()] == [91, 999, 1000, 300]
    for name in ("alpaca_en_demo", "alpaca_zh_demo"):
        raw = json.loads((SHARED / f"{name}.json").read_text(encoding="utf-8"))
        assert counts[name].duplicates == len(raw) - len({json.dumps(r, sort_keys=True) for r in raw})
    for s in counts.values():
        assert s.read == s.duplicates + sum(t.count for t in s.dropped.values()) + s.train + s.validation
        assert 0 < s.supervised_tokens < s.total_tokens
    assert max(data.train["length"]) <= 2048


def test_a_row_decodes_to_its_answer(qwen):
    data = prepare_data(make("alpaca_zh_demo"), qwen)
    raw = json.loads((SHARED / "alpaca_zh_demo.json").read_text(encoding="utf-8"))
    for row in data.train.select(range(0, 900, 30)):
        source = raw[int(row["row_id"].split("/")[1])]
        trained = [t for t, label in zip(row["input_ids"], row["labels"], strict=True) if label != -100]
        assert qwen.decode(trained) == source["output"] + "<|im_end|>"
        prompt = [t for t, label in zip(row["input_ids"], row["labels"], strict=True) if label == -100]
        question = "\n".join(p for p in (source["instruction"], source["input"]) if p)
        assert qwen.decode(prompt) == f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n\n"


def test_tool_calls_are_trained_and_schemas_shown(qwen):
    data = prepare_data(make("glaive_toolcall_en_demo"), qwen)
    row = next(r for r in data.train if r["row_id"] == "glaive_toolcall_en_demo/0")
    trained = qwen.decode([label for label in row["labels"] if label != -100])
    assert (
        '<tool_call>\n{"name": "search_recipes", "arguments": {"ingredients": ["chicken", "bell peppers", "rice"]}}'
        in trained
    )
    text = qwen.decode(row["input_ids"])
    assert "# Tools" in text and "<tool_response>" in text and "You are Qwen" not in text
    assert data.report.sources["glaive_toolcall_en_demo"].adjusted == {}


def test_upstreams_own_dataset_info(tmp_path):
    """Every entry is either a source or refused with a reason."""
    info = json.loads((SHARED / "llamafactory_dataset_info.json").read_text(encoding="utf-8"))
    (tmp_path / "dataset_info.json").write_text(json.dumps(info))
    used, refused = [], {}
    for name in info:
        try:
            used += read_dataset_info(str(tmp_path), [name])[0]
        except DataError as error:
            refused[name] = str(error)
    assert len(used) > 60
    assert all("preference" in r or "text only" in r or "only from" in r for r in refused.values())
    assert "dpo_en_demo" in refused and "mllm_demo" in refused and "alpaca_gpt4_zh" in used
