"""Whether a curve swings with a period, and whether that period has a name (DESIGN 7.7).

Points are evenly spaced; periods are in points and need not be whole. A residual has shape (n,), NaN = not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


def alarm(points: float) -> float:
    """p of one named period below which it is one, in a curve of so many points: 5e-4 to 60 points, 1e-6 from 450 on.

    `max(1e-6, 5e-4 (60 / n)^3)`: the longer the curve, the more a swing that matters stands out, and the more a trend
    that was not taken out fully stands out too. Simulated: in white and log-normal (sigma 0.5) noise
    0.06 % of names or fewer are found, in AR(1) noise (0.3) 0.2 %, both at 60 points; none in thousands at 1,000. Sines
    of 1.5 standard deviations, 60 points, periods of 5 to 15: 99.5 % in white, 98.8 % in log-normal, 97.5 % in AR(1)
    noise; from 200 points on all of them, periods of 4 to n / 5.
    """
    return float(max(1e-6, 5e-4 * min(60 / max(points, 1.0), 1.0) ** 3))


LEAST_CYCLES = 2.5
"""Fewer swings than this cannot be told from a trend."""

_STARTS = (0.01, 0.03, 0.1, 0.3)
"""Decay times of the exponentials in the trend, as shares of the curve: a steep start is one or a mixture of them."""

_MOST_MEANS = 2000
"""The trend is fitted to at most so many block means."""

_FAR = 4.0
"""Points further out than this many robust standard deviations are pulled in: single spikes have no period."""

_STEP_CYCLES = 6.0
"""With fewer swings a single step in the level may look like one."""

_NEAR = 2
"""Frequency steps next to the tested one that a line of it may leak into."""

_WIDE = 25
"""Frequency steps to either side that make the local noise floor."""


def detrended(loss: ArrayLike) -> NDArray[np.float64]:
    """The curve less its trend, shape (n,); NaN where the loss is not finite.

    Trend: a parabola and exponentials that decay within 1, 3, 10 and 30 % of the curve, fitted together by least
    squares with the outliers held down (Huber 1964, at 2 robust standard deviations). None of these can follow a sine
    of 4 cycles or more: it keeps at least 80 % of its variance. Fewer than 12 finite points lose their mean only.
    """
    values = np.asarray(loss, dtype=np.float64)
    out = np.full(values.shape, np.nan)
    at = np.flatnonzero(np.isfinite(values))
    if not len(at):
        return out
    y = values[at] - np.median(values[at])
    if len(at) < 12:
        out[at] = y - y.mean()
        return out
    x = (at - at[0]) / (at[-1] - at[0])
    size = -(-len(at) // _MOST_MEANS)
    means_x, means_y = _means(x, size), _means(y, size)
    basis = _basis(means_x)
    weight = np.ones(len(means_y))
    fit: NDArray[np.float64] = np.zeros(basis.shape[1])
    for _ in range(8):
        heavy = basis * weight[:, None]
        # Short curves leave the fastest exponential one point: the smallest solution will do.
        fit = np.asarray(np.linalg.lstsq(basis.T @ heavy, heavy.T @ means_y, rcond=1e-13)[0], dtype=np.float64)
        off = np.abs(means_y - basis @ fit)
        scale = max(1.4826 * float(np.median(off)), 1e-300)
        weight = np.minimum(1.0, 2.0 * scale / np.maximum(off, 1e-300))
    out[at] = y - _basis(x) @ fit
    return out


class Fisher(NamedTuple):
    """The loudest frequency of a residual; NaN where it cannot be told."""

    g: float
    """Its share of the variance."""

    p: float
    """Chance of such a share in white noise."""

    period: float
    """In points."""


def fishers_g(residual: ArrayLike) -> Fisher:
    """`g = max I / sum I` over the m Fourier frequencies; `P(g > x) = sum_j (-1)^{j-1} C(m, j) (1 - j x)_+^{m-1}`.

    Fisher 1929. Unknown points count as the mean. White noise is what it tests: on noise that depends on its
    neighbours p is far too small, which `named_periods` is not. NaN below 6 known points or where nothing varies.
    """
    e = _clean(residual)
    m = (len(e) - 1) // 2
    nan = float("nan")
    if m < 2 or not e.any():
        return Fisher(nan, nan, nan)
    power = np.abs(np.fft.rfft(e)[1 : m + 1]) ** 2
    loudest = int(np.argmax(power))
    g = float(power[loudest] / power.sum())
    return Fisher(g, _fisher_p(g, m), len(e) / (loudest + 1))


class Period(NamedTuple):
    """What a residual does at one period."""

    period: float
    """In points."""

    power: float
    """Power there / noise floor, the mean of both over the harmonics; 1 on average in noise."""

    amplitude: float
    """Of the sine, in standard deviations of what is left without it."""

    p: float
    """Chance of such a power in noise, for this period alone; `alarm` is the threshold."""

    adjusted: float
    """p times the number of periods tested (Bonferroni), at most 1."""

    cycles: float
    """Periods in the curve."""

    @property
    def found(self) -> bool:
        """p below `alarm` of the curve's points."""
        return self.p < alarm(self.cycles * self.period)


def named_periods(
    residual: ArrayLike,
    periods: Mapping[str, float],
    steps_per_point: float = 1.0,
    harmonics: int = 1,
    white: bool = False,
) -> dict[str, Period]:
    """Power at each named period, loudest first; periods that cannot be tested are left out.

    `periods` are in steps where `steps_per_point` says how many steps a point stands for, else in points. Testable:
    more than 2 points and at least 2.5 cycles. `harmonics` (1 to 3) sums the power at the period and its whole parts,
    as far as they are longer than 2 points: for what comes as a stroke once a period.

    The noise floor is the largest of three, so that coloured noise, a step or a slow drift make no line: the mean
    power of the 25 frequencies on both sides, that of the side nearer to frequency 0, and an AR(1) fit to the residual
    without the tested sines; the frequencies next to the tested one are left out, since a line leaks into them. Then
    `p = (1 + T / m)^-m` for power T and m frequencies in the floor, F(2, 2m); F(2h, 2m) for h harmonics. `white` takes
    the variance of the whole residual for the floor instead. Below 6 cycles p is 1 where a single step in the level
    explains more than 0.38 of what the sine does (a sine of 2.5 cycles or more leaves a step a quarter at most).
    """
    from scipy.special import fdtrc

    e = _clean(residual)
    n, known = len(e), int(np.isfinite(np.asarray(residual, dtype=np.float64)).sum())
    testable = {name: float(p) / steps_per_point for name, p in periods.items() if np.isfinite(p) and p > 0}
    testable = {k: p for k, p in testable.items() if 1 / p < 0.5 - 0.5 / max(n, 1) and n / p >= LEAST_CYCLES}
    if not e.any() or known < 12:
        return {}
    step = _step_explains(e)
    found = {}
    for name, period in testable.items():
        lines = [h / period for h in range(1, harmonics + 1) if h / period < 0.5 - 0.5 / n]
        left = e - _sines(e, lines)
        sd = float(np.sqrt(left @ left / max(known - 2 * len(lines), 1)))
        ratios, counts, amplitude, explained = [], [], 0.0, 0.0
        for f in lines:
            turn = np.exp(-2j * np.pi * f * np.arange(n))
            size = float(np.abs(e @ turn))
            power = size**2 / known
            floor, m = (
                (sd**2, known // 2) if white else _floor(np.abs(np.fft.fft(left * turn)) ** 2 / known, f, left, known)
            )
            ratios.append(power / max(floor, 1e-300))
            counts.append(m)
            explained += 2 * power
            amplitude = max(amplitude, 2 * size / known)
        total, m = float(np.sum(ratios)), int(min(counts))
        p = float(fdtrc(2 * len(lines), 2 * m, total / len(lines)))
        if n / period < _STEP_CYCLES and step > 0.38 * explained:
            p = 1.0
        found[name] = Period(
            period, total / len(lines), amplitude / max(sd, 1e-300), p, min(1.0, p * len(testable)), n / period
        )
    return dict(sorted(found.items(), key=lambda item: (item[1].p, -item[1].power)))


def _floor(power: NDArray[np.float64], f: float, left: NDArray[np.float64], known: int) -> tuple[float, int]:
    """(noise power at frequency f, how many ordinates it rests on); `power[j]` is the power at f + j / n."""
    n = len(left)
    j = np.arange(-_WIDE, _WIDE + 1)
    at = f + j / n
    # Below 1.5 cycles the trend was taken out; beyond half a cycle a point frequencies repeat.
    usable = (np.abs(j) >= _NEAR) & (at * n >= 1.5) & (at < 0.5)
    ordinates = power[j % n]
    floors, m = [_ar_floor(left, f, known)], n // 4
    if usable.any():
        floors.append(float(ordinates[usable].mean()))
        m = int(usable.sum())
    below = usable & (j < 0)
    if below.sum() >= 4:
        floors.append(float(ordinates[below].mean()))
    return max(floors), max(m, 2)


def _ar_floor(left: NDArray[np.float64], f: float, known: int) -> float:
    """Power at f of the AR(1) process that fits `left`."""
    square = float(left @ left)
    if square <= 0:
        return 0.0
    rho = float(np.clip(left[1:] @ left[:-1] / square, -0.95, 0.95))
    return square / known * (1 - rho * rho) / (1 + rho * rho - 2 * rho * float(np.cos(2 * np.pi * f)))


def _step_explains(e: NDArray[np.float64]) -> float:
    """Sum of squares that the best single step in the level explains."""
    k = np.arange(1, len(e))
    return float((np.cumsum(e)[:-1] ** 2 * len(e) / (k * (len(e) - k))).max())


def _sines(e: NDArray[np.float64], lines: list[float]) -> NDArray[np.float64]:
    """The least-squares fit of sines at the frequencies `lines`."""
    t = 2 * np.pi * np.arange(len(e))
    design = np.column_stack([g(f * t) for f in lines for g in (np.cos, np.sin)])
    fitted: NDArray[np.float64] = design @ np.linalg.solve(design.T @ design, design.T @ e)
    return fitted


def _clean(residual: ArrayLike) -> NDArray[np.float64]:
    """The residual with mean 0, outliers pulled in, and 0 where it is not known."""
    e = np.array(residual, dtype=np.float64)
    known = np.isfinite(e)
    if known.sum() < 6:
        return np.zeros_like(e)
    values = e[known]
    median = float(np.median(values))
    scale = 1.4826 * float(np.median(np.abs(values - median)))
    if scale > 0:
        values = np.clip(values, median - _FAR * scale, median + _FAR * scale)
    values = values - values.mean()
    # A constant: what is left is rounding.
    if np.abs(values).max() <= 1e-12 * max(abs(median), 1e-300):
        values = np.zeros_like(values)
    e[~known] = 0.0
    e[known] = values
    return e


def _fisher_p(g: float, m: int) -> float:
    from scipy.special import gammaln

    if m * np.exp(-m * g) > 20:
        return 1.0  # The sum below would cancel, and 1 - exp(-20) is 1.
    j = np.arange(1, min(int(1 / g), m, 80) + 1, dtype=np.float64)
    rest = 1 - j * g
    j, rest = j[rest > 0], rest[rest > 0]
    logs = gammaln(m + 1) - gammaln(j + 1) - gammaln(m - j + 1) + (m - 1) * np.log(rest)
    return float(np.clip(np.sum((-1.0) ** (j - 1) * np.exp(logs)), 0.0, 1.0))


def _means(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    if size == 1:
        return values
    starts = np.arange(0, len(values), size)
    return np.asarray(np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values))))


def _basis(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Trend functions at x in 0 .. 1, shape (len(x), functions)."""
    return np.column_stack([np.ones_like(x), x, x * x, *(np.exp(-x / tau) for tau in _STARTS)])
