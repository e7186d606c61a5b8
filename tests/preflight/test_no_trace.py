"""A run with checks has the losses of a run without, bit for bit; and what a run does with what they find."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from runner.config.schema import Lora, Precision, Validation
from runner.preflight.flow import PreflightError
from runner.run import run
from runner.runfolder import read_telemetry


def at(cfg: Any, level: str, allow: str = "") -> Any:
    """The same run with checks at a level, in a folder of its own."""
    checks = dataclasses.replace(cfg.checks, level=level, allow=[allow] if allow else [])
    return dataclasses.replace(cfg, checks=checks, output_dir=f"{cfg.output_dir}-{level}")


def numbers(folder: Path) -> list[tuple[Any, ...]]:
    """What a step is known by."""
    rows = read_telemetry(folder)
    return [(r["step"], r["loss"], r["grad_norm"], r["learning_rate"], r.get("update_rms")) for r in rows]


CASES = [
    pytest.param("sft", Lora(lora_dropout=0.1), Precision(compute="fp32"), id="sft-lora"),
    pytest.param("classification", Lora(method="none"), Precision(compute="fp32"), id="classification-full"),
    pytest.param("sft", Lora(method="none"), Precision(compute="bf16"), id="sft-full-bf16", marks=pytest.mark.slow),
    pytest.param("classification", Lora(), Precision(compute="fp16"), id="classification-lora-fp16",
                 marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize(("task", "lora", "precision"), CASES)
@pytest.mark.parametrize("level", ["quick", pytest.param("deep", marks=pytest.mark.slow)])
def test_checks_leave_no_trace(
    make_config: Callable[..., Any], task: str, lora: Lora, precision: Precision, level: str
):
    held = Validation(fraction=0.2)
    cfg = make_config(task, rows=30, schedule__max_steps=4, lora=lora, precision=precision, dataset__validation=held)
    without, looked_at = run(at(cfg, "off")), run(at(cfg, level))
    assert numbers(without.folder) == numbers(looked_at.folder) and len(numbers(without.folder)) == 4
    written = json.loads((looked_at.folder / "preflight.json").read_text())
    assert not [c for c in written["checks"] if c["status"] == "failed"]
    assert not (without.folder / "preflight.json").exists()
    assert not (looked_at.folder / "preflight").exists(), "scratch files were left"


def spoil(cfg: Any) -> None:
    """NaN in one element of a weight file of its own."""
    from safetensors.torch import load_file, save_file

    file = Path(cfg.model.path) / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = torch.nan
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.fixture
def damaged(make_config: Callable[..., Any], tmp_path: Path) -> Any:
    import shutil

    cfg = make_config(schedule__max_steps=2)
    copy = tmp_path / "damaged"
    shutil.copytree(cfg.model.path, copy)
    cfg = dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, path=str(copy)))
    spoil(cfg)
    return cfg


def test_a_damaged_file_is_refused_before_the_first_step(damaged: Any):
    cfg = at(damaged, "quick")
    with pytest.raises(PreflightError, match=r"weights\.damaged.*model\.layers\.1\.mlp\.up_proj\.weight"):
        run(cfg)
    folder = Path(cfg.output_dir)
    state = json.loads((folder / "run.json").read_text())
    assert state["state"] == "failed" and "weights.damaged" in state["reason"]
    assert read_telemetry(folder) == []
    (error,) = [f for f in json.loads((folder / "preflight.json").read_text())["findings"] if f["severity"] == "error"]
    assert error["id"] == "weights.damaged" and error["where"][0] == "model.layers.1.mlp.up_proj.weight"


def test_it_runs_all_the_same_where_that_is_allowed(damaged: Any):
    outcome = run(at(damaged, "quick", allow="weights.damaged"))
    assert outcome.state == "diverged"
    written = json.loads((outcome.folder / "preflight.json").read_text())
    assert [f["allowed"] for f in written["findings"] if f["id"] == "weights.damaged"] == [True]
    assert "allowed by checks.allow" in (outcome.folder / "console.log").read_text()


def test_the_header_tells_what_was_checked(make_config: Callable[..., Any]):
    outcome = run(at(make_config(schedule__max_steps=1), "quick"))
    log = (outcome.folder / "console.log").read_text()
    assert "preflight" in log and " checks in " in log and "weights.keys_do_not_match" in log
