"""A recorded step is repeated to the last bit; in another number format it shows whether that was the cause."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from runner.__main__ import main
from runner.config.schema import Config, Guard, Planted
from runner.errors import UserError
from runner.lab.replay import replay
from runner.report.replayed import Replayed
from runner.run import run
from runner.runfolder import number, read_json, write_json
from runner.training.incident import read_incident

ROOT = Path(__file__).resolve().parents[2]
EVERY_STEP = Guard(spike_z=-1e9, spike_min_steps=2)
"""Calls every step from the third on a spike: a healthy run with an incident."""


def incident_of(cfg: Config) -> Path:
    """Run `cfg` and return the last incident it left."""
    outcome = run(cfg)
    found = sorted(outcome.folder.glob("incident-*"), key=lambda p: int(p.name[9:]))
    assert found, "the run left no incident"
    return found[-1]


def same_bits(result: Replayed) -> bool:
    """Loss and gradient norm as recorded, NaN equal to NaN."""
    pairs = [(number(result.recorded[k]), number(result.now[k])) for k in ("loss", "grad_norm")]
    return all(a == b or (a != a and b != b) for a, b in pairs)


@pytest.mark.parametrize(("precision", "accumulation"), [("fp32", 1), ("bf16", 2), ("fp16", 2)])
@pytest.mark.parametrize("method", ["lora", "none"])
@pytest.mark.parametrize("task", ["sft", "classification"])
def test_a_finite_step_is_repeated_to_the_last_bit(
    make_config: Callable[..., Any], task: str, method: str, precision: str, accumulation: int
) -> None:
    changes = {"lora__lora_dropout": 0.1} if method == "lora" else {}
    cfg = make_config(
        task,
        rows=40,
        lora__method=method,
        precision__compute=precision,
        batch__per_device_train_batch_size=4,
        batch__gradient_accumulation_steps=accumulation,
        optim__learning_rate=1e-3,
        schedule__max_steps=4,
        stability__guard=EVERY_STEP,
        **changes,
    )
    if precision == "fp16":
        cfg.precision.loss_scale.initial_power = 8
    if task == "classification":
        cfg.task.class_weights = "balanced"
    path = incident_of(cfg)
    before = sorted((p, p.stat().st_mtime_ns) for p in path.parent.rglob("*"))
    result = replay(read_incident(path))
    assert torch.isfinite(torch.tensor([result.now["loss"], result.now["grad_norm"]])).all()
    assert same_bits(result) and result.kind == "exact", result.sentence
    assert result.now["loss_scale"] == result.recorded["loss_scale"]
    assert sorted((p, p.stat().st_mtime_ns) for p in path.parent.rglob("*")) == before, "nothing is written"


WORD = "zebra"
"""A word of one row only."""


def add_word(cfg: Config, task: str) -> None:
    """Put the word into one training row."""
    path = Path(cfg.dataset.sources["short" if task == "sft" else "texts"].path)
    if task == "sft":
        rows = json.loads(path.read_text())
        rows[4]["instruction"] += f" {WORD}"
        path.write_text(json.dumps(rows))
    else:
        lines = path.read_text().splitlines()
        row = json.loads(lines[4])
        lines[4] = json.dumps({**row, "text": f"{row['text']} {WORD}"})
        path.write_text("\n".join(lines) + "\n")


def first_place(facts: dict[str, Any]) -> Any:
    """The modules and the parameter that an incident or a replay names."""
    ways = [(facts[way] or {}).get("module") for way in ("forward", "backward")]
    return ways, (facts["parameter"] or {}).get("name"), (facts["parameter"] or {}).get("first_index")


@pytest.mark.parametrize(
    ("task", "method"),
    [
        ("sft", "lora"),
        ("classification", "none"),
        pytest.param("sft", "none", marks=pytest.mark.slow),
        pytest.param("classification", "lora", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "fault", ["nan_loss", "nan_gradient", "nan_weight", "nan_embedding_row", "fp16_forward_overflow",
              "fp16_backward_overflow"]
)  # fmt: skip
def test_a_planted_fault_is_planted_again(make_config: Callable[..., Any], fault: str, task: str, method: str) -> None:
    half = fault.startswith("fp16")
    cfg = make_config(
        task,
        rows=40,
        lora__method=method,
        precision__compute="fp16" if half else "fp32",
        batch__per_device_train_batch_size=4,
        batch__gradient_accumulation_steps=2,
        schedule__max_steps=4,
        optim__learning_rate=1e-3,
        planted=Planted(fault=fault, step=3),
    )
    if fault == "fp16_backward_overflow":
        cfg.stability.guard.min_loss_scale = 2.0**20
    if fault == "nan_embedding_row":
        add_word(cfg, task)
    path = incident_of(cfg)
    incident = read_incident(path)
    result = replay(incident)
    assert same_bits(result) and result.kind == "exact", result.sentence
    assert first_place(result.now) == first_place(incident.facts)
    if half:
        result = replay(incident, ["precision=fp32"])
        assert result.kind == "finite" and "the number format is the cause" in result.sentence, result.sentence
        assert "precision=bf16" in result.next


def test_what_no_incident_holds_is_said(make_config: Callable[..., Any]) -> None:
    """NaN in the optimizer's state: loss and gradient of the step are finite, and repeated to the last bit."""
    cfg = make_config(
        rows=40,
        schedule__max_steps=4,
        optim__learning_rate=1e-3,
        planted=Planted(fault="nan_optimizer_state", step=3),
    )
    found = sorted(run(cfg).folder.glob("incident-*"), key=lambda p: int(p.name[9:]))
    result = replay(read_incident(found[0]))
    assert result.kind == "exact" and same_bits(result), result.sentence
    assert "what was not is the update, from the optimizer's state" in result.sentence


def test_what_surrounds_the_loop_is_there_too(make_config: Callable[..., Any]) -> None:
    """Activation checkpointing, NEFTune's noise, deterministic kernels, a continued adapter that has learnt."""
    first = make_config(rows=40, out="first", schedule__max_steps=2, optim__learning_rate=1e-2)
    adapter = run(first).folder / "model"
    cfg = make_config(
        rows=40,
        lora__adapter=str(adapter),
        model__gradient_checkpointing=True,
        stability__deterministic=True,
        stability__guard=EVERY_STEP,
        schedule__max_steps=4,
        precision__compute="bf16",
        trainer={"neftune_noise_alpha": 5.0},
    )
    try:
        path = incident_of(cfg)
        result = replay(read_incident(path))
    finally:
        torch.use_deterministic_algorithms(False)
    assert same_bits(result) and result.kind == "exact", result.sentence
    assert "precision=fp32" in result.next
    moved = adapter.parent / "moved"
    adapter.rename(moved)
    with pytest.raises(UserError, match=r"lora\.adapter=FOLDER"):
        replay(read_incident(path))
    shutil.rmtree(moved)


def poisoned(model: Path, path: Path) -> Path:
    """A copy of `model` in which the embedding of the word's last token is NaN, and the head is not tied to it."""
    from transformers import AutoTokenizer

    shutil.copytree(model, path)
    weights = load_file(path / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    weights["model.embed_tokens.weight"][AutoTokenizer.from_pretrained(path)(f" {WORD}")["input_ids"][-1]] = torch.nan
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    return path


@pytest.fixture
def broken_base(make_config: Callable[..., Any], micro_model: Path, tmp_path: Path) -> tuple[Path, Path]:
    """(incident of a LoRA run, its start model): one embedding of the frozen start model is NaN."""
    base = poisoned(micro_model, tmp_path / "base")
    cfg = make_config(rows=40, model__path=str(base), schedule__num_train_epochs=1.0, precision__compute="fp16")
    add_word(cfg, "sft")
    return incident_of(cfg), base


def test_a_start_model_that_moved_and_one_that_changed(
    broken_base: tuple[Path, Path], micro_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, base = broken_base
    base.rename(tmp_path / "elsewhere")
    assert main(["replay", str(path)]) == 2
    said = capsys.readouterr().err
    assert "there is no such folder" in said and "model.path=FOLDER" in said and "Traceback" not in said
    assert main(["replay", str(path), f"model.path={tmp_path / 'elsewhere'}"]) == 0
    said = capsys.readouterr().out
    assert "Reproduced exactly: loss NaN and gradient norm NaN as before, first in the forward pass of" in said
    assert "model.embed_tokens" in said and "recorded, and now" in said and "Note" not in said
    assert said.splitlines()[-1].startswith("Next: python -m runner replay") and "precision=fp32" in said
    assert main(["replay", str(path), f"model.path={tmp_path / 'elsewhere'}", "precision=fp32"]) == 0
    assert "the number format is not the cause" in capsys.readouterr().out
    sound = tmp_path / "sound"
    shutil.copytree(tmp_path / "elsewhere", sound)
    weights = load_file(sound / "model.safetensors")
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"].nan_to_num(0.0)
    save_file(weights, sound / "model.safetensors", metadata={"format": "pt"})
    result = replay(read_incident(path), [f"model.path={sound}"])
    assert result.kind == "finite" and "model.path is the cause" in result.sentence
    assert any("holds other weights than the run" in note for note in result.notes)
    sound.rename(base)
    with pytest.raises(UserError, match="has changed since the run"):
        replay(read_incident(path))
    facts = read_json(path / "incident.json")
    assert facts is not None and len(facts["base"]["sha256"]) == 64
    write_json(path / "incident.json", {**facts, "base": None})
    assert any("cannot be checked" in note for note in replay(read_incident(path)).notes)


def test_mistakes_are_one_sentence_and_status_2(
    broken_base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = broken_base

    def error(*line: str) -> str:
        assert main(["replay", *line]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ") and "Traceback" not in said
        return said

    assert "python -m runner replay RUN/incident-12" in error()
    assert "2 were given" in error(str(path), str(path))
    assert "no such folder" in error(str(tmp_path / "nowhere"))
    listed = error(str(path.parent))
    assert f"  {path}   step {path.name[9:]}: the loss is NaN" in listed
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "is not an incident" in error(str(empty))
    (empty / "run.json").write_text("{}")
    assert "it left no incident" in error(str(empty))
    assert "precision.compute" in error(str(path), "precsion=fp32") and "did you mean precision?" in error(
        str(path), "precsion=fp32"
    )
    assert "keeps the recorded settings" in error(str(path), "optim.learning_rate=1")
    assert "precision.compute=fp8" in error(str(path), "precision=fp8")
    assert "--json" in error(str(path), "--jsn")
    (path / "incident.json").unlink()
    assert "cut short" in error(str(path))
    assert "cut short" in error(str(path.parent))


def test_weights_that_do_not_fit(broken_base: tuple[Path, Path]) -> None:
    path, _ = broken_base
    weights = load_file(path / "weights.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: weights[name][:1].clone()}, path / "weights.safetensors")
    with pytest.raises(UserError, match="has shape"):
        replay(read_incident(path))
    del weights[name]
    save_file(weights, path / "weights.safetensors")
    with pytest.raises(UserError, match="only on one side"):
        replay(read_incident(path))


def test_the_verb_as_a_module(broken_base: tuple[Path, Path], tmp_path: Path) -> None:
    path, _ = broken_base

    def said(*line: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "runner", "replay", *line]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    done = said(str(path.relative_to(tmp_path)), "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["verdict"] == "exact" and facts["now"]["loss"] == "NaN"
    assert facts["now"]["forward"] == {**facts["recorded"]["forward"]}
    assert facts["now"]["parameter"]["name"].endswith("embed_tokens.weight")
    telemetry = read_json(path / "incident.json")
    assert telemetry is not None and facts["step"] == telemetry["step"]


def test_the_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from runner.__main__ import main\n"
        "for line in (['replay', '--help'], ['replay'], ['replay', 'nowhere']): main(line)\n"
        "bad = {'torch', 'transformers', 'numpy', 'datasets'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "precision.compute" in done.stdout


@pytest.mark.distributed
@pytest.mark.parametrize(("task", "precision"), [("sft", "fp32"), ("sft", "fp16"), ("classification", "fp32")])
def test_two_processes_are_repeated_in_one(tmp_path: Path, micro_model: Path, task: str, precision: str) -> None:
    folder = tmp_path / "run"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0", "-m", "runner", f"task={task}", f"model.path={micro_model}",
        "dataset=sentiment_zh" if task == "classification" else "dataset=demo_mix", "dataset.max_samples=60",
        "dataset.preview=0", "batch.per_device_train_batch_size=2", "batch.gradient_accumulation_steps=2",
        "schedule.max_steps=6", f"precision={precision}", "checkpoint.save_strategy=no", "optim.learning_rate=1e-3",
        "stability.guard.spike_z=0.001", "stability.guard.spike_min_steps=2", f"output_dir={folder}",
        *(["precision.loss_scale.initial_power=8"] if precision == "fp16" else []),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    path = next(iter(folder.glob("incident-*")))
    result = replay(read_incident(path))
    assert result.kind in ("exact", "close"), result.sentence
    for key in ("loss", "grad_norm"):
        assert result.now[key] == pytest.approx(result.recorded[key], rel=1e-5)
    assert result.now["loss_scale"] == result.recorded["loss_scale"]
    assert any("last digits" in note for note in result.notes)
