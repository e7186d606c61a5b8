"""Which module, parameter and row a non-finite value came from: judgements over what a `Trail` has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from runner.stability.finite import all_finite
from runner.training.trail import WHOLE, Backward, Events, Forward, Reading, Trail, clean_name, first_broken

__all__ = [
    "Events",
    "Trail",
    "clean_name",
    "first_bad_backward",
    "first_bad_forward",
    "first_bad_parameter",
    "trail_table",
]

Named = Sequence[tuple[str, nn.Parameter]]

HALF = {"float16": "65504", "bfloat16": "3.39e38"}
"""Largest finite number of each half precision."""


def first_bad_parameter(named: Named, gradients: bool) -> dict[str, Any] | None:
    """The first weight, or with `gradients` the first `.grad`, that is not finite: None where all are.

    Returns name, what ("weight" | "gradient"), dtype, count (of non-finite elements), value ("NaN" | "inf" | "-inf") at
    first_index (list of ints), and row (the first of these, None below two dimensions). One synchronisation per device
    where all is finite.
    """
    tensors = [(name, p.grad if gradients else p.detach()) for name, p in named]
    kept = [(name, t.detach()) for name, t in tensors if t is not None and t.is_floating_point() and t.numel()]
    finite = all_finite([t for _, t in kept])
    at = next((i for i, ok in enumerate(finite) if not ok), None)
    if at is None:
        return None
    name, tensor = kept[at]
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    bad = ~torch.isfinite(tensor)
    # argmax returns the first of equal values.
    first = int(bad.reshape(-1).to(torch.uint8).argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(first), tensor.shape)]
    value = float(tensor.reshape(-1)[first])
    return {
        "name": name,
        "what": "gradient" if gradients else "weight",
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "count": int(bad.sum()),
        "value": "NaN" if value != value else str(value),
        "first_index": index,
        "row": index[0] if tensor.ndim > 1 else None,
    }


def first_bad_forward(events: Events) -> dict[str, Any] | None:
    """The innermost module that made a non-finite output of finite inputs; None where every output is finite.

    Returns module, class, dtype (of its output), absmax_in, absmax_out (largest finite magnitudes; None where nothing
    floating went in), output ("NaN" | "inf" | "NaN and inf"), where (place in a structured output), rows (indices of
    batch rows whose output is not finite), weight (`first_bad_parameter` of its own weights), seen_by (the part at
    whose input it showed first, where an operation between parts is to blame) and why, in words.
    """
    at = first_broken(events.forward)
    if at is None:
        return None
    event = events.forward[at]
    weight = first_bad_parameter(event.own, gradients=False)
    within = [e for e in events.forward if event.began < e.began and e.ended < event.ended and not e.inputs.finite]
    seen = min(within, key=lambda e: e.began, default=None)
    return {
        "module": event.module,
        "class": event.kind,
        "dtype": event.outputs.dtype,
        "absmax_in": event.inputs.absmax if event.inputs.dtype else None,
        "absmax_out": event.outputs.absmax,
        "output": kind_of(event.outputs),
        "where": event.outputs.where,
        "rows": event.outputs.rows,
        "weight": weight,
        "seen_by": seen.module if seen else None,
        "why": why_forward(event, seen, weight),
    }


def kind_of(reading: Reading) -> str:
    """ "NaN", "inf" or "NaN and inf"; "" of a finite reading."""
    return " and ".join(word for word, there in (("NaN", reading.nan), ("inf", reading.inf)) if there)


def why_forward(event: Forward, seen: Forward | None, weight: dict[str, Any] | None) -> str:
    """What made the output non-finite, as far as the numbers show it."""
    if not event.inputs.finite:
        return f"its input was {kind_of(event.inputs)} already"
    if weight is not None:
        stored = f" (stored as {weight['dtype']}, max {HALF[weight['dtype']]})" if weight["dtype"] in HALF else ""
        words = f"weight {weight['name']} holds {weight['value']} at {weight['first_index']}"
        return words + (stored if weight["value"] != "NaN" else "")
    shown, place = (
        (seen.inputs, f" between its parts, first seen at the input of {seen.module}") if seen else (event.outputs, "")
    )
    # Finite weights and finite inputs: a matrix product can only leave the range.
    product = seen is None and any(word in event.kind for word in ("Linear", "Conv"))
    if shown.dtype in HALF and (shown.inf or product):
        return f"overflow of {shown.dtype} (max {HALF[shown.dtype]}){place}"
    if shown.inf and not shown.nan:
        return f"infinity from its own arithmetic{place}: a division by 0, log(0) or an overflow"
    hint = f", or an overflow of {shown.dtype} (max {HALF[shown.dtype]}) inside it" if shown.dtype in HALF else ""
    return f"NaN from its own arithmetic{place}: 0/0, inf - inf, log or root of a negative number{hint}"


def first_bad_backward(events: Events) -> dict[str, Any] | None:
    """The first non-finite gradient by time, and the module whose backward made it; None where all are finite.

    Returns module, class, kind (see `Backward`), parameter, dtype (in which it was computed), gradient ("NaN" | "inf" |
    "NaN and inf"), absmax (largest finite magnitude in it), absmax_out (that of the gradient which the module was
    given, None where unknown), rows, after (what the last finite gradient before it belonged to) and why, in words.
    An output_gradient was not made by the module but by what uses its output: an operation between modules, the loss.
    """
    at = next((i for i, event in enumerate(events.backward) if not event.gradient.finite), None)
    if at is None:
        return None
    event, before = events.backward[at], events.backward[:at]
    given = next((e for e in reversed(before) if e.module == event.module and e.kind == "output_gradient"), None)
    dtype = event.gradient.dtype
    if event.kind != "output_gradient" and given is not None and given.gradient.dtype in HALF:
        # autocast: computed in half, then cast to the dtype of input or weight.
        dtype = given.gradient.dtype
    classes = {e.module: e.kind for e in events.forward}
    return {
        "module": event.module,
        "class": classes.get(event.module),
        "kind": event.kind,
        "parameter": event.parameter,
        "dtype": dtype,
        "gradient": kind_of(event.gradient),
        "absmax": event.gradient.absmax,
        "absmax_out": given.gradient.absmax if given else None,
        "rows": event.gradient.rows,
        "after": described(before[-1]) if before else None,
        "why": why_backward(event, dtype, before),
    }


def described(event: Backward) -> str:
    """The gradient in words."""
    if event.parameter:
        return f"the gradient of {event.parameter}"
    return f"the {event.kind.replace('_', ' ')} of {event.module}"


def why_backward(event: Backward, dtype: str, before: list[Backward]) -> str:
    """What made the gradient non-finite, as far as the numbers show it."""
    overflow = f"overflow of {dtype} (max {HALF[dtype]})" if dtype in HALF and event.gradient.inf else ""
    if event.kind == "output_gradient":
        if not before or event.module == WHOLE:
            return f"it came from the loss, or from an operation between {event.module} and the loss"
        words = f"it came from an operation that uses the output of {event.module}"
        words += f"; {described(before[-1])}, just before, was finite"
        return f"{overflow}: {words}" if overflow else words
    made = "its own backward made it" + (f", as the gradient of {event.parameter}" if event.parameter else "")
    return overflow or made


def trail_table(events: Events, keep: int = 40, before: int = 10) -> dict[str, list[dict[str, Any]]]:
    """{"forward": [...], "backward": [...]}, each at most `keep` events in order of time.

    Kept are the one that broke the pass, `before` earlier ones, and those of the largest magnitude. Forward: module,
    class, dtype, absmax_in, absmax_out; backward: module, kind, parameter, dtype, absmax. A non-finite reading shows
    as NaN or infinity; `bad` marks the one that broke the pass.
    """
    bad_forward = first_broken(events.forward)
    bad_backward = next((i for i, event in enumerate(events.backward) if not event.gradient.finite), None)
    forward = chosen([e.outputs.absmax for e in events.forward], bad_forward, keep, before)
    backward = chosen([e.gradient.absmax for e in events.backward], bad_backward, keep, before)
    return {
        "forward": [
            {
                "module": e.module,
                "class": e.kind,
                "dtype": e.outputs.dtype,
                "absmax_in": e.inputs.shown,
                "absmax_out": e.outputs.shown,
                "bad": i == bad_forward,
            }
            for i, e in ((i, events.forward[i]) for i in forward)
        ],
        "backward": [
            {
                "module": e.module,
                "kind": e.kind,
                "parameter": e.parameter,
                "dtype": e.gradient.dtype,
                "absmax": e.gradient.shown,
                "bad": i == bad_backward,
            }
            for i, e in ((i, events.backward[i]) for i in backward)
        ],
    }


def chosen(sizes: list[float], bad: int | None, keep: int, before: int) -> list[int]:
    """Indices to keep, in order: around the bad one first, then the largest sizes up to and including it."""
    near = [] if bad is None else list(range(max(bad - before, 0), min(bad + 2, len(sizes))))
    rest = sorted(set(range(len(sizes))) - set(near), key=lambda i: -sizes[i])
    return sorted((near + rest)[:keep])
