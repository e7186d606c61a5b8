"""Probes: right on models whose answer is known, and without any trace in the training they watch."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from runner.config.schema import Probes as Intervals
from runner.training import probes as module
from runner.training.probes import Probes, choose_rows, halfway, lost_updates

OFF: dict[str, Any] = {"line": None, "replay": None, "lost_updates": None, "probe_set": None}


def table(rows: int, name: str = "a", sources: int = 1) -> Dataset:
    """A tokenised dataset; row i has 4 + i % 3 tokens, of which the first is not supervised."""
    ids = [[1 + (7 * i + j) % 50 for j in range(4 + i % 3)] for i in range(rows)]
    return Dataset.from_dict(
        {
            "input_ids": ids,
            "labels": [[-100, *row[1:]] for row in ids],
            "row_id": [f"{name}/{i}" for i in range(rows)],
            "source": [f"{name}{i % sources}" for i in range(rows)],
            "length": [len(row) for row in ids],
        }
    )


class Quadratic(nn.Module):
    """Loss curvature/2 |w - batch|^2."""

    def __init__(self, curvature: float, size: int = 4, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.curvature = curvature
        self.w = nn.Parameter(torch.linspace(1.0, 2.0, size, dtype=dtype))

    def forward(self, batch: Tensor) -> Tensor:
        return self.curvature / 2 * ((self.w - batch).double() ** 2).sum()


class Lab:
    """A trainer by hand: one batch a step, the loss that `loss_of(model, batch)` gives, probes around the update."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Callable[[Any, Any], Tensor]):
        self.model, self.optimizer, self.loss_of = model, optimizer, loss_of
        self.batch: Any = None
        self.probes: Probes | None = None
        self.first = True
        self.forwards = 0
        self.lines: list[dict[str, Any]] = []
        self.losses: list[float] = []
        self.row_calls: list[list[str]] = []

    def watch(self, train: Dataset, validation: Dataset | None = None, seed: int = 0, **intervals: Any) -> Lab:
        """Switch on the probes named."""
        self.probes = Probes(Intervals(**{**OFF, **intervals}), self, train, validation, seed, self.lines.append)
        return self

    def of(self, probe: str) -> list[dict[str, Any]]:
        """The lines of one probe."""
        return [line for line in self.lines if line["probe"] == probe]

    def quietly(self, batch: Any) -> float:
        """Loss of a batch, dropout off."""
        self.forwards += 1
        training = self.model.training
        self.model.eval()
        with torch.no_grad():
            value = float(self.loss_of(self.model, batch))
        self.model.train(training)
        return value

    def objective(self) -> float:
        return self.quietly(self.batch)

    def row_losses(self, dataset: Dataset) -> dict[str, tuple[float, int]]:
        self.row_calls.append(list(dataset["row_id"]))
        found = {}
        for row in dataset:
            tokens = sum(label != -100 for label in row["labels"])
            found[row["row_id"]] = (self.quietly(torch.tensor([row["input_ids"]])) * tokens, tokens)
        # Processes hand in their part in any order.
        return dict(reversed(found.items()))

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    def is_world_process_zero(self) -> bool:
        return self.first

    def train(self, batches: list[Any], after: int = 0, skip: tuple[int, ...] = ()) -> Lab:
        """Steps after + 1 .. after + len(batches); a step in `skip` has no update."""
        if self.probes:
            self.probes.start(after)
        for step, self.batch in enumerate(batches, after + 1):
            self.optimizer.zero_grad()
            loss = self.loss_of(self.model, self.batch)
            loss.backward()
            self.losses.append(float(loss.detach()))
            if self.probes:
                self.probes.before_update(step)
            if step in skip:
                if self.probes:
                    self.probes.cancel()
                continue
            self.optimizer.step()
            if self.probes:
                self.probes.after_update(step)
        if self.probes:
            self.probes.finish(after + len(batches))
        return self


def quadratic(rate: float, curvature: float = 4.0, dtype: torch.dtype = torch.float32, size: int = 4) -> Lab:
    """Plain gradient descent on a parabola: s = rate x curvature at every step."""
    model = Quadratic(curvature, size, dtype)
    return Lab(model, torch.optim.SGD(model.parameters(), lr=rate), lambda m, batch: m(batch))


@pytest.mark.parametrize(("rate", "s"), [(0.05, 0.2), (0.2, 0.8), (0.4, 1.6), (0.6, 2.4)])
def test_line_and_replay_on_a_parabola(rate: float, s: float) -> None:
    lab = quadratic(rate).watch(table(3), line=2, replay=2).train([torch.zeros(4)] * 4)
    lines, replays = lab.of("line"), lab.of("replay")
    assert [line["step"] for line in lines] == [line["step"] for line in replays] == [2, 4]
    for line, replay in zip(lines, replays, strict=True):
        assert line["s"] == pytest.approx(s, rel=1e-5)
        assert line["h"] == pytest.approx(-s * line["a"], rel=1e-5)
        assert (replay["before"], replay["after"]) == (line["l0"], line["l1"])
        assert (replay["after"] > replay["before"]) == (s > 2)
        # Before is the loss the step itself had: this model has no dropout.
        assert line["l0"] == lab.losses[line["step"] - 1]


@pytest.mark.parametrize(
    ("intervals", "forwards"),
    [
        ({"line": 2, "replay": 2}, 3),
        ({"line": 2}, 3),
        ({"replay": 2}, 2),
        ({"lost_updates": 2}, 0),
        ({"line": 2, "replay": 2, "lost_updates": 2}, 3),
    ],
)
def test_forward_passes_are_shared(intervals: dict[str, int], forwards: int) -> None:
    lab = quadratic(0.1).watch(table(3), **intervals).train([torch.zeros(4)] * 2)
    assert lab.forwards == forwards
    assert {line["probe"] for line in lab.lines} == set(intervals)


@pytest.mark.parametrize("small", [0, 2**26])
def test_lost_updates_by_storage_dtype(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", small)
    shares = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = Quadratic(1.0, 100, dtype)
        lab = Lab(model, torch.optim.AdamW(model.parameters(), lr=1e-5), lambda m, batch: m(batch))
        lab.watch(table(3), lost_updates=1).train([torch.zeros(100)] * 2)
        found = lab.of("lost_updates")
        assert [line["dtype"] for line in found] == [str(dtype).removeprefix("torch.")] * 2
        assert [line["elements"] for line in found] == [100, 100]
        shares[dtype] = [line["share"] for line in found]
    assert shares[torch.float32] == [0.0, 0.0]
    assert min(shares[torch.bfloat16]) > 0.95


def test_lost_updates_count_only_elements_with_a_gradient() -> None:
    old = [torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.ones(2), torch.ones(3)]
    new = [torch.tensor([1.0, 2.5, 3.0, 4.0]), torch.ones(2), torch.zeros(3)]
    reached = [torch.tensor([True, True, True, False]), None, torch.tensor([False, False, False])]
    assert lost_updates(new, old, reached) == (2, 3)
    assert lost_updates(new[1:2], old[1:2], [None]) == (0, 0)


def test_no_gradient_at_all_has_no_share() -> None:
    lab = quadratic(0.1).watch(table(3), lost_updates=1)
    lab.train([torch.linspace(1.0, 2.0, 4)])
    (line,) = lab.of("lost_updates")
    assert line["elements"] == 0 and math.isnan(line["share"])


def test_a_step_that_is_not_taken_leaves_nothing() -> None:
    lab = quadratic(0.1).watch(table(3), line=2, replay=2, lost_updates=2).train([torch.zeros(4)] * 4, skip=(2,))
    assert {line["step"] for line in lab.lines} == {4}
    dropped = quadratic(0.1).watch(table(3), line=2, replay=2, lost_updates=2).train([torch.zeros(4)] * 2, skip=(2,))
    assert dropped.lines == []
    assert dropped.probes is not None and dropped.probes._before is None, "the copy of the weights is let go"


def test_a_loss_that_is_not_finite_is_told_as_it_is() -> None:
    batch = torch.tensor([0.0, float("nan"), 0.0, 0.0])
    lab = quadratic(0.1).watch(table(3), line=1, replay=1).train([batch])
    (line,), (replay,) = lab.of("line"), lab.of("replay")
    assert all(math.isnan(line[key]) for key in ("l0", "l_half", "l1", "a", "h", "s"))
    assert math.isnan(replay["before"]) and math.isnan(replay["after"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_halfway_is_the_middle_and_gives_the_same_bits_back(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(7, 5), (3,), (2, 2, 2)]
    new = [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]
    old = [(p.detach() + 0.25 * torch.randn(p.shape, generator=generator)).to(dtype) for p in new]
    with torch.no_grad():
        new[1][0], new[1][1] = float("nan"), -0.0
    bits = [as_bits(p) for p in new]
    kept = [w.clone() for w in old]
    storage = [w.data_ptr() for w in old]
    with halfway(new, old):
        for p, was, at, before in zip(new, bits, old, kept, strict=True):
            exact = ((was.view(dtype).double() + before.double()) / 2).to(dtype)
            assert torch.allclose(p.detach(), exact, rtol=2e-7 if dtype == torch.float32 else 8e-3, equal_nan=True)
            assert torch.equal(as_bits(at), was)
    assert all(torch.equal(as_bits(p), was) for p, was in zip(new, bits, strict=True))
    assert [w.data_ptr() for w in old] == storage


def test_halfway_gives_the_weights_back_when_the_forward_pass_fails() -> None:
    new, old = [torch.ones(3), torch.ones(2)], [torch.zeros(3), torch.zeros(2)]
    with pytest.raises(RuntimeError, match="out of memory"), halfway(new, old):
        assert new[0].tolist() == [0.5, 0.5, 0.5]
        raise RuntimeError("out of memory")
    assert [p.tolist() for p in new] == [[1.0] * 3, [1.0] * 2]
    # Failing in between: the second pair does not fit.
    odd = [torch.zeros(3), torch.zeros(5)]
    with pytest.raises(RuntimeError), halfway(new, odd):
        pass
    assert [p.tolist() for p in new] == [[1.0] * 3, [1.0] * 2]


def as_bits(tensor: Tensor) -> Tensor:
    """The tensor's bits as whole numbers, so that NaN and -0 compare too."""
    return tensor.detach().clone().view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def causal(path: Path, dtype: torch.dtype = torch.float32) -> Lab:
    """The micro model with attention dropout under AdamW, in train mode."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="eager")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return Lab(model, optimizer, lambda m, ids: m(input_ids=ids, labels=ids).loss)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("small", [0, 2**26])
def test_probes_leave_no_trace(
    micro_model: Path, dtype: torch.dtype, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SMALL", small)
    batches = [torch.randint(0, 200, (2, 12), generator=torch.Generator().manual_seed(i)) for i in range(4)]
    ends = []
    for intervals in ({}, {"line": 1, "replay": 1, "lost_updates": 1, "probe_set": 1, "probe_set_size": 4}):
        lab = causal(micro_model, dtype)
        np.random.seed(0)
        lab.watch(table(6), table(5, "held"), **intervals).train(batches)
        ends.append((lab, torch.get_rng_state(), np.random.get_state()[1]))
    (bare, torch_bare, numpy_bare), (watched, torch_watched, numpy_watched) = ends
    assert not bare.lines and len(watched.lines) == 3 * 4 + 5
    assert watched.losses == bare.losses
    assert torch.equal(torch_bare, torch_watched) and np.array_equal(numpy_bare, numpy_watched)
    for (name, p), (_, q) in zip(bare.trainable(), watched.trainable(), strict=True):
        assert torch.equal(as_bits(p), as_bits(q)), name
        assert p.grad is not None and q.grad is not None and torch.equal(p.grad, q.grad), name
    assert all(m.training for m in watched.model.modules())
    for line, replay in zip(watched.of("line"), watched.of("replay"), strict=True):
        # One batch, one step of Adam: dropout is off in both, so that the update's own effect is seen.
        assert replay["after"] < replay["before"]
        assert line["l0"] != watched.losses[line["step"] - 1]


def test_the_set_is_measured_at_the_start_every_k_steps_and_once_at_the_end() -> None:
    def steps(count: int, **more: Any) -> list[int]:
        lab = quadratic(0.1, size=1).watch(table(6), probe_set=2, probe_set_size=4)
        return [line["step"] for line in lab.train([torch.zeros(1)] * count, **more).of("probe_set")]

    assert steps(5) == [0, 2, 4, 5]
    assert steps(4) == [0, 2, 4]
    assert steps(0) == [0]
    # Where the due step was skipped, the next one stands in.
    assert steps(6, skip=(2,)) == [0, 3, 4, 6]
    assert steps(6, skip=(4, 5, 6)) == [0, 2, 6]


def test_the_set_tells_the_change_since_the_start() -> None:
    lab = quadratic(0.1, size=1)
    lab.watch(table(9), table(5, "held"), probe_set=1, probe_set_size=5).train([torch.full((1,), 2.0)] * 2)
    first, second, third = lab.of("probe_set")
    assert first["row_ids"] == [f"held/{i}" for i in range(5)] and first["held_out"] is True
    assert first["tokens"] == [3, 4, 5, 3, 4] and first["change"] is None
    moved = np.array(third["losses"]) - np.array(first["losses"])
    assert third["change"]["since"] == 0
    assert third["change"]["mean"] == pytest.approx(moved.mean())
    assert third["change"]["se"] == pytest.approx(moved.std(ddof=1) / math.sqrt(5))
    assert second["row_ids"] == third["row_ids"] == first["row_ids"]
    assert all(isinstance(loss, float) for loss in first["losses"])


def test_the_set_is_held_out_only_where_enough_is() -> None:
    def lines(validation: Dataset | None) -> dict[str, Any]:
        lab = quadratic(0.1, size=1).watch(table(9), validation, probe_set=1, probe_set_size=5)
        return lab.train([]).of("probe_set")[0]

    assert lines(table(5, "held"))["held_out"] is True
    for few in (table(4, "held"), None):
        line = lines(few)
        assert line["held_out"] is False
        assert len(line["row_ids"]) == 5 and all(name.startswith("a/") for name in line["row_ids"])


def test_rows_are_chosen_in_proportion_by_the_seed() -> None:
    sources = ["big"] * 700 + ["small"] * 100 + ["mid"] * 200
    np.random.RandomState(0).shuffle(sources)
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    counts = []
    for seed in range(20):
        rows = choose_rows(sources, 64, seed)
        assert len(set(rows)) == 64 and rows == sorted(rows)
        counts.append(Counter(sources[i] for i in rows))
        exact = {"big": 44.8, "small": 6.4, "mid": 12.8}
        assert all(abs(counts[-1][name] - share) < 1 for name, share in exact.items())
    assert choose_rows(sources, 64, 3) == choose_rows(sources, 64, 3) != choose_rows(sources, 64, 4)
    assert np.array_equal(before, np.random.get_state()[1])
    assert choose_rows(["a", "b"], 64, 0) == [0, 1]
    assert choose_rows(["a"] * 65, 64, 0) != choose_rows(["a"] * 65, 64, 1)


def test_every_row_has_the_same_chance() -> None:
    sources = ["a"] * 3 + ["b"] * 7
    hits = np.bincount([i for seed in range(3000) for i in choose_rows(sources, 4, seed)], minlength=10) / 3000
    assert hits == pytest.approx(np.full(10, 0.4), abs=0.05)


def test_a_resumed_run_compares_with_the_true_start() -> None:
    batches = [torch.full((1,), float(i % 3)) for i in range(6)]
    whole = quadratic(0.1, size=1).watch(table(9), probe_set=2, probe_set_size=4).train(batches)

    first = quadratic(0.1, size=1).watch(table(9), probe_set=2, probe_set_size=4)
    assert first.probes is not None and first.probes.state() == {}
    first.train(batches[:3])
    # As if it was stopped at step 3, after which a run that ends would measure once more.
    first.probes._last = 2
    saved = json.loads(json.dumps(first.probes.state()))

    second = quadratic(0.1, size=1).watch(table(9), probe_set=2, probe_set_size=4)
    second.model.load_state_dict(first.model.state_dict())
    assert second.probes is not None
    second.probes.load(saved)
    second.train(batches[3:], after=3)
    assert second.of("probe_set") == [line for line in whole.of("probe_set") if line["step"] > 3]
    assert second.of("probe_set")[-1]["change"]["since"] == 0


def test_a_first_measurement_of_other_rows_is_not_paired() -> None:
    old = quadratic(0.1, size=1).watch(table(9), probe_set=2, probe_set_size=4).train([torch.zeros(1)] * 2)
    new = quadratic(0.1, size=1).watch(table(9), probe_set=2, probe_set_size=5)
    assert old.probes is not None and new.probes is not None
    new.probes.load(old.probes.state())
    new.train([torch.zeros(1)] * 2, after=2)
    assert [line["step"] for line in new.of("probe_set")] == [2, 4]
    assert new.of("probe_set")[1]["change"]["since"] == 2


def test_a_first_loss_that_is_not_finite_survives_a_checkpoint() -> None:
    def lab_at(weight: float) -> Lab:
        lab = quadratic(0.0, size=1).watch(table(4), probe_set=1, probe_set_size=4)
        lab.model.load_state_dict({"w": torch.tensor([weight])})
        return lab

    broken, sound = lab_at(float("nan")).train([]), lab_at(1.0)
    assert all(map(math.isnan, broken.of("probe_set")[0]["losses"]))
    assert broken.probes is not None and sound.probes is not None
    saved = json.loads(json.dumps(broken.probes.state(), allow_nan=False))
    assert saved["losses"] == ["NaN"] * 4
    # One row was finite, so that there is one pair.
    saved["losses"][1] = 1.0
    sound.probes.load(saved)
    sound.train([torch.zeros(1)])
    (line,) = sound.of("probe_set")
    assert line["change"]["since"] == 0
    assert line["change"]["mean"] == line["losses"][1] - 1.0 and math.isnan(line["change"]["se"])


def test_other_processes_measure_and_stay_silent() -> None:
    lab = quadratic(0.1, size=1).watch(table(6), line=1, replay=1, lost_updates=1, probe_set=1, probe_set_size=4)
    lab.first = False
    lab.train([torch.zeros(1)] * 2)
    assert lab.lines == [] and len(lab.row_calls) == 3 and lab.forwards == 3 * 4 + 2 * 3


def test_everything_off_measures_nothing() -> None:
    lab = quadratic(0.1).watch(table(6)).train([torch.zeros(4)] * 3)
    assert lab.lines == [] and lab.forwards == 0
    assert lab.probes is not None and lab.probes.state() == {}
