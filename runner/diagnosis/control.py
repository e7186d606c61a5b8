"""A run beside its control: the same rows in the same order, with nothing (or something else) done to the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from runner.causes.thresholds import R_SQUARED
from runner.diagnosis.sign import Signs, plain, short
from runner.diagnosis.trace import Trace
from runner.errors import UserError
from runner.signals.difficulty import r_squared, slope
from runner.signals.paired_variance import paired_variances_of_curves

LEAST = 10
"""Common steps that a comparison needs."""


def compare(trace: Trace, control: Trace, signs: Signs) -> dict[str, Any]:
    """R^2, slope and variance ratio of the two losses at their common steps; sets the sign foreseen or not_foreseen.

    R^2 is the share of the movement between neighbouring points that the control shows too (DESIGN 7.3); the variance
    ratio is Pitman-Morgan's (7.11) on neighbouring differences. Raises `UserError` for fewer than ten common steps.
    """
    both = np.intersect1d(trace.step[trace.loss.finite], control.step[control.loss.finite])
    if len(both) < LEAST:
        raise UserError(
            f"--control {control.path}: it shares {len(both)} step(s) with {trace.path}. A control is a run with the "
            "same seed and the same batches, logged at the same steps."
        )
    loss = trace.loss.values[np.isin(trace.step, both) & trace.loss.finite]
    other = control.loss.values[np.isin(control.step, both) & control.loss.finite]
    share, b, test = r_squared(loss, other), slope(loss, other), paired_variances_of_curves(loss, other)
    rates = control.learning_rate.values[control.learning_rate.finite]
    frozen = bool(len(rates)) and bool((rates == 0).all())
    found = {
        "path": str(control.path),
        "steps": len(both),
        "learning_rate_zero": frozen,
        "r_squared": share,
        "slope": b,
        "variance_ratio": test.ratio,
        "p": test.robust_p,
    }
    what_en = "a run whose weights never move (learning rate 0)" if frozen else "the control"
    what_zh = "权重不动的运行（学习率 0）" if frozen else "对照运行"
    foreseen = bool(share >= R_SQUARED)
    signs.say(
        "foreseen", foreseen,
        f"{what_en} moves in the same places on the same batches: {100 * share:.0f} % of the movement; variance ratio "
        f"{short(test.ratio)}",
        f"{what_zh}在同样的 batch 上同样起伏：解释 {100 * share:.0f} % 的波动；方差比 {short(test.ratio)}",
        r_squared=share, variance_ratio=test.ratio,
    )  # fmt: skip
    signs.say(
        "not_foreseen", bool(share < R_SQUARED / 2),
        f"{what_en} on the same batches explains only {100 * share:.0f} % of the movement; variance ratio "
        f"{short(test.ratio)}",
        f"{what_zh}在同样的 batch 上只能解释 {100 * share:.0f} % 的波动；方差比 {short(test.ratio)}",
        r_squared=share, variance_ratio=test.ratio,
    )  # fmt: skip
    signs.numbers |= {"control_r_squared": share, "control_variance_ratio": test.ratio}
    return {k: plain(v) for k, v in found.items()}
