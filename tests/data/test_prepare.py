from __future__ import annotations

import json
from collections import Counter

import pytest

from runner.config.schema import Source
from runner.data.prepare import prepare_data
from runner.errors import DataError, UserError
from tests.data.kit import QWEN25, alpaca, make_tokenizer


def balance(data):
    for s in data.report.sources.values():
        lost = s.duplicates + s.beyond_max_samples + s.not_drawn + sum(t.count for t in s.dropped.values())
        assert s.read == lost + s.train + s.validation
        assert s.kept == s.train + s.validation


def test_columns_ids_and_counts(config, tokenizer):
    cfg = config(en=alpaca(10, "en"), zh=alpaca(6, "中"))
    cfg.dataset.validation.fraction = 0.2
    data = prepare_data(cfg, tokenizer)
    assert data.train.column_names == ["input_ids", "labels", "row_id", "source", "length"]
    assert Counter(data.train["source"]) == {"en": 8, "zh": 5}
    assert Counter(data.validation["source"]) == {"en": 2, "zh": 1}
    ids = [*data.train["row_id"], *data.validation["row_id"]]
    assert sorted(ids) == sorted([f"en/{i}" for i in range(10)] + [f"zh/{i}" for i in range(6)])
    row = data.train[0]
    assert row["length"] == len(row["input_ids"]) == len(row["labels"])
    assert all(label in (-100, token) for token, label in zip(row["input_ids"], row["labels"], strict=True))
    assert data.labels is None
    balance(data)


def test_the_same_seed_gives_the_same_rows_cached_or_not(config, tokenizer):
    cfg = config(a=alpaca(40), b=alpaca(30, "b"))
    cfg.dataset.max_samples, cfg.dataset.mix, cfg.dataset.validation.fraction = 25, "interleave", 0.1
    first, again = prepare_data(cfg, tokenizer), prepare_data(cfg, tokenizer)
    cfg.dataset.cache = False
    without = prepare_data(cfg, tokenizer)
    assert first.fingerprint == again.fingerprint == without.fingerprint
    assert first.report.as_dict() == again.report.as_dict() == without.report.as_dict()
    cfg.seed = 43
    assert prepare_data(cfg, tokenizer).fingerprint != first.fingerprint
    balance(first)


def test_everything_wrong_with_rows_is_counted(config, tokenizer):
    rows = [
        *alpaca(5), alpaca(1)[0], {"instruction": "q", "output": ""}, {"instruction": "q", "output": None}, 7,
        {"instruction": "q", "input": None, "output": 3}, {"instruction": ["q"], "output": "a"},
        {"instruction": "w" * 300, "output": "a"}, {"instruction": "long", "output": "w" * 300},
    ]  # fmt: skip
    cfg = config(s=rows)
    cfg.dataset.max_length = 100
    data = prepare_data(cfg, tokenizer)
    source = data.report.sources["s"]
    assert (source.read, source.duplicates, source.first_duplicate, source.train) == (13, 1, "s/5", 7)
    assert {k: (t.count, t.first) for k, t in source.dropped.items()} == {
        "empty answer": (2, "s/6"),
        "the row is a int, not an object": (1, "s/8"),
        "instruction is a list, not text": (1, "s/10"),
        "the prompt alone fills max_length=100, no room for an answer": (1, "s/11"),
    }
    assert (source.truncated, source.first_truncated) == (1, "s/12")
    assert {k: t.count for k, t in source.adjusted.items()} == {"output was a int, made text": 1}
    assert (source.format, source.recognised) == ("alpaca", True)
    balance(data)


def test_a_source_that_loses_every_row_stops_the_run(config, tokenizer):
    with pytest.raises(DataError, match=r"'bad'.*none of its 2 rows can be used. 2: empty answer \(first: bad/0\)"):
        prepare_data(config(good=alpaca(3), bad=[{"instruction": "q", "output": ""}] * 2), tokenizer)
    cfg = config(s=alpaca(3))
    cfg.dataset.max_length = 8
    with pytest.raises(DataError, match="the prompt alone fills max_length=8"):
        prepare_data(cfg, tokenizer)


def test_validation_by_a_named_source(config, tokenizer):
    cfg = config(train=alpaca(6), held=[*alpaca(2), *alpaca(3, "new")])
    cfg.dataset.validation.source = "held"
    data = prepare_data(cfg, tokenizer)
    assert set(data.validation["source"]) == {"held"} and len(data.validation) == 5
    assert list(data.train["row_id"]) == [
        "train/2",
        "train/3",
        "train/4",
        "train/5",
    ]  # no copy of a held row is trained on
    cfg.dataset.validation.source = "hold"
    with pytest.raises(DataError, match="no such source; there are train, held"):
        prepare_data(cfg, tokenizer)
    cfg.dataset.validation.source, cfg.dataset.validation.fraction = "held", 0.1
    with pytest.raises(DataError, match="exclude each other"):
        prepare_data(cfg, tokenizer)


def test_a_validation_source_alone(config, tokenizer):
    cfg = config(s=alpaca(3))
    cfg.dataset.validation.source = "s"
    with pytest.raises(DataError, match="only source"):
        prepare_data(cfg, tokenizer)


def test_duplicates_can_stay(config, tokenizer):
    cfg = config(s=alpaca(2) * 2)
    cfg.dataset.dedup = "off"
    assert len(prepare_data(cfg, tokenizer).train) == 4


def test_max_samples(config, tokenizer):
    cfg = config(a=alpaca(9), b=alpaca(9, "b"))
    cfg.dataset.max_samples = {"a": 4}
    data = prepare_data(cfg, tokenizer)
    assert Counter(data.train["source"]) == {"a": 4, "b": 9}
    assert data.report.sources["a"].beyond_max_samples == 5
    cfg.dataset.max_samples = {"c": 4}
    with pytest.raises(DataError, match="'c' is no source"):
        prepare_data(cfg, tokenizer)


def test_interleave(config, tokenizer):
    cfg = config(a=alpaca(30), b=alpaca(30, "b"))
    cfg.dataset.mix, cfg.dataset.weights = "interleave", {"a": 0.8, "b": 0.2}
    data = prepare_data(cfg, tokenizer)
    counts = Counter(data.train["source"])
    assert counts["a"] == 30 and data.report.sources["b"].not_drawn == 30 - counts["b"] > 10
    balance(data)


def labelled(n, labels=("积极", "消极", "中立")):
    return [{"text": f"文本 {i}", "label": labels[i % len(labels)]} for i in range(n)]


def classification(cfg):
    cfg.task.name = "classification"
    return cfg


def test_classification(config, tokenizer):
    cfg = classification(config(s=labelled(300)))
    cfg.dataset.max_samples, cfg.dataset.validation.fraction = 240, 0.2
    data = prepare_data(cfg, tokenizer)
    assert data.labels == sorted(["积极", "消极", "中立"])
    assert len(data.train) + len(data.validation) == 240
    assert isinstance(data.train[0]["labels"], int)
    for part, table in (("train", data.train), ("validation", data.validation)):
        counts = Counter(data.labels[i] for i in table["labels"])
        assert data.report.classes[part] == counts
    for label, n in data.report.classes["validation"].items():
        assert n == int(0.2 * (n + data.report.classes["train"][label]) + 0.5)
    cfg.task.labels = ["积极", "消极", "中立"]
    assert prepare_data(cfg, tokenizer).labels == ["积极", "消极", "中立"]


def test_an_unknown_label(config, tokenizer):
    cfg = classification(config(s=labelled(6)))
    cfg.task.labels = ["积极", "消极"]
    with pytest.raises(DataError, match=r"row s/2: unknown label '中立'.*积极, 消极"):
        prepare_data(cfg, tokenizer)


def test_labels_of_mixed_types(config, tokenizer):
    cfg = classification(
        config(s=[{"text": "a", "label": 0}, {"text": "b", "label": "1"}, {"text": "c", "label": 1.0}])
    )
    data = prepare_data(cfg, tokenizer)
    assert data.labels == ["0", "1"] and list(data.train["labels"]) == [0, 1, 1]


def test_csv_for_classification(tmp_path, config, tokenizer):
    (tmp_path / "r.csv").write_text("review,score\n好,1\n坏,0\n,1\n", encoding="utf-8")
    cfg = classification(config())
    cfg.dataset.sources["s"] = Source(path=str(tmp_path / "r.csv"), columns={"text": "review", "label": "score"})
    data = prepare_data(cfg, tokenizer)
    assert list(data.train["labels"]) == [1, 0]
    assert data.report.sources["s"].dropped["empty text"].first == "s/2"


def test_llamafactory(tmp_path, config, tokenizer):
    (tmp_path / "a.json").write_text(json.dumps(alpaca(3)))
    (tmp_path / "dataset_info.json").write_text(json.dumps({"a": {"file_name": "a.json", "extra": 1}}))
    cfg = config()
    cfg.dataset.dir, cfg.dataset.names = str(tmp_path), ["a"]
    data = prepare_data(cfg, tokenizer)
    assert list(data.train["row_id"]) == ["a/0", "a/1", "a/2"]
    assert any("extra" in note for note in data.report.notes)


def test_an_injected_system_turn_is_left_out_and_told(config):
    tokenizer = make_tokenizer(QWEN25)
    cfg = config(s=alpaca(2))
    data = prepare_data(cfg, tokenizer)
    assert "You are Qwen" not in tokenizer.decode(data.train[0]["input_ids"])
    assert any("system turn" in note for note in data.report.notes)
    cfg.dataset.default_system = "Be kind."
    data = prepare_data(cfg, tokenizer)
    assert tokenizer.decode(data.train[0]["input_ids"]).startswith("<|im_start|>system\nBe kind.<|im_end|>")
    assert data.report.notes == []


def test_no_chat_template(config):
    with pytest.raises(UserError, match=r"model.template=chatml"):
        prepare_data(config(s=alpaca(2)), make_tokenizer(None))
    cfg = classification(config(s=labelled(4)))
    assert len(prepare_data(cfg, make_tokenizer(None)).train) == 4


def test_a_damaged_cache_is_told(config, tokenizer, tmp_path):
    cfg = config(s=alpaca(3))
    first = prepare_data(cfg, tokenizer)
    for file in (tmp_path / "cache" / "tokenised").iterdir():
        file.write_bytes(b"damaged")
    again = prepare_data(cfg, tokenizer)
    assert again.fingerprint == first.fingerprint
    assert any("rebuilt" in note for note in again.report.notes)


def test_a_folder_is_told_file_by_file(tmp_path, config, tokenizer):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "test.json").write_text(json.dumps(alpaca(2, "test")))
    (tmp_path / "d" / "train.jsonl").write_text("\n".join(json.dumps(row) for row in alpaca(2)))
    cfg = config()
    cfg.dataset.path = str(tmp_path / "d")
    data = prepare_data(cfg, tokenizer)
    assert list(data.train["row_id"]) == ["file/0", "file/1", "file/2", "file/3"]
    assert data.report.notes == ["file: 2 files of the folder, in this order: test.json, train.jsonl"]


def test_trls_collator_takes_the_rows(config, tokenizer):
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    data = prepare_data(config(s=[*alpaca(2), {"instruction": "q", "output": "a"}]), tokenizer)
    rows = [{k: row[k] for k in ("input_ids", "labels")} for row in data.train]
    batch = DataCollatorForLanguageModeling(pad_token_id=tokenizer.pad_token_id)(rows)
    longest = max(data.train["length"])
    assert batch["input_ids"].shape == batch["labels"].shape == (3, longest)
    assert int((batch["labels"] != -100).sum()) == data.report.sources["s"].supervised_tokens
