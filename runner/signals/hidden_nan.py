"""Losses and gradient norms that are NaN underneath, and the exact numbers that give a dead model away (DESIGN 7.9).

Arrays have shape (n,), points in the order of the steps. `known` masks say where the log has a value at all, be it NaN
(`runner.diagnosis.trace.Column`); None = everywhere. Sources: how-failures-get-hidden 1 and 2, failure-catalogue 1.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Mask = NDArray[np.bool_]
Precision = Literal["float32", "float16", "bfloat16"]

ZERO = 1e-12
"""A loss below this was printed as 0: cross-entropy in float32 never is, and logs round to four digits or more."""

_PRINTED = 6e-5
"""Half a unit of the fourth decimal, which logs round to, and a little."""

_LARGEST_CLASSES = {"float32": 1000, "float16": 100, "bfloat16": 16}
"""Up to these, neighbouring ln K stay apart on the grid of the format; beyond, every number would be some ln K."""


class NonFinite(NamedTuple):
    """Values that are NaN or infinite."""

    total: int
    share: float
    """Of the known values; 0 without any."""

    nan: int
    infinite: int
    first: int | None
    """Index of the first; None without any."""

    last: int | None
    longest: int
    """Longest row of known values without a finite one between them."""

    recovers: bool
    """A finite value comes after each of them (true without any)."""


def non_finite(values: ArrayLike, known: ArrayLike | None = None, hidden: ArrayLike | None = None) -> NonFinite:
    """Counts of NaN and infinite values; `hidden` marks points that are NaN although a number was printed.

    Hidden points (see `zero_loss`) count as NaN. Raises ValueError where shapes differ.
    """
    series, seen = _series(values, known)
    bad = seen & ~np.isfinite(series)
    infinite = int((seen & np.isinf(series)).sum())
    if hidden is not None:
        bad = bad | (_mask(hidden, series.shape) & seen)
    count = int(bad.sum())
    if not count:
        return NonFinite(0, 0.0, 0, 0, None, None, 0, True)
    at = np.flatnonzero(bad)
    compact = bad[seen]
    return NonFinite(
        count,
        count / int(seen.sum()),
        count - infinite,
        infinite,
        int(at[0]),
        int(at[-1]),
        _longest(compact)[1],
        not bool(compact[-1]),
    )


class Zeros(NamedTuple):
    """Indices of the points whose loss is exactly 0 as printed, by what the gradient norm says there."""

    nan_norm: NDArray[np.int64]
    """Norm NaN or infinite: the loss was NaN, the filter of the Trainer printed 0."""

    frozen_norm: NDArray[np.int64]
    """Norm constant at sqrt(k) (`constant_norm`): NaN under DeepSpeed."""

    zero_norm: NDArray[np.int64]
    """Norm exactly 0: no token was supervised."""

    no_norm: NDArray[np.int64]
    """The log has no norm here: NaN or nothing supervised, unless the loss came down to 0 slowly."""

    other: NDArray[np.int64]
    """A finite norm that moves: the loss is merely small."""

    before: float
    """Last finite loss above 0 before the first of all these points; NaN without one."""

    to_the_end: bool
    """From the first of them on, no finite loss above 0 follows; false without any."""

    @property
    def hidden(self) -> NDArray[np.int64]:
        """Indices where the loss certainly was NaN: `nan_norm` and `frozen_norm`, in order."""
        return np.sort(np.concatenate([self.nan_norm, self.frozen_norm]))


def zero_loss(
    loss: ArrayLike, grad_norm: ArrayLike, loss_known: ArrayLike | None = None, norm_known: ArrayLike | None = None
) -> Zeros:
    """Where the loss is 0 (|loss| < 1e-12), sorted by the norm beside it. Raises ValueError where shapes differ."""
    losses, loss_seen = _series(loss, loss_known)
    norms, norm_seen = _series(grad_norm, norm_known)
    zero = loss_seen & np.isfinite(losses) & (np.abs(np.where(np.isfinite(losses), losses, 1.0)) < ZERO)
    frozen = np.zeros_like(zero)
    found = constant_norm(norms, losses, norm_seen, loss_seen)
    if found is not None:
        frozen[found.first : found.last + 1] = True
    nan_norm = zero & norm_seen & ~np.isfinite(norms)
    frozen &= zero & norm_seen & np.isfinite(norms)
    zero_norm = zero & norm_seen & (np.abs(norms) < ZERO)
    no_norm = zero & ~norm_seen
    other = zero & ~(nan_norm | frozen | zero_norm | no_norm)
    before, to_the_end = float("nan"), False
    if zero.any():
        first = int(np.argmax(zero))
        alive = loss_seen & np.isfinite(losses) & ~zero
        earlier = np.flatnonzero(alive[:first])
        before = float(losses[earlier[-1]]) if len(earlier) else float("nan")
        to_the_end = not bool(alive[first:].any())
    at = [np.flatnonzero(m) for m in (nan_norm, frozen, zero_norm, no_norm, other)]
    return Zeros(at[0], at[1], at[2], at[3], at[4], before, to_the_end)


class FrozenNorm(NamedTuple):
    """A gradient norm that is not one: sqrt(k) for k parameter groups whose norm was NaN."""

    k: int
    value: float
    """As logged."""

    first: int
    last: int
    """Indices of the row."""

    points: int
    """Known norms in it."""


def constant_norm(
    grad_norm: ArrayLike,
    loss: ArrayLike,
    norm_known: ArrayLike | None = None,
    loss_known: ArrayLike | None = None,
    least: int = 3,
) -> FrozenNorm | None:
    """The longest row of equal norms at sqrt(k), k = 1..8, while the loss is 0, NaN or not logged.

    DeepSpeed writes -1 for the norm of a group that is not finite and takes the norm over k groups: sqrt(k). A row has
    `least` known norms or more; a log of two points is a row if both fit. Where the loss is a number above 0 a
    constant norm is something else (a norm logged after clipping, say), and None is returned.
    """
    norms, norm_seen = _series(grad_norm, norm_known)
    losses, loss_seen = _series(loss, loss_known)
    at = np.flatnonzero(norm_seen)
    if len(at) < 2:
        return None
    values = norms[at]
    k = np.zeros(len(at), dtype=np.int64)
    near = np.isfinite(values) & (values > 0.5) & (values < 3)
    k[near] = np.rint(values[near] ** 2).astype(np.int64)
    # 1.732 is as far as some logs print.
    fits = (k >= 1) & (k <= 8) & (np.abs(values - np.sqrt(k)) < 6e-4)
    dead = ~loss_seen | ~np.isfinite(losses) | (np.abs(losses) < ZERO)
    fits &= dead[at]
    # Equal to the one before, else a new row starts.
    with np.errstate(invalid="ignore"):
        equal = np.abs(np.diff(values)) < 1e-6
    same = np.concatenate([[False], fits[1:] & fits[:-1] & equal])
    start, length = _longest(same)
    if length == 0:
        return None
    first, count = start - 1, length + 1
    if count < min(least, len(at)):
        return None
    return FrozenNorm(int(k[first]), float(values[first]), int(at[first]), int(at[first + count - 1]), count)


class LogClasses(NamedTuple):
    """A loss that is exactly ln K: the same score for every class."""

    classes: int
    precision: Precision
    """The number format whose rounding of ln K the log shows; float32 where it cannot be told."""

    points: int
    """How many points at the end of the log say so."""

    zero_norm: bool
    """The gradient norm was 0 at all of them: dead backbone or frozen zero head. False also where no norm is known."""


def at_log_classes(
    loss: ArrayLike,
    grad_norm: ArrayLike,
    loss_known: ArrayLike | None = None,
    norm_known: ArrayLike | None = None,
    least: int = 3,
    classes: int | None = None,
) -> LogClasses | None:
    """K where the last losses are all ln K as far as the log prints, at `least` points (or all, if fewer, down to two).

    Within 6e-5 of ln K as float32, float16 or bfloat16 holds it (ln 3: 1.0986123, 1.0986328, 1.1015625). K is 2..1000,
    for the half formats 2..100 and 2..16; `classes`, where known, is the only K that is tried. With `zero_norm` false
    only the head (or one layer) is zero, and it learns.
    """
    losses, loss_seen = _series(loss, loss_known)
    norms, norm_seen = _series(grad_norm, norm_known)
    at = np.flatnonzero(loss_seen)
    if len(at) < 2 or not np.isfinite(losses[at[-1]]) or not 0.5 < losses[at[-1]] < 10:
        return None
    apart = ~(np.abs(losses[at] - losses[at[-1]]) <= 2 * _PRINTED)
    points = len(at) if not apart.any() else int(np.argmax(apart[::-1]))
    if points < min(least, len(at)):
        return None
    row = at[-points:]
    level = float(np.median(losses[row]))
    best: tuple[float, int, Precision] | None = None
    precisions: tuple[Precision, ...] = ("float32", "float16", "bfloat16")
    for precision in precisions:
        k = np.arange(2, _LARGEST_CLASSES[precision] + 1) if classes is None else np.array([classes])
        off = np.abs(_rounded(np.log(k.astype(np.float64)), precision) - level)
        nearest = int(np.argmin(off))
        # A later format has to fit clearly better than the plain one.
        if off[nearest] < _PRINTED and (best is None or off[nearest] < best[0] - _PRINTED / 6):
            best = (float(off[nearest]), int(k[nearest]), precision)
    if best is None:
        return None
    dead = norms[row][norm_seen[row]]
    return LogClasses(best[1], best[2], points, bool(len(dead)) and bool((np.abs(dead) < ZERO).all()))


class Accumulated(NamedTuple):
    """A first loss of G ln K: accumulation that nobody divided by."""

    times: int
    """G, the accumulation steps."""

    classes: int
    off: float
    """Relative distance of the loss from G ln K."""


def accumulated_log_classes(first_loss: float, classes: int | None = None, within: float = 0.03) -> list[Accumulated]:
    """Every (G, K) with `first_loss` within 3 % of G ln K, nearest first; G in 2, 4, 8, 16, 32, 64.

    Without `classes` K is 2..10 and several fit as a rule (4 ln 3 is 2 ln 9): then the list only says what to ask.
    """
    if not np.isfinite(first_loss) or first_loss <= 0:
        return []
    found = [
        Accumulated(g, k, abs(first_loss / (g * float(np.log(k))) - 1))
        for g in (2, 4, 8, 16, 32, 64)
        for k in (range(2, 11) if classes is None else (classes,))
        if k > 1
    ]
    return sorted((a for a in found if a.off <= within), key=lambda a: (round(a.off, 6), a.times))


def nan_inside_window(
    loss: ArrayLike, grad_norm: ArrayLike, loss_known: ArrayLike | None = None, norm_known: ArrayLike | None = None
) -> int | None:
    """Index of a point that hides the first NaN in its mean: loss above 0, norm not finite, only 0 or NaN losses after.

    Such a log averages several steps, of which the filter left out the NaN ones. None where there is no such point.
    """
    losses, loss_seen = _series(loss, loss_known)
    norms, norm_seen = _series(grad_norm, norm_known)
    alive = loss_seen & np.isfinite(losses) & ~(np.abs(losses) < ZERO)
    if not alive.any():
        return None
    last = int(np.flatnonzero(alive)[-1])
    follows = bool(loss_seen[last + 1 :].any())
    return last if follows and bool(norm_seen[last]) and not np.isfinite(norms[last]) else None


def _series(values: ArrayLike, known: ArrayLike | None) -> tuple[NDArray[np.float64], Mask]:
    series = np.asarray(values, dtype=np.float64)
    return series, np.ones(series.shape, dtype=bool) if known is None else _mask(known, series.shape)


def _mask(mask: ArrayLike, shape: tuple[int, ...]) -> Mask:
    found = np.asarray(mask, dtype=bool)
    if found.shape != shape:
        raise ValueError(f"a mask has shape {found.shape}, its values {shape}")
    return found


def _longest(flags: Mask) -> tuple[int, int]:
    """(start, length) of the longest row of true; (0, 0) without any."""
    edges = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(starts):
        return 0, 0
    longest = int(np.argmax(ends - starts))
    return int(starts[longest]), int(ends[longest] - starts[longest])


def _rounded(values: NDArray[np.float64], precision: Precision) -> NDArray[np.float64]:
    """`values` as the format holds them, to the nearest."""
    if precision == "float16":
        return values.astype(np.float16).astype(np.float64)
    single = values.astype(np.float32)
    if precision == "bfloat16":
        bits = single.view(np.uint32)
        bits = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
        single = bits.view(np.float32)
    return single.astype(np.float64)
