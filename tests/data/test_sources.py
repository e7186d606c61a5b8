from __future__ import annotations

import json

import pytest

from runner.config.schema import Dataset, Source
from runner.data.sources import load_rows, resolve_sources
from runner.errors import DataError


def test_a_folder_is_read_in_order_of_names(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"n": 3}\n')
    (tmp_path / "a.json").write_text('[{"n": 1}, {"n": 2}]')
    (tmp_path / "c.csv").write_text("n\n4\n")
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / ".hidden.json").write_text("broken")
    assert load_rows("x", Source(path=str(tmp_path))) == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": "4"}]


def test_sub_folders_are_read_if_the_folder_itself_has_no_rows(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text('[{"n": 1}]')
    assert load_rows("x", Source(path=str(tmp_path))) == [{"n": 1}]


def test_a_folder_without_rows(tmp_path):
    (tmp_path / "README.md").write_text("")
    with pytest.raises(DataError, match=r"no file to read.*README\.md"):
        load_rows("x", Source(path=str(tmp_path)))


@pytest.mark.parametrize("path", ["train.jsonl", "./train", "数据/情感", "a/b/c", "~/no/such.json"])
def test_a_missing_path_is_named(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"dataset\.sources\.x\.path=.*no such file or folder") as error:
        load_rows("x", Source(path=path))
    assert path in str(error.value)


def test_a_missing_path_shows_near_names(tmp_path):
    (tmp_path / "sentiment_train.jsonl").write_text("{}")
    with pytest.raises(DataError, match=r"near it.*sentiment_train\.jsonl"):
        load_rows("x", Source(path=str(tmp_path / "sentiment_trainn.jsonl")))


def test_a_path_that_no_system_can_look_up():
    with pytest.raises(DataError, match="cannot be looked up"):
        load_rows("x", Source(path="x" * 5000))


def test_an_unknown_ending(tmp_path):
    (tmp_path / "rows.xlsx").write_text("")
    with pytest.raises(DataError, match=r"cannot read \.xlsx; readable are \.json"):
        load_rows("x", Source(path=str(tmp_path / "rows.xlsx")))


def test_a_hub_name_without_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as error:
        load_rows("en", Source(path="nobody/no_such_set"), offline=True)
    for part in (
        "nobody/no_such_set",
        "neither a file or folder here",
        str(tmp_path),
        "hub=auto",
        "dataset.sources.en.path",
    ):
        assert part in str(error.value)


def test_a_hub_data_set_gives_rows_with_label_names(monkeypatch):
    import datasets

    asked = {}
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})

    def load_dataset(path, **options):
        asked.update(options, path=path)
        return datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    source = Source(path="o/s", subset="zh", split="test", revision="v1", folder="d")
    rows = load_rows("x", source)
    assert [r["label"] for r in rows] == ["pos", "neg", None]
    assert asked == {"path": "o/s", "name": "zh", "split": "test", "revision": "v1", "data_dir": "d"}


def test_an_empty_hub_data_set(monkeypatch):
    import datasets

    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: datasets.Dataset.from_dict({"text": []}))
    with pytest.raises(DataError, match="is empty"):
        load_rows("x", Source(path="o/s"))


def test_resolve_path_alone_names_or_nothing(tmp_path):
    assert resolve_sources(Dataset(path="a.json"))[0] == {"file": Source(path="a.json")}
    (tmp_path / "dataset_info.json").write_text(json.dumps({"a": {"file_name": "a.json"}}))
    got, _ = resolve_sources(Dataset(dir=str(tmp_path), names=["a"], sources={"b": Source(path="b.json")}))
    assert list(got) == ["b", "a"]
    with pytest.raises(DataError, match="both in"):
        resolve_sources(Dataset(dir=str(tmp_path), names=["a"], sources={"a": Source(path="b.json")}))
    with pytest.raises(DataError, match="nothing to train on"):
        resolve_sources(Dataset())
