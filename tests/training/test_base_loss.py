"""Base losses: which rows are measured, what is taken from where, and what the header says of it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler

from runner.config.schema import Config
from runner.data.prepare import PreparedData, prepare_data
from runner.data.sampler import EpochSampler, epoch_order
from runner.model.tokenizer import load_tokenizer
from runner.signals.noise import predicted_noise
from runner.training import base_loss
from runner.training.base_loss import (
    BaseLoss,
    compute_base_loss,
    planned_steps,
    rows_of_steps,
    sampled_count,
    start_is_there,
    without_adapter,
)
from runner.training.plan import Plan, make_plan


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUNNER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def known_loss(row_id: str, tokens: int) -> tuple[float, int]:
    """A loss that depends on the row: 1 nat per token in `short`, 2 in `long`, plus a bit."""
    source, number = row_id.split("/")
    return tokens * (1.0 + (source == "long") + 0.01 * (int(number) % 7)), tokens


class FakeTrainer:
    """Answers `row_losses` with known numbers and remembers what it was asked, and whether the adapter was off."""

    def __init__(self, loss: Callable[[str, int], tuple[float, int]] = known_loss):
        self.loss = loss
        self.asked: list[list[str]] = []
        self.lengths: list[int] = []
        self.adapter_off = False
        self.asked_with_adapter_off: list[bool] = []
        self.model = self
        self.config = SimpleNamespace(_attn_implementation="sdpa", _commit_hash=None)
        self.accelerator = SimpleNamespace(num_processes=1, unwrap_model=lambda model: model)

    def is_world_process_zero(self) -> bool:
        return True

    @contextlib.contextmanager
    def disable_adapter(self) -> Iterator[None]:
        self.adapter_off = True
        yield
        self.adapter_off = False

    def row_losses(self, dataset: Any) -> dict[str, tuple[float, int]]:
        self.asked.append(list(dataset["row_id"]))
        self.lengths += list(dataset["length"])
        self.asked_with_adapter_off.append(self.adapter_off)
        tokens = [int((np.array(labels) != -100).sum()) for labels in dataset["labels"]]
        return {row: self.loss(row, n) for row, n in zip(dataset["row_id"], tokens, strict=True)}


@dataclasses.dataclass
class Case:
    """A config, its data and plan, and a way to ask for base losses."""

    cfg: Config
    data: PreparedData
    plan: Plan
    folder: Path
    notes: list[str] = dataclasses.field(default_factory=list)

    def compute(self, trainer: FakeTrainer, resumed: bool = False) -> BaseLoss:
        return compute_base_loss(self.cfg, self.plan, self.data, trainer, self.folder, self.notes.append, resumed)

    def saved(self) -> dict[str, Any]:
        return json.loads((self.folder / "base_loss.json").read_text())


@pytest.fixture
def case(make_config: Callable[..., Config], tmp_path: Path) -> Callable[..., Case]:
    def make(task: str = "sft", rows: int = 60, out: str = "run", **changes: Any) -> Case:
        cfg = make_config(task, rows, out, **changes)
        data = prepare_data(cfg, load_tokenizer(cfg))
        (tmp_path / out).mkdir(exist_ok=True)
        return Case(cfg, data, make_plan(cfg, len(data.train), 1), tmp_path / out)

    return make


def with_base_loss(case: Case, mode: str) -> Case:
    stability = dataclasses.replace(case.cfg.stability, base_loss=mode)
    return dataclasses.replace(case, cfg=dataclasses.replace(case.cfg, stability=stability), notes=[])


# Which steps, and which rows.


def test_planned_steps() -> None:
    assert planned_steps(10, 10) == planned_steps(10, 50) == list(range(10))
    assert planned_steps(101, 5) == [0, 25, 50, 75, 100]
    assert planned_steps(100, 1) == [0] and planned_steps(0, 5) == planned_steps(5, 0) == []
    for total in (7, 199, 200, 201, 12_345):
        steps = planned_steps(total, 200)
        assert len(steps) == min(total, 200) and steps[0] == 0 and steps[-1] == total - 1
        assert np.ptp(np.diff(steps)) <= 1


def test_how_many_steps_two_percent_pay_for() -> None:
    assert sampled_count(10_000, lora=True, global_batch=8) == 200
    assert sampled_count(4_000, lora=True, global_batch=8) == 160
    assert sampled_count(3_000, lora=False, global_batch=8) == 180
    assert sampled_count(1_000, lora=False, global_batch=8) == 60
    assert sampled_count(100, lora=True, global_batch=8) == 8, "64 examples, whatever they cost"
    assert sampled_count(100, lora=True, global_batch=1) == 64
    assert sampled_count(5, lora=True, global_batch=2) == 5, "no more than there are"
    for total in range(400, 20_000, 700):
        for lora, cost in ((True, 1 / 2), (False, 1 / 3)):
            assert sampled_count(total, lora, 8) * cost <= 0.02 * total + 1e-9


@pytest.mark.parametrize("kind", ["random", "stratified", "length_grouped"])
@pytest.mark.parametrize(("rows", "micro", "accumulation"), [(26, 4, 2), (24, 4, 2), (7, 2, 3), (3, 4, 2)])
def test_rows_of_steps_are_those_the_sampler_gives(kind: str, rows: int, micro: int, accumulation: int) -> None:
    sources, lengths = [str(i % 3) for i in range(rows)], [1 + i % 5 for i in range(rows)]
    batch = micro * accumulation
    sampler = EpochSampler(kind, 3, sources, lengths, batch)
    expected: list[list[int]] = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        micros = list(BatchSampler(sampler, micro, drop_last=False))
        windows = (micros[i : i + accumulation] for i in range(0, len(micros), accumulation))
        expected += [[row for part in window for row in part] for window in windows]
    per_epoch = len(expected) // 3
    order = lambda epoch: epoch_order(kind, 3, epoch, sources, lengths, batch)  # noqa: E731
    found = rows_of_steps(order, range(len(expected)), per_epoch, batch, rows)
    assert list(found.values()) == expected


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize(("rows", "micro", "accumulation"), [(26, 4, 2), (25, 3, 1), (48, 4, 2), (5, 4, 1)])
def test_rows_of_steps_under_several_processes(processes: int, rows: int, micro: int, accumulation: int) -> None:
    batch = micro * accumulation * processes
    order = epoch_order("random", 0, 0, ["a"] * rows, [1] * rows, batch)
    shards = [
        list(BatchSamplerShard(BatchSampler(order, micro, drop_last=False), processes, rank))
        for rank in range(processes)
    ]
    steps = math.ceil(len(shards[0]) / accumulation)
    expected = [
        sorted(row for shard in shards for part in shard[k * accumulation : (k + 1) * accumulation] for row in part)
        for k in range(steps)
    ]
    found = rows_of_steps(lambda _: order, range(steps), steps, batch, rows, micro * processes)
    assert [sorted(window) for window in found.values()] == expected


def test_sampled_measures_exactly_the_rows_of_planned_steps(case: Callable[..., Case]) -> None:
    run = case(
        rows=200, schedule__num_train_epochs=4.0, batch__sampler="stratified", batch__gradient_accumulation_steps=1
    )
    trainer = FakeTrainer()
    result = run.compute(trainer)
    assert run.plan.total_steps == 200 and run.plan.steps_per_epoch == 50
    sampler = EpochSampler("stratified", 42, run.data.train["source"], run.data.train["length"], 4)
    ids = list(run.data.train["row_id"])

    def expected(count: int) -> set[str]:
        found: set[str] = set()
        for step in planned_steps(200, count):
            sampler.set_epoch(step // 50)
            k = step % 50
            found |= {ids[i] for i in list(sampler)[k * 4 : (k + 1) * 4]}
        return found

    # 16 steps of 4 are 64 rows, some of them twice; as many more as it takes for 64 different ones.
    count = next(c for c in range(16, 200) if len(expected(c)) >= 64)
    assert sampled_count(200, True, 4) == 16 < count < 24
    assert len(trainer.asked) == 1 and len(trainer.asked[0]) == len(set(trainer.asked[0]))
    assert set(result.rows) == set(trainer.asked[0]) == expected(count)
    assert trainer.lengths == sorted(trainer.lengths, reverse=True)


def test_all_and_off(case: Callable[..., Case]) -> None:
    run = with_base_loss(case(), "all")
    result = run.compute(trainer := FakeTrainer())
    assert set(trainer.asked[0]) == set(run.data.train["row_id"]) and len(result.rows) == 60
    off = with_base_loss(run, "off")
    (run.folder / "base_loss.json").unlink()
    result = off.compute(trainer := FakeTrainer())
    assert (trainer.asked, result.rows, result.line(), off.notes) == ([], {}, "", [])
    assert not (run.folder / "base_loss.json").exists()


# What is taken from where.


def test_a_second_run_asks_nothing_and_a_larger_one_only_the_rest(case: Callable[..., Case]) -> None:
    first, again = case(rows=200), case(rows=200, out="again", optim__learning_rate=0.5)
    result = first.compute(FakeTrainer())
    repeated = again.compute(trainer := FakeTrainer())
    assert trainer.asked == [] and repeated.rows == result.rows and again.notes == []
    assert repeated.noise["from_cache"] == len(result.rows) and "known from before" in repeated.line()
    assert {k: v for k, v in repeated.noise.items() if k in ("mean", "sd_step", "sd_log")} == {
        k: v for k, v in result.noise.items() if k in ("mean", "sd_step", "sd_log")
    }
    every = with_base_loss(again, "all").compute(trainer := FakeTrainer())
    assert set(trainer.asked[0]) == set(again.data.train["row_id"]) - set(result.rows)
    assert every.noise["from_cache"] == len(result.rows) and f"{len(result.rows)} known from before" in every.line()


def test_the_cache_is_the_models_own(case: Callable[..., Case]) -> None:
    case().compute(FakeTrainer())
    trainer = FakeTrainer()
    trainer.config._attn_implementation = "eager"
    case(out="other").compute(trainer)
    assert len(trainer.asked) == 1


def test_a_damaged_cache_is_told_and_measured_anew(case: Callable[..., Case], empty_cache: Path) -> None:
    first = case()
    result = first.compute(FakeTrainer())
    (file,) = (empty_cache / "base_loss").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    again = case(out="again")
    assert again.compute(trainer := FakeTrainer()).rows == result.rows
    assert len(trainer.asked) == 1 and len(again.notes) == 1 and "damaged" in again.notes[0]
    case(out="third").compute(trainer := FakeTrainer())
    assert trainer.asked == [], "it was rebuilt"


def test_a_resumed_run_reads_its_own_file(case: Callable[..., Case], monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("none", "lora"):
        run = case(out=method, lora__method=method)
        result = run.compute(FakeTrainer())
        monkeypatch.setenv("RUNNER_CACHE", str(run.folder / "no-cache"))
        resumed = run.compute(trainer := FakeTrainer(), resumed=True)
        assert trainer.asked == [] and run.notes == [] and resumed.rows == result.rows
        assert "was about" in resumed.line() and "under the start model" in resumed.line()


def test_a_new_run_does_not_believe_a_file_that_lies_about(case: Callable[..., Case], monkeypatch: Any) -> None:
    run = case()
    run.compute(FakeTrainer())
    monkeypatch.setenv("RUNNER_CACHE", str(run.folder / "no-cache"))
    run.compute(trainer := FakeTrainer())
    assert len(trainer.asked) == 1


@pytest.mark.parametrize("damage", ["torn", "other data", "absent"])
@pytest.mark.parametrize(
    ("lora", "measured"),
    [
        ({"method": "none"}, False),
        ({"method": "freeze", "trainable": ["x"]}, False),
        ({"method": "lora"}, True),
        ({"method": "lora", "init_lora_weights": "pissa"}, False),
        ({"method": "lora", "adapter": "some/adapter"}, False),
    ],
)
def test_a_resumed_run_measures_no_trained_model(
    case: Callable[..., Case], monkeypatch: Any, damage: str, lora: dict[str, Any], measured: bool
) -> None:
    run = case()
    run = dataclasses.replace(run, cfg=dataclasses.replace(run.cfg, lora=dataclasses.replace(run.cfg.lora, **lora)))
    result = run.compute(FakeTrainer())
    monkeypatch.setenv("RUNNER_CACHE", str(run.folder / "no-cache"))
    file = run.folder / "base_loss.json"
    if damage == "torn":
        file.write_text(file.read_text()[:-30])
    elif damage == "absent":
        file.unlink()
    else:
        file.write_text(json.dumps({**run.saved(), "fingerprint": "other"}))
    resumed = run.compute(trainer := FakeTrainer(), resumed=True)
    if measured:
        assert trainer.asked_with_adapter_off == [True] and not trainer.adapter_off
        assert resumed.rows == result.rows and run.notes == []
    else:
        assert trainer.asked == [] and resumed.rows == {} and resumed.line() == ""
        assert len(run.notes) == 1 and "60 of 60 rows are unknown" in run.notes[0] and "resumed" in run.notes[0]


def test_a_resumed_run_without_a_file_still_finds_the_cache(case: Callable[..., Case]) -> None:
    run = case(lora__method="none")
    result = run.compute(FakeTrainer())
    (run.folder / "base_loss.json").unlink()
    assert run.compute(trainer := FakeTrainer(), resumed=True).rows == result.rows
    assert trainer.asked == [] and run.notes == [] and run.saved()["rows"]


def test_a_start_measured_once_is_measured_with_the_adapter_as_it_starts(case: Callable[..., Case]) -> None:
    case(lora__init_lora_weights="pissa").compute(trainer := FakeTrainer())
    assert trainer.asked_with_adapter_off == [False]


def test_the_other_processes_hear_from_the_first(case: Callable[..., Case], monkeypatch: pytest.MonkeyPatch) -> None:
    first = case()
    sent: list[Any] = []
    monkeypatch.setattr(base_loss, "broadcast_object_list", lambda objects: sent.append(objects) or objects)
    with_base_loss(first, "all").compute(FakeTrainer())
    assert sent == [], "one process has nobody to tell"
    leader = FakeTrainer()
    leader.accelerator.num_processes = 2
    known = first.compute(leader).rows
    assert leader.asked == [] and set(sent[0][0]) == set(known)

    part = dict(list(known.items())[:40])
    monkeypatch.setattr(base_loss, "broadcast_object_list", lambda objects: [part])
    second = dataclasses.replace(case(out="second"))
    other = FakeTrainer()
    other.accelerator.num_processes = 2
    other.is_world_process_zero = lambda: False  # type: ignore[method-assign]
    result = second.compute(other)
    assert set(other.asked[0]) == set(known) - set(part), "its own disk is not asked"
    assert result.rows == known and list(second.folder.iterdir()) == [], "and it writes nothing"


def test_the_start_model_of_a_real_adapter_is_the_base(make_config: Callable[..., Config], micro_model: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(micro_model).eval()
    tokens = torch.arange(1, 9)[None]
    with torch.no_grad():
        before = base(input_ids=tokens).logits
        model = get_peft_model(base, LoraConfig(target_modules="all-linear")).eval()
        trains = {n for n, p in model.named_parameters() if p.requires_grad}
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
        trainer = SimpleNamespace(model=model, accelerator=SimpleNamespace(unwrap_model=lambda m: m))
        assert start_is_there(make_config())
        with without_adapter(trainer):
            assert torch.equal(model(input_ids=tokens).logits, before)
        assert not torch.allclose(model(input_ids=tokens).logits, before)
    assert {n for n, p in model.named_parameters() if p.requires_grad} == trains


# What it says.


def test_of_sums_what_is_known() -> None:
    loss = BaseLoss("all", {"a": (3.0, 2), "b": (5.0, 4), "c": (math.nan, 1)})
    assert loss.of(["a", "b"]) == (8.0, 6, 2)
    assert loss.of(["a", "x"]) == (3.0, 2, 1)
    assert loss.of([]) == (0, 0, 0)
    assert math.isnan(loss.of(["a", "c"])[0])


def test_the_band(case: Callable[..., Case]) -> None:
    run = case(tracking__logging_steps=5)
    result = run.compute(FakeTrainer())
    sums, tokens = np.array(list(result.rows.values())).T
    noise = result.noise
    assert noise["mean"] == pytest.approx(sums.sum() / tokens.sum()) and noise["examples"] == 60
    assert noise["sd_step"] == pytest.approx(predicted_noise(sums, tokens, 8, population=60))
    assert noise["sd_log"] == pytest.approx(noise["sd_step"] / math.sqrt(5))
    assert noise["sd_independent"] == pytest.approx(noise["sd_step"] / math.sqrt(1 - 8 / 60))
    line = result.line()
    assert line.startswith(
        f"expect     loss about {noise['mean']:.3g} +/- {noise['sd_step']:.2g} per step from sampling alone (batch 8; "
        "60 rows under the start model, "
    )
    assert line.endswith(f"a log line is the mean of 5 steps: +/- {noise['sd_log']:.2g}")
    saved = run.saved()
    assert saved["schema"] == 1 and saved["mode"] == "sampled" and saved["noise"]["mean"] == noise["mean"]
    assert {row: tuple(pair) for row, pair in saved["rows"].items()} == result.rows


def test_the_header_says_what_a_short_run_pays(case: Callable[..., Case]) -> None:
    short = case().compute(FakeTrainer())
    # 60 rows, half a LoRA step each, in 24 steps of 8.
    assert short.noise["share_of_run"] == pytest.approx(60 / 2 / (24 * 8))
    assert "about 16 % of the run" in short.line()
    long = case(out="long", rows=62, schedule__max_steps=5000).compute(FakeTrainer())
    assert "of the run" not in long.line() and "a log line" not in long.line()


def test_stratified_batches_move_less(case: Callable[..., Case]) -> None:
    plain = case().compute(FakeTrainer())
    stratified = case(out="other", batch__sampler="stratified").compute(FakeTrainer())
    assert plain.noise["between_share"] == pytest.approx(stratified.noise["between_share"])
    assert plain.noise["between_share"] > 0.5
    assert stratified.noise["sd_step"] < 0.6 * plain.noise["sd_step"]


def test_a_start_model_that_is_broken_is_called_so(case: Callable[..., Case]) -> None:
    run = case()
    broken = run.compute(FakeTrainer(lambda row, n: (math.nan, n)))
    assert "NaN or infinite on 60 of 60 rows (first: " in broken.line() and "+/-" not in broken.line()
    assert math.isnan(broken.of(list(broken.rows))[0])
    assert run.saved()["noise"]["mean"] == "NaN", "valid JSON"
    part = run.compute(trainer := FakeTrainer(lambda r, n: (math.inf, n) if r == "long/3" else known_loss(r, n)))
    assert len(trainer.asked[0]) == 60, "what was not finite is measured again by the next run"
    assert "infinite on 1 of 60 rows (first: long/3)" in part.line() and "apart from those: loss about" in part.line()


def test_a_broken_loss_survives_a_resume(case: Callable[..., Case]) -> None:
    run = case(lora__method="none")
    run.compute(FakeTrainer(lambda row, n: (math.inf, n)))
    resumed = run.compute(trainer := FakeTrainer(), resumed=True)
    assert trainer.asked == [] and all(total == math.inf for total, _ in resumed.rows.values())


def test_classification_and_its_weights(case: Callable[..., Case]) -> None:
    run = case("classification", rows=60)
    loss = lambda row, n: (1.0 + int(row.split("/")[1]) % 3, 1)  # noqa: E731
    plain = run.compute(FakeTrainer(loss))
    assert plain.noise["mean"] == pytest.approx(2.0)
    trainer = FakeTrainer(loss)
    trainer.class_weights = torch.tensor([4.0, 1.0, 1.0])  # type: ignore[attr-defined]
    first_class = [
        int(r.split("/")[1]) % 3
        for r, c in zip(run.data.train["row_id"], run.data.train["labels"], strict=True)
        if c == 0
    ]
    weighted = case("classification", rows=60, out="weighted").compute(trainer)
    hit = 1.0 + first_class[0]
    assert weighted.noise["mean"] == pytest.approx((4 * hit + (6.0 - hit)) / 6)


def test_one_row_gives_a_level_and_no_band(case: Callable[..., Case]) -> None:
    loss = BaseLoss("all", {}, {})
    assert loss.line() == ""
    noise = {
        "mean": 2.0, "sd_step": math.nan, "sd_log": math.nan, "batch": 1, "log_steps": 1, "examples": 1,
        "non_finite": 0, "first_non_finite": None, "from_cache": 0, "seconds": 0.1, "share_of_run": 0.0,
    }  # fmt: skip
    line = BaseLoss("all", {"a": (2.0, 1)}, noise).line()
    assert line == (
        "expect     loss about 2; too few rows to say how far it moves (batch 1; 1 rows under the start model, 0.1 s)"
    )
