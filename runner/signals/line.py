"""Line probe: what the loss of one batch does along the update that was just made."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

Reading = Literal["safe", "overshoots", "ascends", "no_descent", "unknown"]


class Line(NamedTuple):
    """The parabola through the loss at the old weights, halfway, and at the new weights."""

    a: float
    """Slope at the old weights, gradient times update (loss per whole update); negative on the way down."""

    h: float
    """Curvature along the update, u' H u (loss per whole update squared)."""

    s: float
    """h / (-a): length of the update, 1 = exactly to the minimum of the parabola, 2 = as far up the other side as it
    was before. NaN where a >= 0, for there is no minimum ahead."""

    reading: Reading
    """safe: s < 1. overshoots: 1 to 2, beyond the minimum, still lower than before. ascends: above 2, higher than
    before. no_descent: a >= 0, the update does not lead down on this batch (or moved nothing: a = h = 0).
    unknown: a loss was not finite."""


def line_probe(l0: float, l_half: float, l1: float) -> Line:
    """Slope, curvature and relative length of an update u from L(w), L(w + u/2), L(w + u) on one batch, dropout off.

    a = -3 L0 + 4 L_half - L1 and h = 4 (L0 - 2 L_half + L1) (three-point formulas, exact on a parabola), s = h / (-a);
    DESIGN 7.4, faults-and-statistics 2.7. Losses are in nats. A rounding error e in each of them is up to 8 e in `a`
    and 16 e in `h`: for updates that change the loss by hardly more than its rounding, s is noise.
    """
    losses = np.array([l0, l_half, l1], dtype=np.float64)
    if not np.isfinite(losses).all():
        return Line(float("nan"), float("nan"), float("nan"), "unknown")
    a = float(losses @ (-3.0, 4.0, -1.0))
    h = float(losses @ (4.0, -8.0, 4.0))
    if a >= 0:
        return Line(a, h, float("nan"), "no_descent")
    s = h / -a
    return Line(a, h, s, "safe" if s < 1 else "overshoots" if s <= 2 else "ascends")
