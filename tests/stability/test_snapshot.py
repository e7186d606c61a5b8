"""The way back to the last sound state."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from runner.stability.snapshot import Snapshots, count_broken

NAN = float("nan")


class Run:
    """A small model with AdamW, a decaying schedule and a loss scale, and what it learns from."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda t: 1 / (1 + 0.1 * t))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
        self.scaler.scale(torch.zeros(()))
        self.batches = torch.randn(50, 4, 6)

    @property
    def named(self) -> list[tuple[str, torch.nn.Parameter]]:
        return list(self.model.named_parameters())

    def parts(self) -> tuple[Any, ...]:
        return self.named, self.optimizer, self.scheduler, self.scaler

    def step(self, batch: int) -> None:
        self.optimizer.zero_grad()
        self.model(self.batches[batch]).square().mean().backward()
        self.optimizer.step()
        self.scheduler.step()

    def weights(self) -> list[torch.Tensor]:
        return [p.detach().clone() for p in self.model.parameters()]


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_training_goes_on_as_from_the_snapshot(tmp_path: Path, where: Literal["memory", "disk"]) -> None:
    run, snapshots = Run(), Snapshots(where, tmp_path)
    for i in range(3):
        run.step(i)
    assert snapshots.keep(3, *run.parts(), 1.0)
    run.step(10)
    run.step(11)
    expected = run.weights()
    rate = run.scheduler.get_last_lr()
    with torch.no_grad():
        run.model[0].weight[1, 2] = NAN
    run.optimizer.state[run.model[1].weight]["exp_avg"].fill_(NAN)
    run.scaler.update(1.0)
    assert snapshots.helps(run.named, run.optimizer)
    assert snapshots.restore(*run.parts(), 1.0) == 3
    assert run.scaler.get_scale() == 512.0 and run.scheduler.last_epoch == 3
    assert not snapshots.helps(run.named, run.optimizer)
    run.step(10)
    run.step(11)
    assert all(torch.equal(a, b) for a, b in zip(run.weights(), expected, strict=True))
    assert run.scheduler.get_last_lr() == rate
    assert (tmp_path / "snapshot" / "state.pt").exists() == (where == "disk")
    snapshots.discard()
    assert not (tmp_path / "snapshot").exists()


def test_a_snapshot_can_be_gone_back_to_again_and_again(tmp_path: Path) -> None:
    run, snapshots = Run(), Snapshots("memory", tmp_path)
    run.step(0)
    snapshots.keep(1, *run.parts(), 1.0)
    start = run.weights()
    for _ in range(3):
        run.step(1)
        snapshots.restore(*run.parts(), 1.0)
        assert all(torch.equal(a, b) for a, b in zip(run.weights(), start, strict=True))


def test_the_rate_backs_off_for_the_rest_of_the_schedule_and_a_later_snapshot_knows(tmp_path: Path) -> None:
    run, plain, snapshots = Run(), Run(), Snapshots("memory", tmp_path)
    snapshots.keep(0, *run.parts(), 1.0)
    snapshots.restore(*run.parts(), 0.5)
    for i in range(4):
        assert run.scheduler.get_last_lr()[0] == pytest.approx(0.5 * plain.scheduler.get_last_lr()[0])
        assert run.optimizer.param_groups[0]["lr"] == pytest.approx(run.scheduler.get_last_lr()[0])
        run.step(i)
        plain.step(i)
    snapshots.keep(4, *run.parts(), 0.5)
    snapshots.restore(*run.parts(), 0.25)
    assert run.scheduler.get_last_lr()[0] == pytest.approx(0.25 * plain.scheduler.get_last_lr()[0])


def test_a_broken_state_does_not_replace_a_sound_one_but_the_first_is_kept_as_it_is(tmp_path: Path) -> None:
    run, snapshots = Run(), Snapshots("memory", tmp_path)
    run.step(0)
    snapshots.keep(1, *run.parts(), 1.0)
    run.optimizer.state[run.model[0].weight]["exp_avg_sq"][0, 0] = float("inf")
    assert not snapshots.keep(2, *run.parts(), 1.0) and snapshots.step == 1
    with torch.no_grad():
        run.model[0].weight[0, 0] = NAN
    late = Snapshots("memory", tmp_path)
    assert late.keep(2, *run.parts(), 1.0)
    assert not late.helps(run.named, run.optimizer), "it holds the same broken weight"


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_it_travels_with_a_checkpoint(tmp_path: Path, where: Literal["memory", "disk"]) -> None:
    run, snapshots = Run(), Snapshots(where, tmp_path / "a")
    run.step(0)
    snapshots.keep(1, *run.parts(), 1.0)
    (tmp_path / "checkpoint-9").mkdir()
    snapshots.save(tmp_path / "checkpoint-9")
    start, state = run.weights(), copy.deepcopy(run.optimizer.state_dict())
    resumed = Snapshots(where, tmp_path / "b")
    resumed.load(tmp_path / "checkpoint-8")
    assert resumed.step is None
    resumed.load(tmp_path / "checkpoint-9")
    other = Run()
    other.step(5)
    assert resumed.restore(*other.parts(), 1.0) == 1
    assert all(torch.equal(a, b) for a, b in zip(other.weights(), start, strict=True))
    for key, value in state["state"].items():
        assert all(torch.equal(v, other.optimizer.state_dict()["state"][key][k]) for k, v in value.items())


def test_broken_elements_are_counted() -> None:
    values = [torch.tensor([1.0, NAN, float("inf")]), torch.full((3,), 1e30), torch.zeros(0), torch.ones(2).half()]
    assert count_broken(values) == 2 and count_broken([]) == 0
    assert count_broken([torch.tensor([float("-inf")], dtype=torch.float16)]) == 1
