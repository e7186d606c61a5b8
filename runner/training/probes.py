"""Probes: measurements that cost extra forward passes and change nothing.

Around an update: the loss of its own batch before, halfway and after (line probe, same-batch replay), and the share of
weights it left as they were. Beside it: a fixed set of examples at the start, every k steps, and at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from runner.config.schema import Probes as Intervals
from runner.data.mixing import generator
from runner.runfolder import to_json
from runner.signals.line import line_probe
from runner.signals.paired import paired_change

SMALL = 2**26
"""Trainable elements below which the copy of the weights stays on their device (a LoRA adapter: 256 MiB in fp32)."""


class Measurable(Protocol):
    """What the probes need of a trainer. The first two are collective; none changes weights, gradients or RNG."""

    def objective(self) -> float:
        """Loss of the current step's global batch at the weights as they are, dropout off."""

    def row_losses(self, dataset: Dataset) -> dict[str, tuple[float, int]]:
        """{row_id: (summed loss, supervised tokens)} of every row, dropout off."""

    def trainable(self) -> list[tuple[str, Any]]:
        """Names and parameters that train."""

    def is_world_process_zero(self) -> bool:
        """Whether this is the process that writes."""


@dataclass
class _Before:
    """What is remembered of the moment before an update."""

    loss: float
    """Objective at the old weights; NaN where no forward probe is due."""

    parameters: list[Tensor]
    weights: list[Tensor]
    """The old values of `parameters`."""

    reached: list[Tensor | None]
    """Which elements have a gradient other than zero; None for a parameter without one."""


class Probes:
    """Runs the probes that are due and hands each result on as a line of `probes.jsonl`.

    Every method but `state` and `load` is collective: all processes call it for the same step, counted from 1.
    """

    def __init__(
        self,
        probes: Intervals,
        trainer: Measurable,
        train: Dataset,
        validation: Dataset | None,
        seed: int,
        on_probe: Callable[[dict[str, Any]], None],
    ):
        """`train` and `validation` have the columns input_ids, labels, row_id, source, length.

        `on_probe` is called on the first process only, with one line of `probes.jsonl` (NaN still a float).
        """
        self.intervals, self.trainer, self.on_probe = probes, trainer, on_probe
        self.listen: Callable[[dict[str, Any]], None] = lambda line: None
        """Called with the same line on every process, for whoever decides by it: all have to decide alike."""

        self._before: _Before | None = None
        self._first: tuple[int, list[float]] | None = None
        self._last: int | None = None
        self.row_ids: list[str] = []
        self.held_out = False
        if probes.probe_set is not None:
            size = probes.probe_set_size
            self.held_out = validation is not None and len(validation) >= size
            data = validation if validation is not None and self.held_out else train
            self._rows = data.select(choose_rows(list(data["source"]), size, seed))
            self.row_ids = list(self._rows["row_id"])

    def start(self, step: int) -> None:
        """First measurement of the probe set, at `step` finished steps; none if a resumed run brought its own."""
        if self.intervals.probe_set is not None and self._first is None:
            self._measure_set(step)

    def finish(self, step: int) -> None:
        """Last measurement of the probe set, unless this very step has been measured."""
        if self.intervals.probe_set is not None and self._last != step:
            self._measure_set(step)

    def before_update(self, step: int) -> None:
        """The gradient of `step` is complete and will be taken: measure, and keep what `after_update` compares with."""
        self._before = None
        forward = due(self.intervals.line, step) or due(self.intervals.replay, step)
        lost = due(self.intervals.lost_updates, step)
        if not forward and not lost:
            return
        loss = self.trainer.objective() if forward else float("nan")
        parameters: list[Tensor] = []
        if lost or due(self.intervals.line, step):
            parameters = [p for _, p in self.trainer.trainable()]
        stay = sum(p.numel() for p in parameters) < SMALL
        with torch.no_grad():
            weights = [p.detach().to(p.device if stay else "cpu", copy=True) for p in parameters]
            reached: list[Tensor | None] = []
            for p in parameters if lost else ():
                reached.append(None if p.grad is None else (p.grad != 0).to(p.device if stay else "cpu"))
        self._before = _Before(loss, parameters, weights, reached)

    def cancel(self) -> None:
        """The step was not taken after all: forget what was kept."""
        self._before = None

    def after_update(self, step: int) -> None:
        """Right after `optimizer.step()`: measure what is due. The weights are the same bits before and afterwards."""
        before, self._before = self._before, None
        if before is not None:
            self._measure_update(step, before)
        every = self.intervals.probe_set
        # Not `step % every`: where the due step was skipped, the next one that is taken stands in.
        if every is not None and step // every > (self._last or 0) // every:
            self._measure_set(step)

    def state(self) -> dict[str, Any]:
        """The first measurement, for a checkpoint (valid JSON): a resumed run still compares with the true start."""
        if self._first is None:
            return {}
        step, losses = self._first
        return {"step": step, "last": self._last, "row_ids": self.row_ids, "losses": to_json(losses)}

    def load(self, state: dict[str, Any]) -> None:
        """Take over `state()` of the run that is resumed, before `start`.

        The first measurement of other rows (another size, seed or data) cannot be paired: `start` then takes a new one.
        """
        if state and self.row_ids == state["row_ids"]:
            self._first = int(state["step"]), [float(x) for x in state["losses"]]
            self._last = int(state["last"])

    def _measure_update(self, step: int, before: _Before) -> None:
        line, replay = due(self.intervals.line, step), due(self.intervals.replay, step)
        after = self.trainer.objective() if line or replay else float("nan")
        if replay:
            self._emit(step, "replay", before=before.loss, after=after)
        if due(self.intervals.lost_updates, step):
            lost, elements = lost_updates(before.parameters, before.weights, before.reached)
            names = sorted({str(p.dtype).removeprefix("torch.") for p in before.parameters})
            share = lost / elements if elements else float("nan")
            self._emit(step, "lost_updates", share=share, elements=elements, dtype="+".join(names))
        if line:
            with halfway(before.parameters, before.weights):
                half = self.trainer.objective()
            found = line_probe(before.loss, half, after)
            self._emit(step, "line", l0=before.loss, l_half=half, l1=after, a=found.a, h=found.h, s=found.s)

    def _measure_set(self, step: int) -> None:
        rows = self.trainer.row_losses(self._rows)
        sums = [rows[row_id] for row_id in self.row_ids]
        losses = [s / n if n else float("nan") for s, n in sums]
        change = None
        if self._first is None:
            self._first = step, losses
        else:
            found = paired_change(self._first[1], losses)
            change = {"since": self._first[0], "mean": found.mean, "se": found.se}
        self._last = step
        tokens = [n for _, n in sums]
        self._emit(
            step,
            "probe_set",
            row_ids=self.row_ids,
            losses=losses,
            tokens=tokens,
            change=change,
            held_out=self.held_out,
        )

    def _emit(self, step: int, probe: str, **values: Any) -> None:
        line = {"step": step, "probe": probe, **values}
        self.listen(line)
        if self.trainer.is_world_process_zero():
            self.on_probe(line)


def due(interval: int | None, step: int) -> bool:
    """Whether `step`, counted from 1, is one of every `interval`; never where that is None."""
    return interval is not None and step % interval == 0


def choose_rows(sources: Sequence[str], size: int, seed: int) -> list[int]:
    """`size` row indices in ascending order (all, if there are fewer), each source in proportion, off by less than one.

    Systematic sampling: the rows, shuffled within each source and sources one after the other, are taken at equal
    distances from a random start, so every row has the same chance.
    """
    rows = len(sources)
    if rows <= size:
        return list(range(rows))
    rng = generator(seed, "probe_set")
    _, code = np.unique(np.asarray(sources), return_inverse=True)
    shuffled = rng.permutation(rows)
    grouped = shuffled[np.argsort(code[shuffled], kind="stable")]
    picked = (np.arange(size) * rows + rng.integers(rows)) // size
    return [int(i) for i in np.sort(grouped[picked])]


@torch.no_grad()
def lost_updates(
    parameters: Sequence[Tensor], old: Sequence[Tensor], reached: Sequence[Tensor | None]
) -> tuple[int, int]:
    """(elements with the same weight as in `old`, elements) among those that `reached` says had a gradient.

    DESIGN 7.8: cast(w + du) == cast(w) in the dtype the weight is stored in. At learning rate 0 every update is lost.
    """
    counts = []
    for p, before, mask in zip(parameters, old, reached, strict=True):
        if mask is not None:
            mask = mask.to(p.device)
            counts.append(torch.stack([((p == before.to(p.device)) & mask).sum(), mask.sum()]))
    if not counts:
        return 0, 0
    # One transfer for all tensors, not one each.
    lost, elements = torch.stack([c.to(counts[0].device) for c in counts]).sum(dim=0).tolist()
    return lost, elements


@contextmanager
def halfway(parameters: Sequence[Tensor], old: Sequence[Tensor]) -> Iterator[None]:
    """Inside, each parameter is the middle between `old` and itself; afterwards the same bits as before.

    The storage of `old` is used up for the new values, so that no second copy of the weights is needed. The middle is
    rounded to the dtype of the parameter: where that has no value in between (bf16 and a small update), a line probe
    sees one of the ends.
    """
    swapped = 0
    try:
        with torch.no_grad():
            for p, kept in zip(parameters, old, strict=True):
                middle = kept.to(p.device).lerp(p, 0.5)
                kept.copy_(p)
                swapped += 1
                p.copy_(middle)
        yield
    finally:
        with torch.no_grad():
            for p, new in zip(parameters[:swapped], old[:swapped], strict=True):
                p.copy_(new)
