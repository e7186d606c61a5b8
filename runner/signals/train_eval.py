"""Train loss and held-out loss side by side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FACTORS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
"""What the train loss is multiplied with where accumulation steps or devices were not divided by."""


class TrainEval(NamedTuple):
    """Gap between held-out and train loss at the steps of the evaluations; NaN where it cannot be told."""

    step: NDArray[np.int64]
    """Steps of the evaluations, shape (m,)."""

    train: NDArray[np.float64]
    """Mean train loss of the points before each, shape (m,); NaN without a finite one."""

    gap: NDArray[np.float64]
    """eval - train, shape (m,)."""

    last: float
    """Last finite gap, nats."""

    ratio: float
    """Median of train / eval."""

    factor: float | None
    """The known factor (`FACTORS`) that the ratio is within 10 % of: 16 = the train loss is 16 times the eval loss,
    accumulation that nobody divided by; None = no factor. None below 1 is known: memorising does the same."""

    eval_not_finite: int
    """Evaluations that are NaN or infinite although the train loss beside them is finite."""

    first_not_finite: int | None
    """Step of the first of them."""

    growth: float
    """Slope of the gap, nats per step."""

    growth_se: float
    """Its standard error, from the scatter around the line; NaN below 3 finite gaps."""


def train_eval(
    train_step: ArrayLike, train_loss: ArrayLike, eval_step: ArrayLike, eval_loss: ArrayLike, most: int = 20
) -> TrainEval:
    """Compare both losses. Train points (n,) and evaluations (m,) in the order of their steps.

    The train loss of an evaluation is the mean of the finite points since the last one, up to and with its own step, at
    most `most` of them; where there is none (evaluated before the first point), of the next point within the distance
    of two evaluations. At least half of the ratios have to agree with a `factor`.
    Raises ValueError for pairs of different shape.
    """
    ts, tl = np.asarray(train_step, dtype=np.int64), np.asarray(train_loss, dtype=np.float64)
    es, el = np.asarray(eval_step, dtype=np.int64), np.asarray(eval_loss, dtype=np.float64)
    if ts.shape != tl.shape or es.shape != el.shape:
        raise ValueError(f"steps of shape {ts.shape} and {es.shape}, losses of {tl.shape} and {el.shape}")
    finite = np.isfinite(tl)
    ts, tl = ts[finite], tl[finite]
    train = _beside(ts, tl, es, most)
    beside = np.isfinite(train)
    bad = beside & ~np.isfinite(el)
    gap = np.where(beside & np.isfinite(el), np.where(np.isfinite(el), el, 0.0) - train, np.nan)
    both = np.isfinite(gap)
    nan = float("nan")
    ratios = train[both & (el > 0)] / el[both & (el > 0)]
    slope, se = _line(es[both].astype(np.float64), gap[both])
    return TrainEval(
        es,
        train,
        gap,
        float(gap[both][-1]) if both.any() else nan,
        float(np.median(ratios)) if len(ratios) else nan,
        _factor(ratios),
        int(bad.sum()),
        int(es[np.argmax(bad)]) if bad.any() else None,
        slope,
        se,
    )


def _beside(ts: NDArray[np.int64], tl: NDArray[np.float64], es: NDArray[np.int64], most: int) -> NDArray[np.float64]:
    """Mean train loss beside each evaluation, shape of `es`."""
    if not len(ts) or not len(es):
        return np.full(len(es), np.nan)
    end = np.searchsorted(ts, es, side="right")
    # Two evaluations at one step (several held-out sets in one list) see the same points.
    unique = np.unique(es)
    earlier = np.where(unique[np.searchsorted(unique, es) - 1] < es, unique[np.searchsorted(unique, es) - 1], -1)
    start = np.maximum(np.searchsorted(ts, earlier, side="right"), end - most)
    # None since the last evaluation (logged more rarely): the last point before.
    start = np.where((start == end) & (end > 0), end - 1, start)
    spacing = int(np.median(np.diff(unique))) if len(unique) > 1 else int(es[0])
    following = (end == 0) & (ts[0] - es <= spacing)
    end = np.where(following, 1, end)
    start = np.where(following, 0, start)
    total = np.concatenate([[0.0], np.cumsum(tl)])
    count = end - start
    sums = total[end] - total[start]
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def _factor(ratios: NDArray[np.float64]) -> float | None:
    if not len(ratios):
        return None
    middle = float(np.median(ratios))
    for factor in FACTORS:
        if abs(middle / factor - 1) <= 0.1 and np.mean(np.abs(ratios / factor - 1) <= 0.1) >= 0.5:
            return float(factor)
    return None


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """(slope, its standard error) of a least-squares line."""
    n = len(x)
    spread = float(np.sum((x - x.mean()) ** 2)) if n else 0.0
    if n < 2 or spread <= 0:
        return float("nan"), float("nan")
    slope = float((x - x.mean()) @ (y - y.mean())) / spread
    if n < 3:
        return slope, float("nan")
    left = y - y.mean() - slope * (x - x.mean())
    return slope, float(np.sqrt(left @ left / (n - 2) / spread))
