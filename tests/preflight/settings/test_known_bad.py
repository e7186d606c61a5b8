"""Versions and settings that are known to fail."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from runner.causes.catalogue import CAUSES
from runner.config.compose import Session
from runner.errors import UserError
from runner.preflight.context import Context
from runner.preflight.settings.known_bad import (
    VARIABLES,
    deepspeed_settings,
    gathered,
    gpu_names,
    known_bad,
    matching,
    table,
)

SESSION = Session()
HEALTHY = {"torch": "2.13.0+cpu", "deepspeed": None, "flash-attn": None}
GPU = {"torch.cuda": True, "machine.nvidia": True, "model.attn_implementation": "auto", "precision.compute": "bf16"}
ZERO2 = {"deepspeed.launched": True, "deepspeed.zero_optimization.stage": 2, "deepspeed.gradient_clipping": "auto"}

STAGE3 = {"deepspeed.zero_optimization.stage": 3}

PLANTED: dict[str, tuple[dict[str, str | None], dict[str, Any]]] = {
    "deepspeed_overlap_comm": ({"deepspeed": "0.16.4"}, {**ZERO2, "deepspeed.zero_optimization.overlap_comm": True}),
    "deepspeed_zero2_gradients": ({"deepspeed": "0.18.2"}, ZERO2),
    "deepspeed_no_clipping": (
        {"deepspeed": "0.19.3"},
        {"deepspeed.launched": True, "deepspeed.zero_optimization.stage": 3, "clip.method": "norm"},
    ),
    "cudnn_attention_2_5_0": ({"torch": "2.5.0+cu124"}, GPU),
    "cudnn_attention_masked_hopper": ({"torch": "2.13.0"}, {**GPU, "machine.hopper": True}),
    "flash_attention_softcap": (
        {"flash-attn": "2.5.9"},
        {"model.attn_implementation": "flash_attention_2", "model.json.model_type": "gemma2"},
    ),
    "flash_attention_gemma2": (
        {"flash-attn": "2.8.0"},
        {"model.attn_implementation": "flash_attention_2", "model.json.model_type": "gemma2"},
    ),
    "masked_rows": ({"torch": "2.4.1"}, {"model.attn_implementation": "sdpa"}),
    "liger": ({}, {"trainer.use_liger_kernel": True}),
    "int8_classifier_fp16": (
        {},
        {"model.quantization": "8bit", "task.name": "classification", "precision.compute": "fp16"},
    ),
    "two_openmp_runtimes": ({}, {"env.KMP_DUPLICATE_LIB_OK": "true"}),
}
NEAR: list[tuple[dict[str, str | None], dict[str, Any]]] = [
    ({"deepspeed": "0.16.4"}, {**ZERO2, "deepspeed.zero_optimization.overlap_comm": False}),
    (
        {"deepspeed": "0.16.4"},
        {"deepspeed.zero_optimization.stage": 3, "deepspeed.zero_optimization.overlap_comm": True},
    ),
    ({"deepspeed": "0.18.3"}, ZERO2),
    ({"deepspeed": "0.17.5"}, ZERO2),
    ({"deepspeed": None}, {**ZERO2, "deepspeed.zero_optimization.overlap_comm": True}),
    ({"torch": "2.5.1"}, GPU),
    ({"torch": "2.5.0"}, {**GPU, "torch.cuda": False}),
    ({"torch": "2.5.0"}, {**GPU, "model.attn_implementation": "eager"}),
    ({"torch": "2.13.0"}, GPU),
    ({"torch": "2.14.0"}, {**GPU, "machine.hopper": True}),
    ({"torch": "2.5.0"}, {"model.attn_implementation": "sdpa"}),
    ({"flash-attn": "2.5.9"}, {"model.attn_implementation": "flash_attention_2", "model.json.model_type": "qwen2"}),
    ({}, {"trainer.use_liger_kernel": False}),
    ({}, {"model.quantization": "4bit", "task.name": "classification", "precision.compute": "fp16"}),
]


def row(id: str) -> Any:
    return next(r for r in table() if r.id == id)


def test_every_row_is_whole_and_planted() -> None:
    assert sorted(r.id for r in table()) == sorted(PLANTED) and len({r.id for r in table()}) == len(table())
    for one in table():
        assert one.cause in CAUSES and one.severity in ("error", "warning", "note")
        assert one.reason and one.source and one.where and all("#" in s for s in one.source)
        for wanted in one.packages.values():
            SpecifierSet(wanted)
        for key in one.settings:
            assert not key.startswith("env.") or key.removeprefix("env.") in VARIABLES


def test_overrides_compose() -> None:
    for overrides in {tuple(one.overrides) for one in table()} - {()}:
        SESSION.load(list(overrides))


@pytest.mark.parametrize("id", sorted(PLANTED))
def test_a_planted_combination_is_that_row_and_no_other(id: str) -> None:
    versions, settings = PLANTED[id]
    (finding,) = matching({**HEALTHY, **versions}, settings, table())
    one = row(id)
    assert (finding.id, finding.severity) == (one.cause, one.severity)
    assert finding.where == tuple(one.where) and finding.numbers["row"] == id
    for name in one.packages:
        assert f"{name} {versions[name]}" in finding.sentence


@pytest.mark.parametrize(("versions", "settings"), NEAR)
def test_combinations_beside_it_are_fine(versions: dict[str, str | None], settings: dict[str, Any]) -> None:
    assert not matching({**HEALTHY, **versions}, settings, table())


@given(
    st.fixed_dictionaries({"torch": st.sampled_from([None, "2.4.1", "2.5.0", "2.13.0+cpu", "3.0.0.dev1"])}),
    st.dictionaries(
        st.sampled_from([*GPU, *ZERO2, "trainer.use_liger_kernel"]), st.sampled_from([None, True, 1, "sdpa"])
    ),
)
def test_any_versions_and_settings_can_be_judged(versions: dict[str, str | None], settings: dict[str, Any]) -> None:
    for finding in matching(versions, settings, table()):
        assert row(finding.numbers["row"]).holds(versions, settings)


@pytest.mark.parametrize(
    "lines", [[], ["task=classification", "dataset=sentiment_zh"], ["lora=none"], ["+exp=qwen14b_lora"]]
)
def test_sound_settings_on_this_machine(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "ACCELERATE_DEEPSPEED_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    c = Context(SESSION.load(lines, findings=True).config, "deep", Path("nowhere"))
    settings = gathered(c.cfg, {"CUDA_VISIBLE_DEVICES": ""}, "2.13.0+cpu")
    assert not matching(HEALTHY, settings, table())
    assert settings["task.name"] == c.cfg.task.name and settings["torch.cuda"] is False
    assert f"of {len(table())} known" in known_bad(c).summary


def test_a_deepspeed_json_of_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    c = Context(SESSION.load([]).config, "deep", tmp_path)
    content = {"zero_optimization": {"stage": 2, "overlap_comm": True}, "gradient_clipping": "auto"}
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(content))
    assert deepspeed_settings(c.cfg, {"ACCELERATE_DEEPSPEED_CONFIG_FILE": str(path)}) is None
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", str(path))
    launched = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": str(path)}

    def ids(version: str) -> list[str]:
        settings = gathered(c.cfg, launched, "2.13.0+cpu")
        return [f.id for f in matching({**HEALTHY, "deepspeed": version}, settings, table())]

    assert ids("0.16.4") == ["engine.overlap_race"]
    path.write_text(json.dumps({"zero_optimization": {"stage": 3, "overlap_comm": True}}))
    assert ids("0.16.4") == ["engine.clip_not_applied"]
    text = base64.b64encode(json.dumps(content).encode()).decode()
    assert deepspeed_settings(c.cfg, {**launched, "ACCELERATE_DEEPSPEED_CONFIG_FILE": text}) == content
    own = deepspeed_settings(c.cfg, {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "1"})
    assert own == {"zero_optimization": {"stage": 1}, "gradient_clipping": "auto"}
    path.write_text("{torn")
    with pytest.raises(UserError, match="no DeepSpeed JSON can be read"):
        known_bad(c)


@pytest.mark.parametrize("name", ["ds_z0_config", "ds_z2_config", "ds_z2_offload_config", "ds_z3_config"])
def test_published_deepspeed_files_are_fine(name: str) -> None:
    path = Path(__file__).resolve().parents[3] / f"shared/data/llamafactory_examples/deepspeed/{name}.json"
    if not path.is_file():
        pytest.skip("LLaMA-Factory's examples are not here")
    cfg = SESSION.load([]).config
    cfg.trainer["deepspeed"] = str(path)
    settings = gathered(cfg, {}, "2.13.0+cpu")
    assert settings["deepspeed.zero_optimization.stage"] in (0, 2, 3)
    assert not matching({**HEALTHY, "deepspeed": "0.19.3"}, settings, table())


def test_cards_are_read_from_the_driver(tmp_path: Path) -> None:
    assert gpu_names(tmp_path) == []
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   5\n")
    assert gpu_names(tmp_path) == ["NVIDIA H100 80GB HBM3"]
