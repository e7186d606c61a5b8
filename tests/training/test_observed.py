"""observe changes no number, and what it writes is true."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from runner.config.schema import Lora, Probes, Stability
from tests.training.kit import Gradients, trainer_for
from tests.training.test_guarded import Weights

EVERY_STEP = Probes(line=1, replay=1, lost_updates=1, probe_set=2, probe_set_size=6)


def both(make_config: Callable[..., Any], task: str, **changes: Any) -> list[tuple[Any, list[dict[str, Any]], Weights]]:
    """The same run bare (`stability=off`) and with every measurement at every step."""
    bare = Stability(telemetry=False, base_loss="off", probes=Probes(None, None, None, None))
    bare.guard.on_nonfinite = bare.guard.on_spike = "ignore"
    full = Stability(weight_statistics_every=1, probes=EVERY_STEP)
    runs = []
    for stability in (bare, full):
        weights = Weights()
        settings = {"schedule__num_train_epochs": 1.0, "optim__learning_rate": 1e-3, **changes}
        trainer, rows = trainer_for(make_config(task, rows=26, stability=stability, **settings), [weights])
        if stability is full:
            trainer.instruments.before_training = lambda t: t.row_losses(t.train_dataset.select([3, 1, 2]))
        trainer.train()
        runs.append((trainer, rows, weights))
    return runs


@pytest.mark.parametrize("task", ["sft", "classification"])
@pytest.mark.parametrize("lora", ["lora", "none"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_observe_and_off_give_the_same_weights_bit_for_bit(
    make_config: Callable[..., Any], task: str, lora: str, precision: str
) -> None:
    (bare, few, a), (_, many, b) = both(make_config, task, lora=Lora(method=lora), precision__compute=precision)
    assert len(a.after) == len(b.after) == 4
    assert all(torch.equal(x, y) for x, y in zip(a.after, b.after, strict=True))
    assert [r["loss"] for r in few] == [r["loss"] for r in many]
    assert [r["grad_norm"] for r in few] == [r["grad_norm"] for r in many]
    assert bare.model.training


def test_observe_and_off_are_equal_under_fp16_too(make_config: Callable[..., Any]) -> None:
    (_, _, a), (_, _, b) = both(make_config, "sft", precision__compute="fp16")
    assert all(torch.equal(x, y) for x, y in zip(a.after, b.after, strict=True))


class Moves(TrainerCallback):
    """RMS of what each optimizer step did to the weights, and of the weights before it."""

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []
        self.before: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.before = [p.detach().double().clone() for p in model.parameters() if p.requires_grad]

    def on_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        after = [p.detach().double() for p in model.parameters() if p.requires_grad]
        count = sum(p.numel() for p in after)
        moved = sum(((x - y) ** 2).sum().item() for x, y in zip(after, self.before, strict=True))
        size = sum((x**2).sum().item() for x in self.before)
        self.found.append((math.sqrt(moved / count), math.sqrt(size / count)))


@pytest.mark.parametrize("name", ["adamw_torch_fused", "adamw_torch", "sgd"])
def test_update_and_weight_rms_are_what_the_optimizer_did(make_config: Callable[..., Any], name: str) -> None:
    moves = Moves()
    cfg = make_config(
        rows=26, optim__name=name, optim__weight_decay=0.1, optim__learning_rate=1e-2, schedule__num_train_epochs=2.0
    )
    trainer, rows = trainer_for(cfg, [moves])
    trainer.train()
    for row, (update, weight) in zip(rows, moves.found, strict=True):
        assert row["update_rms"] == pytest.approx(update, rel=1e-3, abs=1e-12)
        assert row["weight_rms"] == pytest.approx(weight, rel=1e-4)
    assert any(row["update_rms"] > 0 for row in rows)


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_a_row_adds_up(make_config: Callable[..., Any], task: str) -> None:
    gradients = Gradients()
    every = {"stability__weight_statistics_every": 2, "stability__module_norms_every": 2}
    cfg = make_config(task, rows=26, lora=Lora(method="none"), clip__max_grad_norm=1e9, **every)
    trainer, rows = trainer_for(cfg, [gradients])
    trainer.train()
    assert len(rows) > 4
    for row, gradient in zip(rows, gradients.steps, strict=True):
        sums = sum(x * n for x, n in zip(row["row_losses"], row["row_tokens"], strict=True))
        assert sums == pytest.approx(sum(s for s, _, _ in row["sources"].values()), rel=1e-6)
        assert sums / row["tokens"] == pytest.approx(row["loss"], rel=1e-4)
        assert sum(row["row_tokens"]) == row["tokens"] and len(row["row_ids"]) == row["examples"]
        assert row["grad_norm"] == pytest.approx(gradient.norm().item(), rel=1e-4)
        assert row["seconds"] > 0 and row["peak_memory"] > 2**20 and row["tokens_per_second"] > 0
        due = row["step"] % 2 == 0
        assert ("module_grad_norms" in row) == ("rms_t" in row) == due
        if due:
            squares = sum(n**2 for n in row["module_grad_norms"].values())
            assert math.sqrt(squares) == pytest.approx(row["grad_norm"], rel=1e-4)
            assert "model.layers.0.mlp.up_proj" in row["module_grad_norms"]


def test_the_noise_scale_rests_on_the_first_micro_batch(make_config: Callable[..., Any]) -> None:
    """Its |g_b|^2 is that of the mean gradient of the first micro-batch alone."""
    cfg = make_config(rows=24, lora=Lora(method="none"), stability__weight_statistics_every=1, schedule__max_steps=1)
    trainer, rows = trainer_for(cfg)
    found: list[float] = []

    class First(TrainerCallback):
        def on_substep_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            step = trainer.step_now
            share = step.num_items / step.micros[0].tokens.sum()
            gradients = [p.grad.double() for p in model.parameters() if p.grad is not None]
            found.append(sum((g * share).square().sum().item() for g in gradients))

    trainer.add_callback(First())
    trainer.train()
    (row,) = rows
    first, whole, b, count = found[0], row["grad_norm"] ** 2, 4, 2
    assert row["noise_scale"]["s"] == pytest.approx((first - whole) / (1 / b - 1 / (count * b)), rel=1e-3)
    assert row["noise_scale"]["g2"] == pytest.approx((count * b * whole - b * first) / (count * b - b), rel=1e-3)


def test_probes_come_when_due_and_say_what_they_should(make_config: Callable[..., Any]) -> None:
    lines: list[dict[str, Any]] = []
    cfg = make_config(rows=26, schedule__num_train_epochs=2.0, stability__probes=Probes(2, 2, 4, 3, 5))
    trainer, rows = trainer_for(cfg)
    assert trainer.probes is not None
    trainer.probes.on_probe = lines.append
    trainer.train()
    steps = {
        kind: [x["step"] for x in lines if x["probe"] == kind]
        for kind in ("line", "replay", "lost_updates", "probe_set")
    }
    assert len(rows) == 8
    assert steps == {"line": [2, 4, 6, 8], "replay": [2, 4, 6, 8], "lost_updates": [4, 8], "probe_set": [0, 3, 6, 8]}
    by_step = {row["step"]: row for row in rows}
    for line in lines:
        if line["probe"] == "replay":
            assert line["before"] == pytest.approx(by_step[line["step"]]["loss"], rel=0.02), "apart from dropout"
            assert line["after"] < line["before"]


def waits(
    monkeypatch: pytest.MonkeyPatch, make_config: Callable[..., Any], out: str, accumulation: int, **changes: Any
) -> int:
    """How often the host asks for a tensor's value in one step of `accumulation` micro-batches."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        asked = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.asked += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    cfg = make_config(
        rows=32, out=out, batch__gradient_accumulation_steps=accumulation, batch__per_device_train_batch_size=2,
        schedule__max_steps=1, stability__probes=Probes(None, None, None, None), **changes,
    )  # fmt: skip
    trainer, _ = trainer_for(cfg)
    count = Count()
    lists = 0
    whole = torch.Tensor.tolist

    def tolist(self: torch.Tensor) -> Any:
        nonlocal lists
        lists += 1
        return whole(self)

    class Between(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            monkeypatch.setattr(torch.Tensor, "tolist", tolist)
            count.__enter__()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            count.__exit__(None, None, None)
            monkeypatch.setattr(torch.Tensor, "tolist", whole)

    trainer.add_callback(Between())
    trainer.train()
    return count.asked + lists


def test_the_statistics_wait_for_the_device_once_per_step_and_never_per_micro_batch(
    make_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Stability(telemetry=False, base_loss="off")
    bare.guard.on_nonfinite = bare.guard.on_spike = "ignore"
    extra = [
        waits(monkeypatch, make_config, f"a{n}", n) - waits(monkeypatch, make_config, f"b{n}", n, stability=bare)
        for n in (1, 4)
    ]
    # Bare runs read the loss for the console once as well, so observing adds nothing at all.
    assert extra == [0, 0]


def test_a_bare_run_counts_its_steps_from_one(make_config: Callable[..., Any]) -> None:
    bare = Stability(telemetry=False, base_loss="off")
    bare.guard.on_nonfinite = bare.guard.on_spike = "ignore"
    trainer, rows = trainer_for(make_config(rows=26, stability=bare, schedule__max_steps=3))
    trainer.train()
    assert [row["step"] for row in rows] == [1, 2, 3]
