"""Does a classifier's loss sit where guessing puts it?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def chance_level(loss: ArrayLike, labels: int | None, tolerance: float, most: int = 6) -> int | None:
    """K where the median of the last half of `loss`, shape (n,), lies within `tolerance` (a share) of ln K.

    `labels` is K where it is known; else 2 to `most` are tried. None where no K fits or there are fewer than 3 points.
    """
    x = np.asarray(loss, dtype=np.float64)
    if len(x) < 3:
        return None
    level = float(np.median(x[len(x) // 2 :]))
    tried = [labels] if labels is not None and labels > 1 else range(2, most + 1)
    fits = [k for k in tried if abs(level / np.log(k) - 1) <= tolerance]
    return min(fits, key=lambda k: abs(level / np.log(k) - 1)) if fits else None
