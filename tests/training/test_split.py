"""Loss and gradients do not depend on how a global batch is split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.training.kit import Gradients, trainer_for

SPLITS = ((8, 1), (4, 2), (1, 8))
ROWS = 21  # two full windows of 8 and a ragged one of 5


@pytest.mark.parametrize("method", ["lora", "none"])
@pytest.mark.parametrize(("task", "weights"), [("sft", None), ("classification", None), ("classification", "balanced")])
def test_split_changes_neither_loss_nor_gradient(
    make_config: Callable[..., Any], task: str, method: str, weights: str | None
) -> None:
    results = []
    for per_device, accumulation in SPLITS:
        cfg = make_config(
            task,
            rows=ROWS,
            lora__method=method,
            batch__per_device_train_batch_size=per_device,
            batch__gradient_accumulation_steps=accumulation,
            schedule__num_train_epochs=1.0,
            optim__learning_rate=1e-12,
            clip__method="none",
            task__class_weights=weights,
            trainer={},
        )
        gradients = Gradients()
        trainer, rows = trainer_for(cfg, [gradients])
        # Dropout draws differ between splits; everything else must not.
        for module in trainer.model.modules():
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0
        trainer.train()
        results.append((rows, gradients.steps))
    (first_rows, first_gradients), *others = results
    assert [row["examples"] for row in first_rows] == [8, 8, 5]
    for rows, gradients in others:
        for a, b in zip(first_rows, rows, strict=True):
            assert b["loss"] == pytest.approx(a["loss"], rel=1e-5)
            assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=1e-5)
            assert b["tokens"] == a["tokens"]
            assert b["sources"].keys() == a["sources"].keys()
        for g, h in zip(first_gradients, gradients, strict=True):
            assert torch.linalg.vector_norm(g - h) <= 1e-5 * torch.linalg.vector_norm(g)


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_the_row_is_the_mean_over_the_global_batch(make_config: Callable[..., Any], task: str) -> None:
    cfg = make_config(task, rows=ROWS, schedule__num_train_epochs=1.0)
    trainer, rows = trainer_for(cfg)
    trainer.train()
    for row in rows:
        sums = row["sources"].values()
        by_hand = sum(s[0] for s in sums) / sum(s[1] for s in sums)
        assert row["loss"] == pytest.approx(by_hand, rel=1e-5)
        assert row["tokens"] == sum(s[1] for s in sums)
        assert row["examples"] == sum(s[2] for s in sums)
        assert len(row["micro_losses"]) in (1, 2)
