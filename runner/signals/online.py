"""Statistics of a run while it goes on, in constant memory.

Each class takes one value per step, answers in O(size) at most, and has a counterpart on whole arrays that its test
compares it with. `state()` is valid JSON (floats by `runner.runfolder.to_json`), and `load` of it goes on as if there
had been no break. A value that is not finite is passed over unless a class says otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

MAD_TO_SD = 1.4826
"""Median absolute deviation to standard deviation, for Gaussian values."""


class Level:
    """Exponential moving average of the finite values, corrected for its start, and the lowest it has been.

    `smooth.ema` value by value."""

    def __init__(self, half_life: float, settled: float | None = None):
        """`half_life` in values: after so many the weight of a value is half. `settled`: values before `lowest`."""
        self.decay = 0.5 ** (1.0 / half_life)
        self._total = self._weight = 0.0
        self.count = 0
        """Finite values so far."""

        self.lowest = math.inf
        """The least average since `settled` values (None = `half_life`) were seen; infinity before."""

        self._settled = half_life if settled is None else settled

    def update(self, value: float) -> None:
        """Take one value."""
        if not math.isfinite(value):
            return
        self._total = self.decay * self._total + (1 - self.decay) * value
        self._weight = self.decay * self._weight + (1 - self.decay)
        self.count += 1
        if self.count >= self._settled:
            self.lowest = min(self.lowest, self.value)

    @property
    def value(self) -> float:
        """The average; NaN before the first value."""
        return self._total / self._weight if self._weight > 0 else math.nan

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        lowest = self.lowest if math.isfinite(self.lowest) else None
        return {"total": self._total, "weight": self._weight, "count": self.count, "lowest": lowest}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._total, self._weight, self.count = float(state["total"]), float(state["weight"]), int(state["count"])
        self.lowest = math.inf if state["lowest"] is None else float(state["lowest"])


class Ring:
    """The last `size` finite values, for medians that single outliers cannot move."""

    def __init__(self, size: int):
        self.size = size
        self.values: list[float] = []

    def update(self, value: float) -> float | None:
        """Take one value; the one that fell out, None while there was room."""
        if not math.isfinite(value):
            return None
        self.values.append(float(value))
        return self.values.pop(0) if len(self.values) > self.size else None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def median(self) -> float:
        """NaN while empty."""
        return float(np.median(self.values)) if self.values else math.nan

    @property
    def mean(self) -> float:
        """NaN while empty; over flags, the running share."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def spread(self) -> float:
        """`1.4826 MAD`, the standard deviation of Gaussian values; NaN below two values."""
        if len(self.values) < 2:
            return math.nan
        values = np.asarray(self.values)
        return MAD_TO_SD * float(np.median(np.abs(values - np.median(values))))

    def state(self) -> list[float]:
        """For a checkpoint."""
        return list(self.values)

    def load(self, state: list[float]) -> None:
        """Go on from `state`."""
        self.values = [float(x) for x in state][-self.size :]


class DifferenceNoise:
    """Standard deviation of the noise around a slow trend, from the last differences of successive values.

    `median |d| / (0.6745 sqrt 2)`: a difference of two independent values of deviation sd has sqrt 2 times it, and the
    trend, small between neighbours, drops out (von Neumann 1941; the median in place of the mean square so that a few
    jumps do not widen it). NaN before `least` differences.
    """

    def __init__(self, size: int = 64, least: int = 8):
        self.ring = Ring(size)
        self.least = least
        self._before: float | None = None

    def update(self, value: float) -> None:
        """Take one value."""
        if not math.isfinite(value):
            return
        if self._before is not None:
            self.ring.update(abs(value - self._before))
        self._before = float(value)

    @property
    def sd(self) -> float:
        """In the unit of the values."""
        return MAD_TO_SD * self.ring.median / math.sqrt(2) if len(self.ring) >= self.least else math.nan

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"ring": self.ring.state(), "before": self._before}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.ring.load(state["ring"])
        self._before = None if state["before"] is None else float(state["before"])


class Cusum:
    """One-sided cumulative sum (Page 1954): `S = max(0, S + min(z, cap) - drift)`.

    Of z-scores with mean 0 it stays near 0, and of ones whose mean has risen above `drift` it climbs. `cap` bounds what
    one outlier can add. A value that is not finite adds `cap` where it is +inf or NaN.
    """

    def __init__(self, drift: float, cap: float):
        self.drift = drift
        self.cap = cap
        self.value = 0.0

    def update(self, z: float) -> float:
        """Take one z-score; the sum."""
        self.value = max(0.0, self.value + (self.cap if math.isnan(z) else min(z, self.cap)) - self.drift)
        return self.value

    def state(self) -> float:
        """For a checkpoint."""
        return self.value

    def load(self, state: float) -> None:
        """Go on from `state`."""
        self.value = float(state)


class Growth:
    """How far a positive quantity (a gradient norm) has grown: the last few values against those before, as factors.

    All on a log scale, since norms vary by factors. The reference is the median of up to `long` values that came before
    the last `short` ones, so that growth does not lift its own reference at once.
    """

    def __init__(self, short: int = 8, long: int = 64, least: int = 8):
        """`least` values have to lie in each part before anything is said."""
        self.short, self.long, self.least = Ring(short), Ring(long), least
        self.level = Level(float(long) / 4)
        """Slow average of the logarithms, whose lowest value is how small the norm has been."""

    def update(self, value: float) -> None:
        """Take one value; one that is not above 0 or not finite is passed over."""
        if not (math.isfinite(value) and value > 0):
            return
        fell = self.short.update(math.log(value))
        self.level.update(math.log(value))
        if fell is not None:
            self.long.update(fell)

    def parts(self) -> tuple[list[float], list[float]]:
        """(logarithms before, last ones); with fewer than twice `short` values, the first half and the second."""
        before, last = self.long.values, self.short.values
        if len(before) >= len(last):
            return before, last
        both = [*before, *last]
        half = (len(both) + 1) // 2
        return both[:half], both[half:]

    @property
    def ratio(self) -> float:
        """Median of the last over median of those before; NaN while either has fewer than `least`."""
        before, last = self.parts()
        if min(len(before), len(last)) < self.least:
            return math.nan
        return _factor(float(np.median(last)) - float(np.median(before)))

    @property
    def z(self) -> float:
        """`log ratio` in standard errors of the two medians (1.25 sd / sqrt n); NaN where `ratio` is.

        The scatter is that of the values before, and at least 0.35: few of them happen to lie close together.
        """
        before, last = self.parts()
        if min(len(before), len(last)) < self.least:
            return math.nan
        held = np.asarray(before)
        spread = max(MAD_TO_SD * float(np.median(np.abs(held - np.median(held)))), 0.35)
        error = 1.25 * spread * math.sqrt(1 / len(before) + 1 / len(last))
        return (float(np.median(last)) - float(np.median(held))) / error

    @property
    def above_lowest(self) -> float:
        """Median of the last over the lowest slow average; NaN while that is not known."""
        if not math.isfinite(self.level.lowest) or len(self.short) < self.least:
            return math.nan
        return _factor(self.short.median - self.level.lowest)

    def of(self, value: float) -> float:
        """`value`, not yet taken, over the median of all values held; NaN where there are none."""
        held = [*self.long.values, *self.short.values]
        if not held or not value > 0:
            return math.nan
        return _factor(math.log(value) - float(np.median(held))) if math.isfinite(value) else math.inf

    @property
    def slope(self) -> float:
        """Least-squares slope of the last logarithms per value: 0.1 = 10 % a step; NaN below `least` values."""
        y = np.asarray(self.short.values)
        if len(y) < max(self.least, 2):
            return math.nan
        x = np.arange(len(y)) - (len(y) - 1) / 2
        return float(x @ y / (x @ x))

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"short": self.short.state(), "long": self.long.state(), "level": self.level.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.short.load(state["short"])
        self.long.load(state["long"])
        self.level.load(state["level"])


def _factor(log_ratio: float) -> float:
    return math.exp(min(log_ratio, 700.0))
