"""Weight files on disk: shards, headers, holes, checksums, and the loaded tensors against their bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from runner.config.schema import Model
from runner.preflight.examine import examine
from runner.preflight.weights.against import compare
from runner.preflight.weights.disk import HeaderError, Source, Stored, origin, read_header, tensors_of, weight_files
from runner.preflight.weights.files import (
    against_files,
    against_index,
    checksums,
    files,
    holes,
    in_holes,
    overlapping,
    wrong_checksums,
    wrong_sizes,
)
from tests.preflight.weights.damage import EMBEDDING, FILE, UP, copy_of, data_range, grave, rewrite, shard

Make = Callable[..., Any]


def of(folder: Path) -> Any:
    return weight_files(Model(path=str(folder)))


def test_sound_files(context: Make) -> None:
    c = context("weights")
    assert files(c).summary.startswith("1 file, ") and files(c).findings == ()
    assert against_files(c).summary == "26 tensors equal their files" and against_files(c).findings == ()


def test_sound_shards(context: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    count = len(shard(folder))
    c = context("weights", model__path=str(folder), lora__method="none", precision__compute="fp32")
    assert grave(c) == [] and files(c).summary.startswith(f"{count} files, ")
    assert against_files(c).summary == "26 tensors equal their files"


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_a_truncated_file(make_config: Make, micro_model: Path, tmp_path: Path, task: str) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    data = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(data[: len(data) // 2])
    (f,) = examine(make_config(task, model__path=str(folder)), "quick", tmp_path / "out", until="weights").errors
    assert (f.id, f.severity, f.where) == ("weights.damaged", "error", (FILE,))


def test_a_missing_shard(make_config: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    gone = shard(folder)[1]
    gone.unlink()
    (f,) = examine(make_config(model__path=str(folder)), "quick", tmp_path / "out", until="weights").errors
    assert (f.id, f.where) == ("weights.damaged", (gone.name,)) and gone.name in f.sentence


def test_an_index_that_is_none(make_config: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    shard(folder)
    (folder / "model.safetensors.index.json").write_text("{}", encoding="utf-8")
    (f,) = examine(make_config(model__path=str(folder)), "quick", tmp_path / "out", until="weights").errors
    assert (f.id, f.where) == ("weights.damaged", ("model.safetensors.index.json",))
    with pytest.raises(HeaderError, match="no index"):
        of(folder)


def test_an_index_that_puts_a_tensor_elsewhere(micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    shards = shard(folder)
    assert against_index(of(folder)) == []
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    index["weight_map"][UP] = next(s.name for s in shards if s.name != index["weight_map"][UP])
    index["metadata"]["total_size"] += 4
    path.write_text(json.dumps(index), encoding="utf-8")
    lost, total = against_index(of(folder))
    assert (lost.id, lost.severity, lost.where) == ("weights.damaged", "error", (UP,))
    assert total.severity == "note" and total.numbers["total_size"] - total.numbers["actual"] == 4


def test_a_file_of_another_length(micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    assert wrong_sizes(of(folder)) == []
    with (folder / FILE).open("ab") as content:
        content.write(b"12345")
    (f,) = wrong_sizes(of(folder))
    assert (f.id, f.where, f.numbers["bytes"] - f.numbers["wanted"]) == ("weights.damaged", (FILE,), 5)


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"", "0 bytes"), (b"\xff" * 8, "announces"), (b"\x02" + bytes(7) + b"no", "not JSON")],
)
def test_headers_that_cannot_be_read(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(HeaderError, match=said):
        read_header(tmp_path / FILE)


def test_where_tensors_lie(tmp_path: Path) -> None:
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(5, dtype=torch.bfloat16)}, tmp_path / FILE)
    stored = tensors_of(tmp_path / FILE)
    assert stored["a"].shape == (2, 3) and stored["a"].end - stored["a"].begin == 24 and stored["b"].dtype == "BF16"
    assert torch.equal(stored["a"].read(), torch.arange(6.0).reshape(2, 3))
    assert (tmp_path / FILE).stat().st_size == max(s.end for s in stored.values())


def test_what_is_not_safetensors(micro_model: Path, tmp_path: Path) -> None:
    assert of(tmp_path).kind == "absent"
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert of(tmp_path).kind == "pickle" and of(tmp_path).why_not
    assert weight_files(Model(path=str(micro_model), gguf_file="a.gguf")).kind == "gguf"
    assert weight_files(Model(path="no/such_model")).kind == "absent"


def hub_cache(micro_model: Path, root: Path) -> tuple[Path, Path]:
    """(snapshot, blob of the weights) of the model in the layout of the hub's cache."""
    repo = root / "models--someone--micro"
    snapshot = repo / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40, encoding="utf-8")
    for file in micro_model.iterdir():
        data = file.read_bytes()
        blob = repo / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        (snapshot / file.name).symlink_to(blob)
        if file.name == FILE:
            weights = blob
    return snapshot, weights


def test_blobs_of_the_hub_are_named_by_their_sha256(context: Make, micro_model: Path, tmp_path: Path) -> None:
    snapshot, blob = hub_cache(micro_model, tmp_path / "hub")
    c = context("weights", model__path=str(snapshot))
    assert grave(c) == [] and files(c).summary.endswith(", 1 checksum")
    c.level = "quick"
    assert files(c).summary.endswith("checksums only with checks.level=deep")
    c.level = "deep"
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    (f,) = files(c).findings
    assert (f.id, f.where, f.numbers["wanted"]) == ("weights.damaged", (FILE,), blob.name)


def test_a_model_of_the_hub_is_found_in_its_cache(
    micro_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, _ = hub_cache(micro_model, tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert weight_files(Model(path="someone/micro")).files == (snapshot / FILE,)


@pytest.mark.parametrize("line", ["{sum}  {name}", "{sum} *{name}", "{sum}", "0  other\n{sum}  ./{name}"])
def test_checksums_beside_the_files(tmp_path: Path, line: str) -> None:
    file = tmp_path / FILE
    file.write_bytes(b"abc")
    right = hashlib.sha256(b"abc").hexdigest()
    listed = tmp_path / (f"{FILE}.sha256" if "{name}" not in line else "SHA256SUMS")
    listed.write_text(line.format(sum=right, name=FILE), encoding="utf-8")
    assert checksums([file]) == {file: right} and wrong_checksums(checksums([file])) == []
    listed.write_text(line.format(sum="0" * 64, name=FILE), encoding="utf-8")
    (f,) = wrong_checksums(checksums([file]))
    assert (f.id, f.where) == ("weights.damaged", (FILE,))
    listed.write_text(f"{'0' * 64}  another", encoding="utf-8")
    assert checksums([file]) == {}


def test_which_tensors_lie_in_holes() -> None:
    def stored(name: str, begin: int, end: int) -> Stored:
        return Stored(name, Path(FILE), "F32", ((end - begin) // 4,), begin, end)

    every = [stored("a", 0, 10000), stored("b", 10000, 10400), stored("c", 10400, 30000)]
    assert overlapping(every, [(8192, 12288)]) == [every[1]]
    assert overlapping(every, [(4096, 12288)]) == every[:2]
    assert overlapping(every, []) == []


def test_a_sparse_file(context: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")
    begin, end = data_range(folder)
    data = (folder / FILE).read_bytes()
    with (folder / FILE).open("wb") as content:
        content.write(data[:begin])
        content.truncate(end)
    if not holes(folder / FILE):
        pytest.skip("this file system keeps no holes")
    assert holes(folder / FILE)[-1][1] == end
    c = context("weights", model__path=str(folder))
    (f,) = grave(c)
    assert (f.id, f.numbers["tensors"]) == ("weights.zero_filled", 20)
    # The same holes under a model whose loaded weights are fine: only the file tells.
    other = context("weights")
    (f,) = in_holes(other, origin(c))
    assert f.id == "weights.zero_filled" and EMBEDDING in f.where and f.numbers["files"] == [FILE]


def test_a_file_without_holes(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(os.urandom(20000))
    assert holes(tmp_path / FILE) == []


def test_loaded_values_that_are_not_the_files(context: Make) -> None:
    c = context("weights", task="classification")
    with torch.no_grad():
        c.start.get_parameter(UP)[5, 5] += 0.25
    (f,) = against_files(c).findings
    assert (f.id, f.severity, f.where) == ("weights.keys_do_not_match", "error", (UP,))
    assert f.numbers["culprit"] == "loader"


def test_the_cast_of_the_loader_is_no_difference(context: Make, micro_model: Path, tmp_path: Path) -> None:
    c = context("weights", precision__compute="bf16", precision__frozen_weights="bf16")
    assert next(c.start.parameters()).dtype == torch.bfloat16
    assert against_files(c).summary == "26 tensors equal their files" and grave(c) == []


def test_one_tensor_against_its_source(tmp_path: Path) -> None:
    save_file({"w": torch.arange(6.0).reshape(3, 2)}, tmp_path / FILE)
    source = [Source(tensors_of(tmp_path / FILE)["w"], True)]
    w = torch.arange(6.0).reshape(3, 2)
    assert compare(w, source) == "same" and compare(w + 1, source) == "differs"
    assert compare(torch.cat([w, w]), source) == "same"  # rows for new tokens
    assert compare(w[:2], source) == "shape" and compare(w.T, source) == "shape"
    assert compare(w, [Source(source[0].stored, False)]) == "built" and compare(w, source * 2) == "built"
    assert compare(w.to(torch.uint8), source) == "built" and compare(w.to("meta"), source) == "built"


def test_names_that_the_loader_changes(context: Make, micro_model: Path, tmp_path: Path) -> None:
    folder = copy_of(micro_model, tmp_path / "model")

    def strip(weights: dict[str, torch.Tensor]) -> None:
        for key in list(weights):
            weights[key.removeprefix("model.")] = weights.pop(key)

    rewrite(folder, strip)
    c = context("weights", model__path=str(folder))
    assert against_files(c).summary == "26 tensors equal their files" and grave(c) == []
    assert origin(c).sources[UP][0].stored.name == UP.removeprefix("model.")
