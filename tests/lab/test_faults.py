"""Each planted fault is seen at its step, named, and under `guarded` leaves the weights of other steps as they were."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from runner.config.compose import Session
from runner.config.schema import LossScale, Stability
from runner.errors import ConfigError
from runner.lab.faults import FAULTS, plant
from runner.run import run
from runner.runfolder import read_json, read_telemetry
from tests.training.kit import trainer_for
from tests.training.test_guarded import Weights, poison_one_row

STEP, STEPS = 3, 6
WIDTH = 48
TARGET = "model.layers.1.self_attn.q_proj"
"""Holder of the weight that is hit: the first of the middle one of two layers."""


@pytest.fixture(scope="session")
def guarded() -> Stability:
    """conf/stability/guarded.yaml."""
    return Session().load(["stability=guarded"]).config.stability


class Kept(Weights):
    """The trainable weights before training too."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.on_step_end(args, state, control, model)
        self.start = self.after.pop()


@dataclasses.dataclass
class Seen:
    """What a run with a fault left."""

    trainer: Any
    said: str
    rows: list[dict[str, Any]]
    weights: Kept
    folder: Path

    def incident(self, step: int = STEP) -> dict[str, Any]:
        facts = read_json(self.folder / f"incident-{step}" / "incident.json")
        assert facts is not None
        return facts

    def bad(self) -> list[int]:
        return [row["step"] for row in self.rows if row["skipped"] is not None or row.get("action") is not None]


def planted(make_config: Callable[..., Any], fault: str, task: str, stability: Stability, **changes: Any) -> Seen:
    """A short run on the micro model with `fault` in it."""
    changes = {
        "rows": 40,
        "batch__per_device_train_batch_size": 4,
        "schedule__max_steps": STEPS,
        "schedule__warmup_steps": 0,
        "optim__learning_rate": 3e-3,
        "planted__step": STEP,
        **changes,
    }
    # A loss scale from which no search is needed.
    changes.setdefault("precision__loss_scale", LossScale(initial_power=10))
    cfg = make_config(task, planted__fault=fault, stability=stability, **changes)
    poison_one_row(cfg, task)
    weights = Kept()
    trainer, rows = trainer_for(cfg, [weights])
    said = plant(cfg, trainer)
    trainer.train()
    return Seen(trainer, said, rows, weights, Path(cfg.output_dir))


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit, NaN included."""
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


def check_finite_and_untouched(seen: Seen, good: Iterable[int]) -> None:
    """Every step but STEP moved finite weights; nothing else was skipped."""
    assert all(torch.isfinite(w).all() for w in seen.weights.after)
    for step in good:
        assert not torch.equal(seen.weights.after[step - 1], seen.weights.after[step - 2]), f"step {step} trained"


def check_nan_loss(seen: Seen) -> None:
    assert seen.bad() == [STEP]
    row, facts = seen.rows[STEP - 1], seen.incident()
    assert math.isnan(row["loss"]) and (row["action"], row["skipped"]) == ("skip", "non_finite")
    assert torch.equal(seen.weights.after[STEP - 1], seen.weights.after[STEP - 2])
    check_finite_and_untouched(seen, range(STEP + 1, STEPS + 1))
    assert facts["micro_batch"] == 0 and facts["forward"] is None and facts["parameter"] is None
    assert "every module's output is finite; the loss itself is NaN" in facts["sentence"]
    assert [r["row_id"] for r in facts["rows"]] == row["row_ids"][:4], "the rows of the micro-batch it came from"


def check_nan_gradient(seen: Seen) -> None:
    assert seen.bad() == [STEP]
    row, facts = seen.rows[STEP - 1], seen.incident()
    assert math.isfinite(row["loss"]) and math.isnan(row["grad_norm"])
    assert (row["action"], row["skipped"]) == ("skip", "non_finite")
    assert torch.equal(seen.weights.after[STEP - 1], seen.weights.after[STEP - 2])
    check_finite_and_untouched(seen, range(STEP + 1, STEPS + 1))
    check_target(seen, facts["parameter"], "gradient")
    assert facts["parameter"]["count"] == 1
    assert facts["forward"] is None and facts["backward"]["kind"] == "parameter_gradient"
    assert facts["backward"]["parameter"] == facts["parameter"]["name"]


def check_nan_weight(seen: Seen) -> None:
    assert seen.bad() == [STEP]
    row, facts = seen.rows[STEP - 1], seen.incident()
    assert math.isnan(row["loss"]) and (row["action"], row["rolled_back_to"]) == ("rollback", 0)
    assert torch.equal(seen.weights.after[STEP - 1], seen.weights.start), "the snapshot's weights"
    check_finite_and_untouched(seen, range(STEP + 1, STEPS + 1))
    check_target(seen, facts["parameter"], "weight")
    assert facts["forward"]["weight"]["name"] == facts["parameter"]["name"]
    assert facts["forward"]["module"] == facts["parameter"]["name"].removesuffix(".weight")


def check_nan_embedding_row(seen: Seen) -> None:
    assert len(seen.bad()) == 1 and f"first read at step {seen.bad()[0]})" in seen.said
    step = seen.bad()[0]
    row, facts = seen.rows[step - 1], seen.incident(step)
    assert math.isnan(row["loss"]) and (row["action"], row["skipped"]) == ("skip", "non_finite")
    if step > 1:
        assert same_bits(seen.weights.after[step - 1], seen.weights.after[step - 2])
    # Where the table itself trains, its planted row stays NaN and nothing else becomes so.
    broken = [int((~torch.isfinite(w)).sum()) for w in (seen.weights.start, *seen.weights.after)]
    assert len(set(broken)) == 1 and broken[0] in (0, WIDTH)
    assert facts["forward"]["module"] == "model.embed_tokens" == facts["parameter"]["name"].removesuffix(".weight")
    assert f"row {facts['parameter']['row']}, " in seen.said
    assert len(facts["bad_rows"]) == 1 and f"only {facts['bad_rows'][0]} holds" in seen.said
    assert facts["forward"]["rows"] == facts["parameter"]["token"]["in_rows"] == facts["bad_rows"]
    assert facts["rows"][0]["row_id"] == facts["bad_rows"][0], "the guilty row first"
    assert [i for i, loss in enumerate(row["row_losses"]) if math.isnan(loss)] == [
        row["row_ids"].index(facts["bad_rows"][0])
    ]


def check_target(seen: Seen, parameter: dict[str, Any], what: str) -> None:
    """The parameter and the element of `said`."""
    assert parameter["name"].startswith(TARGET) and parameter["what"] == what
    assert f"{parameter['name']}{parameter['first_index']}" in seen.said


CHECKS = {
    "nan_loss": check_nan_loss,
    "nan_gradient": check_nan_gradient,
    "nan_weight": check_nan_weight,
    "nan_embedding_row": check_nan_embedding_row,
}
FAST = {
    ("nan_loss", "sft", 2, "fp32"),
    ("nan_loss", "classification", 1, "fp16"),
    ("nan_gradient", "sft", 2, "fp16"),
    ("nan_gradient", "classification", 2, "bf16"),
    ("nan_weight", "sft", 1, "bf16"),
    ("nan_weight", "classification", 2, "fp16"),
    ("nan_embedding_row", "sft", 2, "fp16"),
    ("nan_embedding_row", "classification", 1, "fp32"),
}
MATRIX = [
    pytest.param(*cell, marks=[] if cell in FAST else [pytest.mark.slow])
    for cell in (
        (fault, task, accumulation, precision)
        for fault in CHECKS
        for task in ("sft", "classification")
        for accumulation in (1, 2)
        for precision in ("fp32", "bf16", "fp16")
    )
]


@pytest.mark.parametrize(("fault", "task", "accumulation", "precision"), MATRIX)
def test_seen_at_its_step_named_and_without_effect(
    make_config: Callable[..., Any], guarded: Stability, fault: str, task: str, accumulation: int, precision: str
) -> None:
    seen = planted(
        make_config,
        fault,
        task,
        guarded,
        batch__gradient_accumulation_steps=accumulation,
        precision__compute=precision,
    )
    assert len(seen.rows) == STEPS and seen.trainer.guard.ends_run is None
    CHECKS[fault](seen)
    assert math.isfinite(seen.rows[-1]["loss"]) or seen.bad()[-1] == STEPS


@pytest.mark.parametrize(
    "fault",
    [
        "nan_weight",
        "nan_embedding_row",
        pytest.param("nan_loss", marks=pytest.mark.slow),
        pytest.param("nan_gradient", marks=pytest.mark.slow),
    ],
)
def test_the_same_with_every_weight_training(make_config: Callable[..., Any], guarded: Stability, fault: str) -> None:
    seen = planted(make_config, fault, "sft", guarded, lora__method="none", optim__learning_rate=1e-4)
    assert len(seen.rows) == STEPS and seen.trainer.guard.ends_run is None
    CHECKS[fault](seen)


@pytest.mark.parametrize(
    ("method", "task", "precision"),
    [
        ("lora", "sft", "fp32"),
        ("none", "classification", "fp32"),
        pytest.param("lora", "classification", "fp16", marks=pytest.mark.slow),
        pytest.param("none", "sft", "bf16", marks=pytest.mark.slow),
    ],
)
def test_a_broken_optimizer_state_is_seen_and_rolled_back(
    make_config: Callable[..., Any], guarded: Stability, method: str, task: str, precision: str
) -> None:
    seen = planted(
        make_config,
        "nan_optimizer_state",
        task,
        guarded,
        lora__method=method,
        optim__learning_rate=1e-3,
        precision__compute=precision,
    )
    # With LoRA the size of the update is known before each step; in full every tenth, so the next loss shows it.
    at = STEP if method == "lora" else STEP + 1
    assert seen.bad() == [at]
    row = seen.rows[at - 1]
    assert (row["action"], row["skipped"], row["rolled_back_to"]) == ("rollback", "non_finite", 0)
    assert math.isfinite(row["loss"]) == (method == "lora")
    assert torch.equal(seen.weights.after[at - 1], seen.weights.start)
    assert torch.isfinite(seen.weights.after[-1]).all() and len(seen.rows) == STEPS
    state = [t for s in seen.trainer.optimizer.state.values() for t in s.values()]
    assert state and all(torch.isfinite(t).all() for t in state)
    facts = seen.incident(at)
    check_target(seen, facts["parameter"], "optimizer state" if method == "lora" else "weight")
    if method == "lora":
        assert f"The optimizer's exp_avg of {facts['parameter']['name']} holds NaN at [" in facts["sentence"]
        assert "loss and gradient are finite, the update that the optimizer would make is not" in facts["sentence"]


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_observe_writes_the_step_as_it_was_and_warns(make_config: Callable[..., Any], task: str) -> None:
    cfg = make_config(task, rows=40, schedule__max_steps=STEPS, planted__fault="nan_gradient", planted__step=STEP)
    outcome = run(cfg)
    rows = read_telemetry(outcome.folder)
    row = rows[STEP - 1]
    assert row["grad_norm"] == "NaN" and isinstance(row["loss"], float) and row["action"] == "warn"
    assert row["skipped"] is None and row["incident"] == f"incident-{STEP}"
    assert [r["loss"] for r in rows[STEP:]] == ["NaN"] * 2, "the step was taken"
    assert outcome.state == "diverged" and rows[STEP].get("incident") is None, "one incident for the stretch"
    console = (outcome.folder / "console.log").read_text()
    assert f"planted: NaN in the gradient of {TARGET}" in console and f"see incident-{STEP}" in console


# float16


@pytest.mark.parametrize(
    ("side", "task", "method"),
    [
        ("forward", "sft", "lora"),
        ("forward", "classification", "none"),
        ("backward", "sft", "none"),
        ("backward", "classification", "lora"),
        pytest.param("forward", "sft", "none", marks=pytest.mark.slow),
        pytest.param("forward", "classification", "lora", marks=pytest.mark.slow),
        pytest.param("backward", "sft", "lora", marks=pytest.mark.slow),
        pytest.param("backward", "classification", "none", marks=pytest.mark.slow),
    ],
)
def test_an_overflow_is_attributed_to_the_layer_that_was_rescaled(
    make_config: Callable[..., Any], guarded: Stability, side: str, task: str, method: str
) -> None:
    seen = planted(
        make_config,
        f"fp16_{side}_overflow",
        task,
        guarded,
        lora__method=method,
        precision__compute="fp16",
        precision__loss_scale=LossScale(initial_power=8),
        schedule__max_steps=2,
    )
    # Backward: at scale 256 it is still the scale's own search.
    step = 1 if side == "forward" else 2
    assert seen.rows[step - 1]["action"] == "skip"
    facts = seen.incident(step)
    name = "up_proj" if side == "forward" else "down_proj"
    leaf = f"model.layers.1.mlp.{name}" + (".base_layer" if method == "lora" else "")
    if side == "forward":
        bad = facts["forward"]
        assert all(math.isnan(row["loss"]) for row in seen.rows)
    else:
        bad = facts["backward"]
        assert facts["forward"] is None and all(math.isfinite(row["loss"]) for row in seen.rows)
        assert bad["kind"] == "input_gradient" and seen.rows[0]["skipped"] == "loss_scale_overflow"
    assert (bad["module"], bad["dtype"]) == (leaf, "float16") and "overflow of float16" in bad["why"]
    assert torch.equal(seen.weights.after[-1], seen.weights.start)


@pytest.mark.parametrize("lora", [{"method": "none"}, {"init_lora_weights": "gaussian"}, {"init_lora_weights": False}])
@pytest.mark.parametrize("side", ["forward", "backward"])
def test_the_rescale_leaves_the_loss_in_fp32_as_it_was(
    make_config: Callable[..., Any], side: str, lora: dict[str, Any]
) -> None:
    cfg = make_config(
        precision__compute="fp16",
        precision__frozen_weights="fp32",
        planted__fault=f"fp16_{side}_overflow",
        **{f"lora__{key}": value for key, value in lora.items()},
    )
    trainer, _ = trainer_for(cfg)
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(8)])
    inputs = {key: batch[key] for key in ("input_ids", "labels", "attention_mask") if key in batch}

    def loss() -> Tensor:
        with torch.no_grad():
            found: Tensor = trainer.model.eval()(**inputs).loss
        return found

    before, weights = loss(), [p.detach().clone() for p in trainer.model.parameters()]
    plant(cfg, trainer)
    changed = [
        name
        for (name, p), old in zip(trainer.model.named_parameters(), weights, strict=True)
        if not torch.equal(p, old)
    ]
    assert changed and all(".1.mlp.up_proj." in name or ".1.mlp.down_proj." in name for name in changed)
    assert loss() == pytest.approx(float(before), rel=1e-6)


@pytest.mark.parametrize("until", [128.0, 0.0])
def test_in_fp16_an_overflow_at_a_scale_that_worked_is_told_from_a_broken_gradient(
    make_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, guarded: Stability, until: float
) -> None:
    """Infinity at every loss scale above `until`: the scale's own business where a smaller one helps."""

    def fault(cfg: Any, trainer: Any) -> str:
        def overflow(gradient: Tensor) -> Tensor:
            bad = trainer.state.global_step + 1 == STEP and trainer.scale() > until
            return gradient * math.inf if bad else gradient

        trainer.trainable()[3][1].register_hook(overflow)
        return "planted: an overflow"

    monkeypatch.setitem(FAULTS, "nan_gradient", fault)
    seen = planted(make_config, "nan_gradient", "classification", guarded, precision__compute="fp16")
    assert seen.bad() == [STEP]
    row = seen.rows[STEP - 1]
    search = until > 0
    assert (row["skipped"], row.get("action")) == (("loss_scale_overflow", None) if search else ("non_finite", "skip"))
    assert (seen.folder / f"incident-{STEP}").exists() != search
    assert [r["loss_scale"] for r in seen.rows] == [1024.0] * STEP + [512.0] * (STEPS - STEP)
    assert torch.equal(seen.weights.after[STEP - 1], seen.weights.after[STEP - 2])


def test_the_overflow_is_refused_where_nothing_is_computed_in_fp16(make_config: Callable[..., Any]) -> None:
    cfg = make_config(planted__fault="fp16_forward_overflow")
    trainer, _ = trainer_for(cfg)
    with pytest.raises(ConfigError, match=r"fp16_forward_overflow .*precision.compute=fp32.* precision=fp16"):
        plant(cfg, trainer)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"planted__fault": "nan_weight", "planted__layer": 2}, r"planted.layer=2: this model has layers 0 to 1"),
        (
            {"planted__fault": "nan_weight", "lora__method": "freeze", "lora__trainable": [r"layers\.0\."]},
            r"no weight of model.layers.1 trains \(lora.method=freeze\)",
        ),
        ({"planted__fault": "nan_optimizer_state", "optim__name": "sgd"}, "optim.name=sgd does not keep"),
        ({"planted__fault": "nan_optimizer_state", "planted__step": 1}, "set planted.step=2 or later"),
    ],
)
def test_a_fault_that_does_not_fit_is_refused(
    make_config: Callable[..., Any], changes: dict[str, Any], words: str
) -> None:
    cfg = make_config(**changes)
    trainer, _ = trainer_for(cfg)
    with pytest.raises(ConfigError, match=words):
        plant(cfg, trainer)


def test_every_fault_of_the_schema_can_be_planted_and_has_its_overlay() -> None:
    from typing import get_args, get_type_hints

    from runner.config.schema.root import Planted

    named = set(get_args(get_type_hints(Planted)["fault"])) - {"none"}
    assert named == set(FAULTS)
    session = Session()
    for fault in sorted(named):
        cfg = session.load(["+exp=quickstart", f"+fault={fault}", "stability=guarded"]).config
        assert cfg.planted.fault == fault and cfg.precision.compute == ("fp16" if "fp16" in fault else "auto")
        assert cfg.stability.guard.on_nonfinite == "skip", "the policy stays the user's choice"


@pytest.mark.slow
def test_a_learning_rate_100_times_too_high_makes_the_loss_rise(tmp_path: Path) -> None:
    overrides = ["+exp=quickstart", "+fault=lr_x100", "optim.learning_rate=8e-2", "schedule.max_steps=16"]
    overrides += [f"output_dir={tmp_path / 'run'}", "stability.base_loss=off", "dataset.preview=0"]
    outcome = run(Session().load(overrides).config)
    losses = [float(row["loss"]) for row in read_telemetry(outcome.folder)]
    assert max(losses[2:10]) > losses[0] + 2 and min(losses[4:]) > losses[0]


def test_a_fault_after_the_end_is_refused(make_config: Callable[..., Any]) -> None:
    cfg = make_config(rows=26, schedule__max_steps=3)
    cfg.planted.fault, cfg.planted.step = "nan_loss", 4
    with pytest.raises(ConfigError, match=r"planted.step=4 comes after the last step of the run, 3"):
        run(cfg)
