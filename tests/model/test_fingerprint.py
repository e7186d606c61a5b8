"""Weights on disk are known again by what is in their files."""

from __future__ import annotations

import shutil
from pathlib import Path

from runner.model.fingerprint import weights_hash


def test_the_same_files_elsewhere_and_one_changed_byte(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(bytes(1000))
    (folder / "config.json").write_text("{}")
    first = weights_hash(str(folder))
    assert first is not None and len(first) == 64
    (folder / "README.md").write_text("words")
    shutil.copytree(folder, tmp_path / "copy")
    assert weights_hash(str(folder)) == weights_hash(str(tmp_path / "copy")) == first
    (folder / "model.safetensors").write_bytes(bytes(999) + b"x")
    assert weights_hash(str(folder)) != first
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    renamed = weights_hash(str(folder))
    (folder / "other.safetensors").write_bytes(bytes(1000))
    assert len({renamed, weights_hash(str(folder)), first}) == 3


def test_a_hub_id_has_none(tmp_path: Path) -> None:
    assert weights_hash("someone/model") is None and weights_hash(str(tmp_path / "nothing")) is None
