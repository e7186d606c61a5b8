"""What the clip did to a run, in one sentence that is true for the optimizer it ran with."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

RARE = 0.10
"""Share of steps below which a clip acts on outliers only."""

ALWAYS = 0.95
"""Share of steps from which a clip is a constant of the run rather than a guard."""

FAR = 3.0
"""Times the median norm from which a batch is called an outlier."""

EVEN = 3.0
"""90th over 10th percentile of the norms up to which clipping every step is like multiplying by one number: AdamW's
weights then end within about 10 % of the way (tests/report/test_clip.py)."""

ELEMENTWISE = ("value", "agc", "adagc")
"""Methods that change the gradient's direction too."""

SCALE_FREE = ("adam", "ademamix", "adafactor", "adagrad", "lion", "rmsprop", "adalomo", "apollo")
"""Parts of the names of optimizers whose step does not change when every gradient is multiplied by one number."""

PROPORTIONAL = ("sgd", "lomo")
"""Parts of the names of optimizers whose step is the gradient times the rate."""


def family(optimizer: str) -> Literal["scale_free", "proportional", "unknown"]:
    """How the step of `optimizer` (transformers' `OptimizerNames`) follows the gradient's scale."""
    name = optimizer.lower()
    if any(part in name for part in SCALE_FREE):
        return "scale_free"
    return "proportional" if any(part in name for part in PROPORTIONAL) else "unknown"


def clipped(coefficients: ArrayLike) -> NDArray[np.bool_]:
    """Where the applied factor (norm after / norm before) is below 1 by more than rounding; unknown = False."""
    return np.asarray(coefficients, dtype=float) < 1 - 1e-6


def clip_sentence(method: str, optimizer: str, coefficients: ArrayLike, norms: ArrayLike) -> str:
    """One sentence about what clipping did.

    `method` is `clip.method`, `optimizer` is `optim.name`; `coefficients` and `norms` have shape (n,): applied factor
    and gradient norm before clipping of each step that was taken. Steps without a finite norm or factor are passed
    over.

    An optimizer of Adam's kind divides the gradient by its own running size, so a factor that hits every step alike
    cancels (Kingma & Ba 2015, section 2.1: "invariant to the scale of the gradient"); it reaches the weights only where
    it differs from step to step. SGD's step is proportional to the gradient, so there the factor is the step's.
    """
    factor, norm = np.asarray(coefficients, dtype=float), np.asarray(norms, dtype=float)
    known = np.isfinite(norm) & (np.isfinite(factor) if method != "none" else True)
    factor, norm = factor[known], norm[known]
    if norm.size == 0:
        return "Clipping was not measured: no step has a finite gradient norm on record."
    median = max(float(np.median(norm)), 1e-12)
    largest = float(norm.max()) / median
    if method == "none":
        if largest < FAR:
            return f"Nothing was clipped (clip=none); the largest gradient norm was {largest:.2g} times the median."
        return (
            f"Nothing was clipped (clip=none), though the largest gradient norm was {largest:.2g} times the median: "
            "clip=norm or clip=zclip would keep such a batch from ruling the update."
        )
    hit = clipped(factor)
    n, share = int(hit.sum()), float(hit.mean())
    if n == 0:
        return f"The clip was never reached: it changed nothing in {norm.size:,} steps."
    kind = family(optimizer)
    if share < RARE:
        return rarely(n, norm.size, kind, float(factor[hit].mean()), float(np.median(norm[hit])) / median, largest)
    start = f"Clipped {how_many(n, norm.size)}, to {factor[hit].mean():.2g} of their gradient norm on average"
    if kind == "proportional":
        return (
            f"{start}: with {optimizer} the step is the gradient times the rate, so on average the step is "
            f"{factor.mean():.2g} of what it would be."
        )
    if kind == "unknown":
        return f"{start}; whether {optimizer} takes smaller steps for it depends on its update rule."
    return f"{start}: {scale_free(method, optimizer, share, norm, median)}"


def how_many(n: int, of: int) -> str:
    """ "all 40 steps", "3 % of the steps (14 of 470)"."""
    if n == of:
        return f"all {of:,} steps"
    percent = f"{100 * n / of:.0f}" if n / of >= 0.01 else "under 1"
    return f"{percent} % of the steps ({n:,} of {of:,})"


def rarely(n: int, of: int, kind: str, factor: float, typical: float, largest: float) -> str:
    """The sentence for a clip that acted on few steps; `typical` and `largest` are norms in units of the median."""
    start = f"Clipped {how_many(n, of)}, to {factor:.2g} of their gradient norm on average"
    if typical < FAR:
        return f"{start}; their norms were {typical:.2g} times the median, so this changed little."
    ruled = "Adam-like moments for many steps" if kind == "scale_free" else "the weights with one outsized step"
    return (
        f"{start}: outlier batches with norms {typical:.2g} times the median (largest {largest:.2g} times), and the "
        f"clip kept them from ruling {ruled}."
    )


def scale_free(method: str, optimizer: str, share: float, norm: NDArray[np.float64], median: float) -> str:
    """What frequent clipping means for an optimizer of Adam's kind."""
    why = f"the step of {optimizer} does not depend on the gradient's scale"
    if share < ALWAYS:
        return f"{why}, so this does not slow the run; batches with a large gradient count less in its moments."
    if method in ELEMENTWISE:
        return f"{why}, so this does not slow the run; what stands out counts less in the direction of the step."
    low, high = np.quantile(norm, [0.1, 0.9])
    if high < EVEN * low:
        return f"{why}, so a limit below every norm barely changes it, whatever the limit is."
    span = f"{norm.min() / median:.2g} to {norm.max() / median:.2g} times the median norm"
    return f"{why}, so this does not slow the run; it makes all batches count alike in its moments ({span})."
