"""Whether the loss or the rate jumps where a run was resumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

_FAR = 4.0
"""Neighbours further from the middle of their side than this many standard deviations are pulled in: spikes."""

_LEAST = 3
"""Points needed on each side."""


class Jump(NamedTuple):
    """The curve at one place, before it against after it; NaN where a side has fewer than 3 points."""

    point: int
    """Index of the first point after the place."""

    jump: float
    """Level after - level before, at the place, without the trend of the neighbours (unit of the loss)."""

    z: float
    """jump / its standard error: t distribution with `freedom` degrees, so with 20 neighbours 4 comes 1 time in
    1,000 and 6 1 in 70,000, and somewhat more often where losses have tails."""

    sd: float
    """Noise of a single point among the neighbours."""

    freedom: int

    rate_factor: float
    """Learning rate after / before; NaN where unknown or before is 0."""


def jumps(loss: ArrayLike, at: Sequence[int], rate: ArrayLike | None = None, width: int = 10) -> list[Jump]:
    """The jump at each index of `at`, the first points after a resume; out of range ones are left out.

    `loss` and `rate` have shape (n,), points in the order of the steps. `loss = a + b t + jump [t >= index]` is fitted
    by least squares to the `width` finite points on either side (not beyond the next index of `at`), after outliers
    were pulled in to 4 robust standard deviations from the middle of their side. Residuals give the noise, n - 3
    degrees of freedom. A level that comes down again within `width` points (an optimizer that lost its state) shows as
    a smaller jump. Raises ValueError where loss and rate differ in shape or width is below 3.
    """
    values = np.asarray(loss, dtype=np.float64)
    rates = np.full(values.shape, np.nan) if rate is None else np.asarray(rate, dtype=np.float64)
    if rates.shape != values.shape:
        raise ValueError(f"loss has shape {values.shape}, rate {rates.shape}: they are not the same points")
    if width < _LEAST:
        raise ValueError(f"width {width} has to be at least {_LEAST}")
    places = sorted({int(i) for i in at if 0 < i < len(values)})
    borders = [0, *places, len(values)]
    known = np.flatnonzero(np.isfinite(values))
    found = []
    for place, start, end in zip(places, borders[:-2], borders[2:], strict=True):
        low, middle, high = np.searchsorted(known, [start, place, end])
        before, after = known[max(low, middle - width) : middle], known[middle : min(high, middle + width)]
        jump, z, sd, freedom = _fit(values, before, after)
        found.append(Jump(place, jump, z, sd, freedom, _factor(rates[place - 1], rates[place])))
    return found


def _fit(
    values: NDArray[np.float64], before: NDArray[np.int64], after: NDArray[np.int64]
) -> tuple[float, float, float, int]:
    """(jump, z, sd, degrees of freedom)."""
    nan = float("nan")
    freedom = len(before) + len(after) - 3
    if min(len(before), len(after)) < _LEAST:
        return nan, nan, nan, max(freedom, 0)
    changes = np.concatenate([np.diff(values[before]), np.diff(values[after])])
    fall = float(np.median(changes / np.concatenate([np.diff(before), np.diff(after)])))
    noise = 1.4826 * float(np.median(np.abs(changes - np.median(changes)))) / np.sqrt(2.0)
    sides = []
    for side in (before, after):
        trend = fall * (side - side[0])
        level = values[side] - trend
        middle = float(np.median(level))
        sides.append(trend + (np.clip(level, middle - _FAR * noise, middle + _FAR * noise) if noise > 0 else level))
    at = np.concatenate([before, after]).astype(np.float64)
    y = np.concatenate(sides)
    centre = (before[-1] + after[0]) / 2
    design = np.column_stack([np.ones_like(at), (at - centre) / len(at), np.arange(len(at)) >= len(before)])
    inverse = np.linalg.inv(design.T @ design)
    fit = inverse @ (design.T @ y)
    left = y - design @ fit
    sd = float(np.sqrt(left @ left / freedom))
    jump = float(fit[2])
    if sd <= 1e-12 * max(float(np.abs(y).max()), 1e-300):
        # Nothing jitters: any jump that is more than rounding counts.
        moved = abs(jump) > 1e-9 * max(float(np.abs(y).max()), 1e-300)
        return jump, float(np.copysign(np.inf, jump)) if moved else 0.0, sd, freedom
    return jump, jump / (sd * float(np.sqrt(inverse[2, 2]))), sd, freedom


def _factor(before: float, after: float) -> float:
    return float(after / before) if np.isfinite(before) and np.isfinite(after) and before > 0 else float("nan")
