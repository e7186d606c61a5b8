"""The cache of base losses: what its keys hold, and how it bears damage, full disks and company."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil

import pytest

from runner.config.schema import Config
from runner.data import loss_cache
from runner.data.loss_cache import load_losses, model_key, row_key, starts_as_base, store_losses

A, B, C = (row_key([1, 2, i], [-100, 2, i]) for i in range(3))


def test_round_trip(tmp_path):
    notes = []
    assert load_losses("k", [A, B], notes.append, tmp_path) == {}
    store_losses("k", {A: (1.25, 3), B: (0.1, 1)}, notes.append, tmp_path)
    assert load_losses("k", [A, C], notes.append, tmp_path) == {A: (1.25, 3)}
    assert load_losses("other", [A, B], notes.append, tmp_path) == {}
    assert notes == []
    assert [p.name for p in (tmp_path / "base_loss").iterdir()] == ["k.arrow"], "nothing temporary is left"


def test_what_another_process_wrote_stays(tmp_path):
    store_losses("k", {A: (1.0, 1), B: (1.0, 1)}, print, tmp_path)
    store_losses("k", {B: (2.0, 1), C: (3.0, 1)}, print, tmp_path)
    assert load_losses("k", [A, B, C], print, tmp_path) == {A: (1.0, 1), B: (2.0, 1), C: (3.0, 1)}


def test_losses_that_are_not_finite_are_not_kept(tmp_path):
    store_losses("k", {A: (math.nan, 1), B: (math.inf, 1)}, print, tmp_path)
    assert not (tmp_path / "base_loss").exists()
    store_losses("k", {A: (math.nan, 1), C: (1.0, 1)}, print, tmp_path)
    assert load_losses("k", [A, B, C], print, tmp_path) == {C: (1.0, 1)}


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"", lambda b: b[:200] + bytes([b[200] ^ 1]) + b[201:]])
def test_a_damaged_file_is_told_and_replaced(tmp_path, damage):
    notes = []
    store_losses("k", {A: (1.0, 1)}, notes.append, tmp_path)
    file = tmp_path / "base_loss" / "k.arrow"
    file.write_bytes(damage(file.read_bytes()))
    assert load_losses("k", [A], notes.append, tmp_path) == {}
    assert len(notes) == 1 and "damaged" in notes[0] and str(file) in notes[0]
    store_losses("k", {B: (2.0, 1)}, notes.append, tmp_path)
    assert load_losses("k", [A, B], notes.append, tmp_path) == {B: (2.0, 1)} and len(notes) == 1


def test_an_unwritable_folder_costs_only_time(tmp_path):
    (tmp_path / "file").write_text("")
    notes = []
    assert load_losses("k", [A], notes.append, tmp_path / "file") == {}
    store_losses("k", {A: (1.0, 1)}, notes.append, tmp_path / "file")
    assert any("cannot be written" in n and "RUNNER_CACHE" in n for n in notes)


def test_a_full_disk_costs_only_time(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(loss_cache, "write_bytes", full)
    notes = []
    store_losses("k", {A: (1.0, 1)}, notes.append, tmp_path)
    assert len(notes) == 1 and "No space left" in notes[0]


def test_the_rows_key():
    assert row_key([1, 2], [3, 4]) == row_key((1, 2), (3, 4)) and len(A) == 32
    keys = [row_key([1, 2], [3, 4]), row_key([1, 2, 3], [4]), row_key([1, 2], [3, 5]), row_key([1, 2], 3)]
    assert len(set(keys)) == 4


def key(cfg: Config, **facts) -> str:
    usual = {"compute": "fp32", "frozen": "fp32", "trainable": "fp32", "attention": "sdpa", "classes": None}
    return model_key(cfg, **{**usual, **facts})


def changed(cfg: Config, group: str, **values) -> Config:
    return dataclasses.replace(cfg, **{group: dataclasses.replace(getattr(cfg, group), **values)})


@pytest.fixture
def cfg() -> Config:
    return changed(Config(), "model", path="someone/model")


def test_the_models_key_holds_what_its_losses_depend_on(cfg):
    keys = [
        key(cfg),
        key(changed(cfg, "model", path="someone/other")),
        key(changed(cfg, "model", revision="v2")),
        key(changed(cfg, "model", gguf_file="a.gguf")),
        key(changed(cfg, "model", quantization="4bit")),
        key(changed(cfg, "lora", adapter="someone/adapter")),
        key(changed(cfg, "lora", init_lora_weights="pissa")),
        key(changed(cfg, "planted", fault="fp16_forward_overflow")),
        key(cfg, compute="bf16"),
        key(cfg, frozen="bf16"),
        key(cfg, attention="eager"),
        key(cfg, commit="abc"),
        key(cfg, classes=3),
        key(cfg, classes=2),
    ]
    assert len(set(keys)) == len(keys)


def test_the_models_key_leaves_out_what_they_do_not_depend_on(cfg):
    for other in (
        changed(cfg, "optim", learning_rate=0.1),
        changed(cfg, "lora", r=64, lora_dropout=0.5),
        changed(cfg, "lora", method="none"),
        changed(cfg, "lora", method="freeze", trainable=["x"]),
        changed(cfg, "batch", sampler="stratified"),
        dataclasses.replace(cfg, seed=7),
    ):
        assert key(other) == key(cfg)
    assert key(cfg, trainable="bf16") == key(cfg), "LoRA: the base is in the frozen format"
    full = changed(cfg, "lora", method="none")
    assert key(full, trainable="bf16", frozen="fp32") != key(full)


def test_the_seed_counts_where_it_makes_weights(cfg):
    other = dataclasses.replace(cfg, seed=7)
    assert key(other, classes=3) != key(cfg, classes=3), "a new head"
    for lora in ({"init_lora_weights": False}, {"init_lora_weights": "pissa"}):
        assert key(changed(other, "lora", **lora)) != key(changed(cfg, "lora", **lora))
    continued = {"adapter": "someone/adapter"}
    assert key(changed(other, "lora", **continued)) == key(changed(cfg, "lora", **continued))


def test_which_adapters_start_as_the_base(cfg):
    assert starts_as_base(cfg) and starts_as_base(changed(cfg, "lora", init_lora_weights="gaussian"))
    for lora in ({"init_lora_weights": "pissa"}, {"init_lora_weights": False}, {"adapter": "a"}):
        assert not starts_as_base(changed(cfg, "lora", **lora))


def test_a_local_model_is_known_by_its_files(tmp_path, micro_model):
    folder = tmp_path / "model"
    shutil.copytree(micro_model, folder)
    cfg = changed(Config(), "model", path=str(folder))
    first = key(cfg)
    (folder / "notes.txt").write_text("of no matter")
    assert key(cfg) == first
    weights = folder / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    touched = key(cfg)
    settings = folder / "config.json"
    settings.write_text(settings.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    assert len({first, touched, key(cfg)}) == 3


def test_an_adapter_that_was_trained_on_is_another_model(tmp_path, cfg):
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"one")
    cfg = changed(cfg, "lora", adapter=str(tmp_path))
    first = key(cfg)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"other")
    assert key(cfg) != first
