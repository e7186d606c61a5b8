"""Two processes over gloo: one run folder, and the numbers of one process with the same global batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.runfolder import number, read_json, read_rows, read_telemetry

ROOT = Path(__file__).resolve().parents[1]


def train(tmp_path: Path, model: Path, processes: int, task: str, accumulation: int, *more: str) -> tuple[Path, str]:
    folder = tmp_path / f"{task}{processes}"
    data = "dataset=sentiment_zh" if task == "classification" else "dataset=demo_mix"
    launcher = [sys.executable, "-m"]
    if processes > 1:
        launcher += ["torch.distributed.run", f"--nproc_per_node={processes}", "--rdzv-backend=c10d",
                     "--rdzv-endpoint=localhost:0", "-m"]  # fmt: skip
    command = [
        *launcher, "runner", f"task={task}", data, f"model.path={model}", "dataset.max_samples=60", "dataset.preview=0",
        "batch.per_device_train_batch_size=2", f"batch.gradient_accumulation_steps={accumulation}",
        "batch.sampler=stratified", "schedule.max_steps=8", "precision=fp32", "checkpoint.save_strategy=no",
        "optim.learning_rate=1e-3", f"output_dir={folder}", *more,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RUNNER_CACHE": str(tmp_path / "cache")}
    environment |= {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


EXACT = ("step", "tokens", "examples", "length_mean", "skipped", "action", "learning_rate", "loss_scale")
CLOSE = ("loss", "grad_norm", "clip_coef", "update_rms", "weight_rms", "rms_t", "base_loss")


def same_facts(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Two rows about the same global batch, taken on one and on several processes."""
    assert {k: two.get(k) for k in EXACT} == {k: one.get(k) for k in EXACT}
    for key in CLOSE:
        a, b = number(one.get(key)), number(two.get(key))
        assert b == (a if a is None else pytest.approx(a, rel=1e-3, nan_ok=True)), (key, one["step"])
    assert set(two["sources"]) == set(one["sources"])
    for name, (loss, *counts) in one["sources"].items():
        assert two["sources"][name][1:] == counts
        assert number(two["sources"][name][0]) == pytest.approx(number(loss), rel=1e-4, nan_ok=True)
    rows = [
        dict(zip(r["row_ids"], zip(r["row_losses"], r["row_tokens"], strict=True), strict=True)) for r in (one, two)
    ]
    assert set(rows[0]) == set(rows[1])
    for row, (loss, tokens) in rows[0].items():
        assert rows[1][row][1] == tokens
        assert number(rows[1][row][0]) == pytest.approx(number(loss), rel=1e-3, nan_ok=True)
    assert set(two.get("module_grad_norms", {})) == set(one.get("module_grad_norms", {}))


@pytest.mark.distributed
@pytest.mark.parametrize("task", ["sft", "classification"])
def test_two_processes_train_like_one(tmp_path: Path, micro_model: Path, task: str) -> None:
    # Dropout would draw differently on two processes.
    config = micro_model / "config.json"
    text = config.read_text()
    try:
        config.write_text(text.replace('"attention_dropout": 0.1', '"attention_dropout": 0.0'))
        one, _ = train(tmp_path, micro_model, 1, task, 4)
        two, said = train(tmp_path, micro_model, 2, task, 2)
    finally:
        config.write_text(text)
    assert "global batch = 2 x 2 x 2 = 8" in said
    assert said.count("global batch") == 1, "only the first process speaks"
    a, b = read_telemetry(one), read_telemetry(two)
    assert [r["step"] for r in b] == [r["step"] for r in a] == list(range(1, 9))
    for x, y in zip(a, b, strict=True):
        same_facts(x, y)
    first, second = read_json(one / "summary.json"), read_json(two / "summary.json")
    assert first is not None and second is not None
    assert second["eval"]["eval_loss"] == pytest.approx(first["eval"]["eval_loss"], rel=1e-4)


@pytest.mark.distributed
@pytest.mark.parametrize("task", ["sft", "classification"])
def test_a_broken_step_is_decided_alike_and_put_down_to_its_rank(tmp_path: Path, micro_model: Path, task: str) -> None:
    """The same NaN under one process and two: telemetry, decision, incident; the rank that had the row is named."""
    config = micro_model / "config.json"
    text = config.read_text()
    more = ["stability=guarded", "+fault=nan_embedding_row", "stability.base_loss=all",
            "stability.probes.line=3", "stability.probes.replay=3", "stability.probes.probe_set=4",
            "stability.probes.probe_set_size=6"]  # fmt: skip
    try:
        config.write_text(text.replace('"attention_dropout": 0.1', '"attention_dropout": 0.0'))
        one, _ = train(tmp_path, micro_model, 1, task, 4, *more)
        two, _ = train(tmp_path, micro_model, 2, task, 2, *more)
    finally:
        config.write_text(text)
    a, b = read_telemetry(one), read_telemetry(two)
    assert len(a) == len(b) == 8 and any(r.get("action") == "skip" for r in a)
    for x, y in zip(a, b, strict=True):
        same_facts(x, y)
    broken = next(r for r in b if r.get("action"))
    assert len(broken["nonfinite_ranks"]) == 1
    facts = [read_json(folder / broken["incident"] / "incident.json") for folder in (one, two)]
    assert facts[0] is not None and facts[1] is not None
    assert facts[1]["rank"] == broken["nonfinite_ranks"][0]
    assert facts[1]["forward"]["rows"] == facts[0]["forward"]["rows"]
    assert facts[1]["parameter"]["name"] == facts[0]["parameter"]["name"]
    assert (two / broken["incident"] / "batches_rank1.pt").exists()
    for x, y in zip(read_rows(one / "probes.jsonl"), read_rows(two / "probes.jsonl"), strict=True):
        assert (x["step"], x["probe"]) == (y["step"], y["probe"])
        for key in ("l0", "l_half", "l1", "before", "after"):
            a, b = number(x.get(key)), number(y.get(key))
            assert b == (a if a is None else pytest.approx(a, rel=1e-4, nan_ok=True))
