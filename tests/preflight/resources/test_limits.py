"""Memory, disk and time before a run: what fits, what does not, and which overrides mend it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runner.config.compose import load
from runner.config.schema import Batch, Schedule
from runner.preflight.finding import Result
from runner.preflight.resources.checkpoints import Writes, kept, limit_that_fits, saves
from runner.preflight.resources.limits import (
    clock,
    disk,
    evaluations,
    memory,
    padded_tokens,
    planned_writes,
    sentence,
    size,
    time,
)
from runner.preflight.resources.memory import Batch as Shape
from runner.preflight.resources.memory import Parts
from runner.preflight.resources.needs import Need, Needs, Setting, cheaper, overrides

Make = Callable[..., Any]


def ids(result: Result) -> list[tuple[str, str]]:
    return [(f.id, f.severity) for f in result.findings]


@pytest.mark.parametrize(("task", "method"), [("sft", "lora"), ("classification", "none")])
def test_a_run_that_fits(context: Make, task: str, method: str) -> None:
    c = context("batch", task=task, lora__method=method)
    model = c.trainer.model
    state, pointers = torch.get_rng_state(), [p.data_ptr() for p in model.parameters()]
    result = memory(c, free=2 * 10**9)
    assert not result.findings and not result.skipped
    assert result.summary.startswith("needs about ") and " of 2.0 GB free" in result.summary
    assert torch.equal(state, torch.get_rng_state()) and pointers == [p.data_ptr() for p in model.parameters()]
    assert all(p.grad is None for p in model.parameters()) and c.trainer._outputs is None
    assert not memory(c).findings  # this machine


def test_too_much_is_an_error_and_its_overrides_mend_it(context: Make) -> None:
    changes = {"batch": Batch(per_device_train_batch_size=12, gradient_accumulation_steps=1)}
    c = context("batch", **changes)
    needs = Needs(c)
    need = needs.of(needs.setting)
    batch = dataclasses.replace(needs.setting, per_device=4, accumulation=3)
    limit = needs.of(batch).total / 0.9
    assert limit < need.total
    result = memory(c, free=int(limit) + 1)
    assert ids(result) == [("resources.memory", "error")]
    found = result.findings[0]
    assert found.overrides == ("batch.per_device_train_batch_size=4", "batch.gradient_accumulation_steps=3")
    assert found.where[0] == "batch.per_device_train_batch_size"
    assert found.numbers["with_overrides"] <= 0.9 * found.numbers["free"] < found.numbers["needed"] == need.total
    assert found.numbers["weights"] == sum(p.nbytes for p in c.trainer.model.parameters()) + sum(
        b.nbytes for b in c.trainer.model.buffers()
    )
    loaded = load(list(found.overrides)).config.batch
    assert (loaded.per_device_train_batch_size, loaded.gradient_accumulation_steps) == (4, 3)
    # Enough room again: nothing is found.
    assert not memory(c, free=int(need.total / 0.89)).findings
    assert ids(memory(c, free=int(need.total / 0.95))) == [("resources.memory", "warning")]


class Line:
    """A run of which a setting needs: 10, 1 a token (a tenth with checkpointing), and 2 an evaluated row."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.lengths = [1000, 3]

    def of(self, setting: Setting) -> Need:
        tokens = setting.per_device * min(setting.max_length, 1000) / (10 if setting.checkpointing else 1)
        evaluated = 2 * setting.eval_rows
        moment = "evaluation" if evaluated > tokens else "training"
        return Need(moment, Parts(weights=10, activations=int(max(tokens, evaluated))), None)


START = Setting(per_device=4, accumulation=2, checkpointing=False, max_length=2048, eval_rows=8)


@pytest.mark.parametrize(
    ("limit", "change"),
    [
        (4010, {}),
        (4009, {"per_device": 2, "accumulation": 4}),
        (1010, {"per_device": 1, "accumulation": 8}),
        (1009, {"checkpointing": True}),
        (399, {"checkpointing": True, "per_device": 2, "accumulation": 4}),
        (110, {"checkpointing": True, "per_device": 1, "accumulation": 8}),
        (62, {"checkpointing": True, "per_device": 1, "accumulation": 8, "max_length": 512}),
        (23, {"checkpointing": True, "per_device": 1, "accumulation": 8, "max_length": 128, "eval_rows": 4}),
        (21, None),
    ],
)
def test_the_nearest_setting_that_fits(limit: int, change: dict[str, Any] | None) -> None:
    found = cheaper(Line(START), limit)  # type: ignore[arg-type]
    if change is None:
        assert found is None
        return
    assert found is not None and found[0] == dataclasses.replace(START, **change)
    assert found[1].total <= limit


def test_no_setting_fits(context: Make) -> None:
    found = memory(context("batch", task="classification"), free=10**6).findings[0]
    assert found.overrides == () and found.severity == "error" and found.numbers["with_overrides"] is None


def test_overrides_of_every_kind_compose() -> None:
    before = Setting(8, 1, False, 2048, 16)
    after = Setting(2, 4, True, 512, 4)
    given = overrides(before, after, by_global=False)
    cfg = load(list(given)).config
    assert (cfg.batch.per_device_train_batch_size, cfg.batch.gradient_accumulation_steps) == (2, 4)
    assert cfg.model.gradient_checkpointing and cfg.dataset.max_length == 512
    assert cfg.evaluation.per_device_eval_batch_size == 4
    by_global = overrides(before, after, by_global=True)
    assert load(["batch.global_batch_size=8", *by_global]).config.batch.global_batch_size == 8
    assert not any("accumulation" in line for line in by_global)
    assert overrides(before, before, by_global=False) == ()


def test_evaluation_can_be_the_largest_moment(context: Make) -> None:
    c = context("batch", rows=60, batch=Batch(per_device_train_batch_size=1, gradient_accumulation_steps=1),
                evaluation__per_device_eval_batch_size=40)  # fmt: skip
    needs = Needs(c)
    need = needs.of(needs.setting)
    assert need.moment == "evaluation"
    found = memory(c, free=int(0.99 * need.total)).findings[0]
    assert found.where[0] == "evaluation.per_device_eval_batch_size" and found.severity == "error"
    assert found.overrides == ("evaluation.per_device_eval_batch_size=20",)


def test_a_model_that_cannot_be_traced_is_said_so(context: Make) -> None:
    c = context("batch", task="classification", lora__method="none")
    handle = c.trainer.model.model.layers[0].register_forward_hook(lambda m, a, out: out[0].sum().item() and None)
    try:
        result = memory(c, free=10**9)
    finally:
        handle.remove()
    assert "activations not known" in result.summary and not result.findings


# Disk.


def test_saves_and_limits() -> None:
    assert saves("no", 10, 5, 1) == 0
    assert (saves("epoch", 11, 5, 500), saves("steps", 11, 5, 4), saves("steps", 3, 5, 500)) == (3, 3, 1)
    assert (kept(7, None), kept(7, 3), kept(2, 3)) == (7, 3, 2)
    writes = Writes(checkpoint=100, kept=3, final=30, beside=5)
    assert (writes.peak, writes.least) == (435, 105)
    assert limit_that_fits(writes, 434) == 2
    assert limit_that_fits(writes, 235) == 1
    assert limit_that_fits(writes, 234) is None
    none = Writes(checkpoint=100, kept=0, final=30)
    assert (none.peak, none.least) == (30, 30)


@pytest.mark.parametrize(("method", "guard"), [("lora", "observe"), ("none", "observe"), ("none", "guarded")])
def test_a_checkpoint_has_the_size_that_was_foretold(context: Make, method: str, guard: str) -> None:
    from runner.config.schema import Stability

    changes: dict[str, Any] = {}
    if guard == "guarded":
        # A snapshot at each step: the first one has no optimizer state yet.
        changes["stability"] = load(["stability=guarded", "stability.rollback.every=1"]).config.stability
    else:
        changes["stability"] = Stability()
    c = context("batch", lora__method=method, schedule=Schedule(max_steps=2), checkpoint__save_strategy="steps",
                checkpoint__save_steps=1, **changes)  # fmt: skip
    writes = planned_writes(c)
    c.trainer.train()
    folders = sorted(c.folder.glob("checkpoints/checkpoint-*"))
    assert len(folders) == writes.kept == 2
    real = sum(p.stat().st_size for p in folders[-1].rglob("*"))
    assert writes.checkpoint == pytest.approx(real, rel=0.1)
    final = c.folder / "final"
    c.trainer.save_model(str(final))
    assert writes.final == pytest.approx(sum(p.stat().st_size for p in final.rglob("*")), rel=0.1)


def test_too_small_a_disk(context: Make) -> None:
    c = context("batch", lora__method="none", schedule=Schedule(num_train_epochs=6), checkpoint__save_strategy="epoch")
    writes = planned_writes(c)
    assert writes.kept == 3
    assert not disk(c, free=writes.peak).findings
    warned = disk(c, free=writes.peak - 1)
    assert ids(warned) == [("resources.disk", "warning")]
    assert warned.findings[0].overrides == ("checkpoint.save_total_limit=2",)
    assert load(["checkpoint.save_total_limit=2"]).config.checkpoint.save_total_limit == 2
    broken = disk(c, free=writes.checkpoint - 1)
    assert ids(broken) == [("resources.disk", "error")] and broken.findings[0].where == ("output_dir",)
    assert broken.findings[0].overrides == ("checkpoint.save_strategy=no",)
    assert disk(c, free=writes.final - 1).findings[0].overrides == ()
    assert not disk(c).findings  # this machine


# Time.


def test_time_needs_a_batch_that_was_timed(context: Make) -> None:
    c = context("batch", batch=Batch(per_device_train_batch_size=4, gradient_accumulation_steps=2))
    assert time(c).skipped
    c.facts["seconds"] = {"seconds": 2.0, "tokens": 100, "rows": 4}
    result = time(c)
    assert not result.findings and not result.skipped
    # 0.02 s a token: an epoch is that of all its batches, padded.
    from runner.preflight.resources.needs import planned_orders

    lengths = list(c.data.train["length"])
    epoch = 0.02 * padded_tokens([lengths[i] for i in next(iter(planned_orders(c, lengths)))], 4)
    whole = epoch * c.plan.total_steps / c.plan.steps_per_epoch
    assert result.summary.startswith(f"about {clock(whole)} for {c.plan.total_steps} steps (")
    assert "start model's loss" in result.summary and "evaluation" not in result.summary


def test_evaluations_are_counted() -> None:
    def planned(strategy: str, **more: Any) -> Any:
        args = SimpleNamespace(eval_strategy=strategy, eval_steps=4, eval_on_start=False)
        args.__dict__.update(more)
        return SimpleNamespace(
            trainer=SimpleNamespace(args=args),
            data=SimpleNamespace(validation=[1]),
            plan=SimpleNamespace(total_steps=10, steps_per_epoch=5),
        )

    assert evaluations(planned("epoch")) == 2
    assert evaluations(planned("steps", eval_on_start=True)) == 4
    assert evaluations(planned("no")) == 0


def test_the_sentence() -> None:
    parts = Parts(weights=538 * 10**6, gradients=538 * 10**6, optimizer=1076 * 10**6, activations=301 * 10**6)
    training, evaluation = Need("training", parts, Shape(4, 256)), Need("evaluation", Parts(weights=8 * 10**6), None)
    assert sentence(training, 23 * 10**9) == (
        "needs about 2.5 GB of 23 GB free: weights 0.54, gradients 0.54, optimizer 1.08, activations 0.30 "
        "(4 x 256 tokens)"
    )
    assert sentence(evaluation, 9 * 10**8) == "needs about 8 MB of 900 MB free, most in evaluation: weights 8"


def test_words() -> None:
    assert padded_tokens([3, 5, 2], 2) == 12
    assert [clock(x) for x in (0.44, 12.3, 600, 7200)] == ["0.4 s", "12 s", "10 min", "2.0 h"]
    assert [size(x) for x in (840e6, 1.94e9, 23.2e9)] == ["840 MB", "1.9 GB", "23 GB"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["sft", "classification"])
@pytest.mark.parametrize("method", ["none", "default"])
def test_the_estimate_is_within_100_mb_of_a_real_run(task: str, method: str, tmp_path: Path) -> None:
    from tests.benchmarks.memory import child
    from tests.benchmarks.memory import overrides as case

    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of a process since a moment is known on Linux only")
    given = case("qwen2_tiny", task, method, 4, 128, 3, tmp_path)
    estimate, real = child("estimate", given), child("measure", given)
    assert abs(estimate["total"] - real["peak"]) < 100e6, (estimate, real)


@pytest.mark.real_model
@pytest.mark.parametrize("task", ["sft", "classification"])
@pytest.mark.parametrize("method", ["none", "default"])
def test_the_estimate_is_within_15_percent_on_smollm2(task: str, method: str, tmp_path: Path) -> None:
    from tests.benchmarks.memory import child
    from tests.benchmarks.memory import overrides as case

    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of a process since a moment is known on Linux only")
    given = case("smollm2", task, method, 2, 128, 3, tmp_path)
    estimate, real = child("estimate", given), child("measure", given)
    assert 0.85 < estimate["total"] / real["peak"] < 1.15, (estimate, real)
