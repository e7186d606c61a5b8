from __future__ import annotations

import json

import pytest

from runner.data.llamafactory import read_dataset_info
from runner.errors import DataError

INFO = {
    "plain": {"file_name": "plain.json"},
    "orca": {
        "hf_hub_url": "Open-Orca/OpenOrca",
        "ms_hub_url": "AI-ModelScope/OpenOrca",
        "columns": {"prompt": "question", "response": "response", "system": "system_prompt"},
        "num_samples": 7,
        "split": "part",
        "subset": "s",
        "folder": "f",
    },
    "glaive": {
        "file_name": "g.json",
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "tools": "tools"},
    },
    "chat": {"file_name": "c.json", "formatting": "openai", "tags": {"role_tag": "r"}, "load_from": "x"},
    "dpo": {"file_name": "d.json", "ranking": True},
    "kto": {"file_name": "d.json", "columns": {"kto_tag": "label"}},
    "vision": {"file_name": "d.json", "columns": {"images": "images"}},
    "ms": {"ms_hub_url": "a/b"},
    "odd": {"file_name": "d.json", "formatting": "chatml"},
    "none": {},
    "word": "text",
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "dataset_info.json").write_text(json.dumps(INFO))
    return tmp_path


def test_entries_become_sources(folder):
    sources, notes = read_dataset_info(str(folder), ["plain", "orca", "glaive", "chat"])
    plain, orca, glaive, chat = sources.values()
    assert (plain.path, plain.format) == (str(folder / "plain.json"), "alpaca")
    assert plain.columns["prompt"] == "instruction" and plain.columns["history"] == ""
    assert orca.path == "Open-Orca/OpenOrca"
    assert (orca.max_samples, orca.split, orca.subset, orca.folder) == (7, "part", "s", "f")
    # As in LLaMA-Factory: a column that `columns` does not name is not used.
    assert orca.columns == {
        "prompt": "question",
        "response": "response",
        "system": "system_prompt",
        "query": "",
        "history": "",
        "tools": "",
    }
    assert glaive.format == "sharegpt" and glaive.columns["tools"] == "tools"
    assert chat.format == "messages" and chat.tags == {"role_tag": "r"}
    assert notes == ["chat: load_from of dataset_info.json are not used here"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plainn", "did you mean plain"),
        ("dpo", "preference data.*DPO"),
        ("kto", "preference data.*KTO"),
        ("vision", "images.*text only"),
        ("ms", "ModelScope"),
        ("odd", "formatting='chatml'"),
        ("none", "neither file_name nor hf_hub_url"),
        ("word", "must be an object"),
        ("zzzzzz", "it has: plain"),
    ],
)
def test_what_cannot_be_used_is_named(folder, name, message):
    with pytest.raises(DataError, match=message):
        read_dataset_info(str(folder), [name])


def test_missing_folder_or_file(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_dataset_info(str(tmp_path / "no"), ["a"])
    with pytest.raises(DataError, match=r"holds no dataset_info\.json"):
        read_dataset_info(str(tmp_path), ["a"])
    (tmp_path / "dataset_info.json").write_text('{"a": }')
    with pytest.raises(DataError, match=r"dataset_info\.json, line 1, column 7"):
        read_dataset_info(str(tmp_path), ["a"])
