"""Two processes over gloo: one run folder, and the numbers of one process with the same global batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.runfolder import read_json, read_telemetry

ROOT = Path(__file__).resolve().parents[1]


def train(tmp_path: Path, model: Path, processes: int, task: str, accumulation: int) -> tuple[Path, str]:
    folder = tmp_path / f"{task}{processes}"
    data = "dataset=sentiment_zh" if task == "classification" else "dataset=demo_mix"
    launcher = [sys.executable, "-m"]
    if processes > 1:
        launcher += ["torch.distributed.run", f"--nproc_per_node={processes}", "--rdzv-backend=c10d",
                     "--rdzv-endpoint=localhost:0", "-m"]  # fmt: skip
    command = [
        *launcher, "runner", f"task={task}", data, f"model.path={model}", "dataset.max_samples=60", "dataset.preview=0",
        "batch.per_device_train_batch_size=2", f"batch.gradient_accumulation_steps={accumulation}",
        "batch.sampler=stratified", "schedule.max_steps=6", "precision=fp32", "checkpoint.save_strategy=no",
        "optim.learning_rate=1e-3", f"output_dir={folder}",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RUNNER_CACHE": str(tmp_path / "cache")}
    environment |= {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


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
    assert [r["step"] for r in b] == [r["step"] for r in a] == list(range(1, 7))
    for x, y in zip(a, b, strict=True):
        assert y["loss"] == pytest.approx(x["loss"], rel=1e-4)
        assert y["grad_norm"] == pytest.approx(x["grad_norm"], rel=1e-3)
        assert (y["tokens"], y["examples"]) == (x["tokens"], x["examples"])
        assert {k: v[1:] for k, v in y["sources"].items()} == {k: v[1:] for k, v in x["sources"].items()}
    first, second = read_json(one / "summary.json"), read_json(two / "summary.json")
    assert first is not None and second is not None
    assert second["eval"]["eval_loss"] == pytest.approx(first["eval"]["eval_loss"], rel=1e-4)
