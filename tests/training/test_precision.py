"""fp16 that is real on a CPU, bf16, and which dtype each weight has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from runner.config.schema import LossScale
from tests.training.kit import trainer_for


def dtypes(trainer: Any) -> tuple[set[torch.dtype], set[torch.dtype]]:
    """(dtypes of trainable weights, dtypes of frozen ones)."""
    parameters = list(trainer.model.parameters())
    return {p.dtype for p in parameters if p.requires_grad}, {p.dtype for p in parameters if not p.requires_grad}


def activation_dtype(trainer: Any) -> torch.dtype:
    """Dtype that comes out of a linear layer during a training step."""
    seen: list[torch.dtype] = []
    linear = next(
        m for n, m in trainer.model.named_modules() if n.endswith("up_proj") and isinstance(m, torch.nn.Module)
    )
    handle = linear.register_forward_hook(lambda module, args, out: seen.append(out.dtype))
    trainer.train()
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("task", ["sft", "classification"])
@pytest.mark.parametrize(
    ("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_compute_and_weights(make_config: Callable[..., Any], task: str, name: str, dtype: torch.dtype) -> None:
    cfg = make_config(task, precision__compute=name, schedule__max_steps=2)
    trainer, rows = trainer_for(cfg)
    assert dtypes(trainer) == ({torch.float32}, {dtype})
    assert activation_dtype(trainer) == dtype
    assert all(row["loss"] == row["loss"] for row in rows)
    assert (rows[0]["loss_scale"] is not None) == (name == "fp16")


def test_full_fine_tuning_keeps_fp32_weights_under_fp16(make_config: Callable[..., Any]) -> None:
    trainer, _ = trainer_for(make_config("sft", precision__compute="fp16", lora__method="none"))
    assert dtypes(trainer) == ({torch.float32}, set())


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_an_overflow_skips_the_step_backs_off_and_freezes_the_schedule(
    make_config: Callable[..., Any], task: str
) -> None:
    cfg = make_config(
        task,
        precision__compute="fp16",
        precision__loss_scale=LossScale(initial_power=40),
        schedule__max_steps=4,
        schedule__warmup_ratio=None,
        schedule__warmup_steps=2,
        lora__method="none",
    )
    trainer, rows = trainer_for(cfg)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    skipped = [row for row in rows if row["skipped"]]
    assert skipped and skipped[0]["step"] == 1
    assert rows[1]["loss_scale"] < 2.0**40
    assert all(row["loss"] == row["loss"] for row in rows), "the loss itself is finite; only the scaled gradient is not"
    first_good = next((i for i, row in enumerate(rows) if not row["skipped"]), len(rows))
    assert all(row["learning_rate"] == rows[0]["learning_rate"] for row in rows[: first_good + 1])
    if first_good == len(rows):
        assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
