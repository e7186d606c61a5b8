"""The learning rate as it was applied: how much of it the run got, and whether that is what was planned.

All arrays have shape (n,), points in the order of the steps; the rate is the one the log shows. Points may be several
steps apart: shares are shares of the run's steps, each point standing for the steps that led to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runner.signals.smooth import thin

SPEEDS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 3, 1 / 2, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 64)
"""How many schedule steps an optimizer step may have cost: 1 is right, n for a schedule that every process advances,
or that is advanced per micro-batch; below 1 where it only moves every so many steps."""

_TOP = 0.999
"""A rate of at least this share of the peak is at the peak: logs round."""


class Applied(NamedTuple):
    """One learning-rate curve in numbers; NaN where there is no point or the rate is 0 throughout."""

    points: int
    """Points with a finite rate."""

    peak: float
    """Largest rate seen, or the planned one if that was given and is larger."""

    integral: float
    """sum(lr) / (peak x steps): 1 = constant at the peak, 0.5 = linear decay (or a warm-up that never ends)."""

    warmup: float
    """Share of the planned steps until the largest rate is first reached; 0 for a rate that starts there."""

    zero: float
    """Share of the points at exactly 0."""

    zero_throughout: bool
    constant: bool
    """All rates are equal, and not 0."""

    still_rising: bool
    """The last rate is the largest and was reached after more than 80 % of the planned steps."""

    end: float
    """Last rate / peak: 0 = decayed fully."""

    restarts: tuple[int, ...]
    """Indices after the peak where the rate turns up again and gains at least 10 % of the peak."""

    jumps: tuple[int, ...]
    """Indices where the rate is more than 5 times larger or smaller than at the point before and differs by more than
    10 % of the peak, other than on the way up to the peak; none below 10 points, where any decay is steep."""


def applied(
    rate: ArrayLike, step: ArrayLike | None = None, max_steps: int | None = None, peak: float | None = None
) -> Applied:
    """Measures of a rate curve; points with a rate that is not finite are left out.

    `step` are the steps of the points (None: evenly spaced), `max_steps` the planned end (None: the last point),
    `peak` the planned learning rate: without it a warm-up that never ends cannot be told from its own top, and
    `integral` is relative to the largest rate seen. A log that simply stops during its warm-up is `still_rising` only
    if `max_steps` is not given. Raises ValueError where rate and step differ in shape.
    """
    rates, steps = _points(rate, step)
    n, nan = len(rates), float("nan")
    if not n:
        return Applied(0, nan, nan, nan, nan, False, False, False, nan, (), ())
    seen = float(rates.max())
    zero = float(np.mean(rates == 0))
    if seen <= 0:
        return Applied(n, nan, nan, nan, zero, zero == 1, False, False, nan, (), ())
    top = max(seen, peak or 0.0)
    weight = np.diff(steps, prepend=0.0)
    if (weight <= 0).any():
        weight = np.ones(n)
    at = int(np.argmax(rates >= _TOP * seen))
    planned = float(max(max_steps or 0, steps[-1]))
    constant = bool(rates.min() >= seen * (1 - 1e-6))
    warmup = 0.0 if at == 0 else float(steps[at]) / planned
    change = np.diff(rates)
    restarts = _rises(rates, at, 0.1 * seen)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = rates[1:] / rates[:-1]
    both = (rates[1:] > 0) & (rates[:-1] > 0)
    leaps = (n >= 10) & both & ((factor > 5) | (factor < 0.2)) & (np.abs(change) > 0.1 * seen)
    leaps[:at] &= change[:at] < 0
    return Applied(
        n,
        top,
        float(rates @ weight / (top * weight.sum())),
        warmup,
        zero,
        False,
        constant,
        not constant and bool(rates[-1] >= _TOP * seen) and warmup > 0.8,
        float(rates[-1]) / top,
        restarts,
        tuple(int(i) + 1 for i in np.flatnonzero(leaps)),
    )


def planned(name: str, step: ArrayLike, warmup: float, max_steps: int, peak: float) -> NDArray[np.float64] | None:
    """The rate that a scheduler gives at each step, shape of `step`; None for a name that is not known here.

    linear, cosine, constant, constant_with_warmup as transformers.optimization defines them: `step` counts schedule
    steps from 0, `warmup` steps rise linearly from 0, and a cosine that goes on beyond its end comes up again.
    """
    s = np.asarray(step, dtype=np.float64)
    rising = s / max(1.0, warmup)
    rest = (s - warmup) / max(1.0, max_steps - warmup)
    if name == "linear":
        factor = np.clip(1 - rest, 0.0, None)
    elif name == "cosine":
        factor = np.clip(0.5 * (1 + np.cos(np.pi * rest)), 0.0, None)
    elif name in ("constant", "constant_with_warmup"):
        factor = np.ones_like(s)
        if name == "constant":
            return peak * factor
    else:
        return None
    return peak * np.where(s < warmup, rising, factor)


class Plan(NamedTuple):
    """A rate curve against the scheduler it should have had."""

    first_off: int | None
    """First step whose rate differs from the plan by more than 1 % of the peak; None where none does."""

    worst: float
    """Largest difference / peak."""

    speed: float | None
    """Schedule steps per optimizer step that explain the curve within 1 % of the peak: 1 = as planned. None where no
    speed does, or where several do (a curve too short to tell)."""

    peak: float
    """The planned peak; where it was not given, the one that fits the curve best."""


def against_plan(
    rate: ArrayLike, step: ArrayLike, name: str, warmup: float, max_steps: int, peak: float | None = None
) -> Plan | None:
    """The applied rate against the planned one; None for an unknown scheduler, no point, or a rate of 0 throughout.

    `step` counts optimizer steps from 1. A log may show the rate of that step or already the next one's (versions of
    transformers differ): the better of the two counts. Raises ValueError where rate and step differ in shape.
    """
    rates, steps = _points(rate, step)
    if not len(rates) or rates.max() <= 0 or planned(name, steps, warmup, max_steps, 1.0) is None:
        return None
    worst, off, top = _fit(rates, steps, 1.0, name, warmup, max_steps, peak)
    few = thin(len(rates), 2000)
    fits = {speed: _fit(rates[few], steps[few], speed, name, warmup, max_steps, peak) for speed in SPEEDS}
    good = [speed for speed, fit in fits.items() if (worst if speed == 1 else fit[0]) <= 0.01]
    late = np.flatnonzero(off > 0.01)
    speed = 1.0 if 1 in good else float(good[0]) if len(good) == 1 else None
    return Plan(int(steps[late[0]]) if len(late) else None, worst, speed, top)


def _fit(
    rates: NDArray[np.float64],
    steps: NDArray[np.float64],
    speed: float,
    name: str,
    warmup: float,
    max_steps: int,
    peak: float | None,
) -> tuple[float, NDArray[np.float64], float]:
    """(worst, all differences, peak), differences relative to the peak, under the better of the two countings."""
    found: list[tuple[float, NDArray[np.float64], float]] = []
    for shift in (0.0, 1.0):
        shape = planned(name, np.floor((steps - shift) * speed + 1e-9), warmup, max_steps, 1.0)
        assert shape is not None
        top = peak if peak is not None else float(rates @ shape) / max(float(shape @ shape), 1e-300)
        if top <= 0:
            top = float(rates.max())
        off = np.abs(rates - top * shape) / top
        found.append((float(off.max()), off, top))
    # By the share of points that are off first: a late fault must not decide how the early steps are counted.
    return min(found, key=lambda fit: (float(np.mean(fit[1] > 0.01)), fit[0]))


def _rises(rates: NDArray[np.float64], start: int, least: float) -> tuple[int, ...]:
    """Indices after `start` where a row of rises that gains `least` or more begins."""
    after = rates[start:]
    up = np.concatenate([[False], np.diff(after) > 0, [False]])
    edges = np.diff(up.astype(np.int8))
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    gain = after[ends] - after[begins] if len(begins) else np.zeros(0)
    return tuple(int(i) + start + 1 for i in begins[gain >= least])


def _points(rate: ArrayLike, step: ArrayLike | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rates = np.asarray(rate, dtype=np.float64)
    steps = np.arange(1, len(rates) + 1, dtype=np.float64) if step is None else np.asarray(step, dtype=np.float64)
    if rates.shape != steps.shape:
        raise ValueError(f"rate has shape {rates.shape}, step {steps.shape}: they are not the same points")
    kept = np.isfinite(rates)
    return rates[kept], steps[kept]
