"""A NaN that one row reaches: seen at its step, and under `guarded` without effect on the weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, TrainerCallback

from runner.config.schema import Guard
from runner.run import run
from runner.runfolder import read_json, read_telemetry
from tests.training.kit import trainer_for

POISON = "zebra"
"""A word of one row only."""


@pytest.fixture
def poisoned(micro_model: Path, tmp_path: Path) -> Path:
    """The micro model, embedding and head untied, with NaN in the embedding of the last token of the poison word."""
    path = tmp_path / "poisoned"
    shutil.copytree(micro_model, path)
    weights = load_file(path / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    token = AutoTokenizer.from_pretrained(path)(f" {POISON}")["input_ids"][-1]
    weights["model.embed_tokens.weight"][token] = float("nan")
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    return path


def poison_one_row(cfg: Any, task: str) -> None:
    """Put the poison word into one training row."""
    if task == "sft":
        path = Path(cfg.dataset.sources["short"].path)
        rows = json.loads(path.read_text())
        rows[4]["instruction"] += f" {POISON}"
        path.write_text(json.dumps(rows))
    else:
        path = Path(cfg.dataset.sources["texts"].path)
        lines = path.read_text().splitlines()
        row = json.loads(lines[4])
        lines[4] = json.dumps({**row, "text": row["text"] + f" {POISON}"})
        path.write_text("\n".join(lines) + "\n")


class Weights(TrainerCallback):
    """A copy of the trainable weights after every step."""

    def __init__(self) -> None:
        self.after: list[torch.Tensor] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.after.append(torch.cat([p.detach().flatten().clone() for p in model.parameters() if p.requires_grad]))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("task", ["sft", "classification"])
def test_a_skipped_step_changes_nothing_and_the_rest_trains_on(
    make_config: Callable[..., Any], poisoned: Path, task: str, precision: str
) -> None:
    cfg = make_config(
        task,
        rows=40,
        model__path=str(poisoned),
        precision__compute=precision,
        stability__guard=Guard(on_nonfinite="skip"),
        schedule__num_train_epochs=1.0,
        schedule__warmup_steps=0,
        optim__learning_rate=1e-2,
    )
    poison_one_row(cfg, task)
    weights = Weights()
    trainer, rows = trainer_for(cfg, [weights])
    trainer.train()
    bad = [i for i, row in enumerate(rows) if row["skipped"] == "non_finite"]
    assert len(rows) == 5 and len(bad) == 1
    at = bad[0]
    assert rows[at]["loss"] != rows[at]["loss"], "the loss is written as it was: NaN"
    assert all(torch.isfinite(w).all() for w in weights.after)
    if at > 0:
        assert torch.equal(weights.after[at], weights.after[at - 1])
    if at + 1 < len(rows):
        assert rows[at + 1]["learning_rate"] == rows[at]["learning_rate"], "the schedule has waited"
        assert not torch.equal(weights.after[at + 1], weights.after[at])
    steps = {int(s["step"]) for s in trainer.optimizer.state.values() if "step" in s}
    assert steps == {4}, "Adam has counted the four good steps"


def test_observe_takes_the_step_ends_after_three_and_saves_no_broken_model(
    make_config: Callable[..., Any], poisoned: Path
) -> None:
    cfg = make_config(rows=40, model__path=str(poisoned), schedule__max_steps=20, checkpoint__save_strategy="epoch")
    poison_one_row(cfg, "sft")
    outcome = run(cfg)
    rows = read_telemetry(outcome.folder)
    bad = [row["step"] for row in rows if row["loss"] == "NaN"]
    assert outcome.state == "diverged" and len(bad) == 3 and len(rows) == bad[-1] < 20
    run_json = read_json(outcome.folder / "run.json")
    assert run_json is not None
    assert "3 steps in a row" in run_json["reason"] and "is not finite: no model is saved" in run_json["reason"]
    assert not (outcome.folder / "model").exists()


def test_guarded_ends_finite_and_counts_what_it_skipped(make_config: Callable[..., Any], poisoned: Path) -> None:
    cfg = make_config(
        rows=40,
        model__path=str(poisoned),
        schedule__num_train_epochs=2.0,
        stability__guard=Guard(on_nonfinite="skip"),
    )
    poison_one_row(cfg, "sft")
    outcome = run(cfg)
    summary = read_json(outcome.folder / "summary.json")
    assert summary is not None
    assert summary["counts"]["non_finite_steps"] == summary["counts"]["skipped_steps"] == 2
    assert (outcome.folder / "model").exists() and outcome.state == "finished"
    assert "2 skipped" in (outcome.folder / "console.log").read_text()


def test_without_telemetry_a_broken_step_still_has_its_consequences(
    make_config: Callable[..., Any], poisoned: Path
) -> None:
    cfg = make_config(rows=40, model__path=str(poisoned), schedule__num_train_epochs=1.0, stability__telemetry=False)
    cfg.stability.guard.on_nonfinite = "skip"
    poison_one_row(cfg, "sft")
    trainer, rows = trainer_for(cfg)
    trainer.train()
    (bad,) = [row for row in rows if row.get("action")]
    assert bad["skipped"] == "non_finite" and (Path(cfg.output_dir) / bad["incident"] / "incident.json").exists()
