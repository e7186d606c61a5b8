"""`stability.rollback`: the last state that was seen to be sound, in memory or on disk, and the way back to it."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from runner.stability.finite import all_finite

Named = Sequence[tuple[str, nn.Parameter]]


class Snapshots:
    """Keeps one snapshot of trainable weights, optimizer, scheduler and loss scale.

    Data position and step count are no part of it: after a roll-back they go forward. `writes` is False on processes
    that share another one's file.
    """

    def __init__(self, where: Literal["memory", "disk"], folder: Path, writes: bool = True):
        self.where = where
        self.path = folder / "snapshot" / "state.pt"
        self.writes = writes
        self.step: int | None = None
        """Optimizer steps taken before it; None while there is none."""

        self._held: dict[str, Any] | None = None

    def keep(self, step: int, named: Named, optimizer: Any, scheduler: Any, scaler: Any, rate_factor: float) -> bool:
        """Replace the snapshot by the present state, unless that holds values that are not finite; True if replaced.

        The very first one is kept as it is: a model may arrive with a broken weight that no row reaches. `rate_factor`
        is what earlier roll-backs made of the learning rate.
        """
        if self.step is not None and broken_values([p for _, p in named], optimizer):
            return False
        held = {
            "step": step,
            "weights": {name: p.detach().to("cpu", copy=True) for name, p in named},
            "optimizer": to_cpu(optimizer.state_dict()),
            "scheduler": copy.deepcopy(scheduler.state_dict()),
            "scaler": scaler.state_dict() if scaler is not None else None,
            "rate_factor": rate_factor,
        }
        self.step = step
        if self.where == "memory":
            self._held = held
        elif self.writes:
            write(held, self.path)
        return True

    def read(self) -> dict[str, Any]:
        """The snapshot. There has to be one."""
        if self._held is not None:
            return self._held
        held: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=False)
        return held

    def helps(self, named: Named, optimizer: Any) -> bool:
        """Whether weights or optimizer hold more broken values now than in the snapshot."""
        now = broken_values([p for _, p in named], optimizer)
        if not now:
            return False
        held = self.read()
        return now > count_broken([*held["weights"].values(), *tensors(held["optimizer"])])

    def restore(self, named: Named, optimizer: Any, scheduler: Any, scaler: Any, rate_factor: float) -> int:
        """Go back to it, with the learning rate times `rate_factor` since the start; returns its step."""
        held = self.read()
        with torch.no_grad():
            for name, parameter in named:
                parameter.copy_(held["weights"][name])
        optimizer.load_state_dict(copy.deepcopy(held["optimizer"]))
        scheduler.load_state_dict(copy.deepcopy(held["scheduler"]))
        if scaler is not None and held["scaler"] is not None:
            scaler.load_state_dict(held["scaler"])
        scale_rate(optimizer, scheduler, rate_factor / held["rate_factor"])
        step: int = held["step"]
        return step

    def discard(self) -> None:
        """Give back its memory and its place on the disk."""
        self._held = self.step = None
        if self.where == "disk" and self.writes:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def save(self, folder: Path) -> None:
        """Put it beside a checkpoint, so that a resumed run can go back as far as this one could."""
        if self.step is not None and self.writes:
            write(self.read(), folder / "snapshot.pt")

    def load(self, folder: Path) -> None:
        """Take the one beside a checkpoint, if it has one."""
        path = folder / "snapshot.pt"
        if not path.exists():
            return
        held = torch.load(path, map_location="cpu", weights_only=False)
        self.step = held["step"]
        if self.where == "memory":
            self._held = held
        elif self.writes:
            write(held, self.path)


def choose_place(bytes_needed: int, bytes_free: int) -> Literal["memory", "disk"]:
    """auto: in memory where the snapshot takes no more than a quarter of what is free."""
    return "memory" if bytes_needed <= bytes_free / 4 else "disk"


def free_memory() -> int:
    """Bytes of host memory that nobody uses."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def scale_rate(optimizer: Any, scheduler: Any, factor: float) -> None:
    """Multiply the learning rate by `factor`, now and for the rest of the schedule."""
    for group in optimizer.param_groups:
        group["lr"] *= factor
        if "initial_lr" in group:
            group["initial_lr"] *= factor
    inner = getattr(scheduler, "scheduler", scheduler)
    inner.base_lrs = [rate * factor for rate in inner.base_lrs]
    inner._last_lr = [rate * factor for rate in inner._last_lr]


def write(content: dict[str, Any], path: Path) -> None:
    """`torch.save` beside the target, then rename: a crash never leaves half a snapshot under the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        torch.save(content, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def to_cpu(tree: Any) -> Any:
    """A copy of nested dicts and lists with every tensor copied to the CPU."""
    if torch.is_tensor(tree):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, dict):
        return {key: to_cpu(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(to_cpu(value) for value in tree)
    return copy.deepcopy(tree)


def tensors(tree: Any) -> list[Tensor]:
    """Every floating-point tensor in nested dicts and lists."""
    if torch.is_tensor(tree):
        return [tree] if tree.is_floating_point() else []
    if isinstance(tree, dict):
        return [t for value in tree.values() for t in tensors(value)]
    return [t for value in tree for t in tensors(value)] if isinstance(tree, list | tuple) else []


def count_broken(values: Sequence[Tensor]) -> int:
    """Elements that are NaN or infinite; the elements are looked at only where a tensor's norm is not finite."""
    having = [v.detach() for v in values if v.numel()]
    return sum(int((~torch.isfinite(v)).sum()) for v, ok in zip(having, all_finite(having), strict=True) if not ok)


def broken_values(parameters: Sequence[nn.Parameter], optimizer: Any) -> int:
    """Elements of weights and optimizer state that are not finite."""
    inner = getattr(optimizer, "optimizer", optimizer)
    return count_broken([*parameters, *tensors(list(inner.state.values()))])
