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
    """R^2, slope and variance ratio of the two losses at their common steps; sets the sign control, and foreseen or
    not_foreseen where the control's weights do not move.

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
    if np.array_equal(loss, other):
        raise UserError(
            f"--control {control.path}: its losses are those of {trace.path} itself. A control is another run, at best "
            "with learning rate 0."
        )
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
    numbers = f"R^2 {share:.2f}, variance ratio {short(test.ratio)}"
    rate = ("at learning rate 0", "学习率 0") if frozen else ("which learns too", "它也在学习")
    same_part = min(99, round(100 * share))
    signs.say(
        "control", True,
        f"{numbers}: the control {rate[0]} makes {same_part} % of the same movement",
        f"{numbers}：对照（{rate[1]}）在同样的 batch 上有 {same_part} % 相同的波动",
        r_squared=share, variance_ratio=test.ratio,
    )  # fmt: skip
    # Two runs that both learn share their faults too: only one whose weights stay shows what the data does.
    if frozen:
        signs.say("foreseen", bool(share >= R_SQUARED))
        signs.say("not_foreseen", bool(share < R_SQUARED / 2))
    signs.numbers |= {"control_r_squared": share, "control_variance_ratio": test.ratio}
    return {k: plain(v) for k, v in found.items()}
