"""How many steps it takes to see a difference through the noise."""

from __future__ import annotations

import math

_TWO_SIDED_5, _POWER_80 = 1.959964, 0.841621


def steps_needed(sd: float, difference: float) -> int | None:
    """Steps of each of two runs after which a difference of their mean losses is found in 80 % of cases.

    `n = 2 ((1.96 + 0.84) sd / difference)^2`, two-sided at 5 %, for independent steps of standard deviation `sd`; the
    textbook formula for two means (Cohen 1988, chapter 2). None where either number is not finite or the difference is
    0.
    """
    if not (math.isfinite(sd) and math.isfinite(difference)) or difference <= 0 or sd < 0:
        return None
    return max(1, math.ceil(2 * ((_TWO_SIDED_5 + _POWER_80) * sd / difference) ** 2))


def rows_needed(sd: float, width: float) -> int | None:
    """Rows after which a mean is known to +/- `width` at 95 %: `(1.96 sd / width)^2`; None as above."""
    if not (math.isfinite(sd) and math.isfinite(width)) or width <= 0 or sd < 0:
        return None
    return max(1, math.ceil((_TWO_SIDED_5 * sd / width) ** 2))
