"""The loaded weights by their numbers: finite, not filled with zeros, of a sane size. The weights are read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, ok, places
from runner.preflight.weights.audit import (
    TINY,
    Audit,
    Numbers,
    absmax,
    audit,
    blocks,
    first_bad,
    largest,
    role,
    zero_runs,
)
from runner.preflight.weights.blame import Fault, blame
from runner.preflight.weights.norms import effective_scale, norm_layers

JUNK = 1e6
"""No trained weight is as large: fp16, in which most models can be run, ends at 65,504. Memory never written holds 1e30
or the like. The largest element of SmolLM2-135M is 9.25, of the shipped model 1.5."""

LARGE = 1e3
OUTLIER = 30.0
"""Ratio to the median of the peers from which an element above `LARGE`, or the size of a whole tensor, stands out."""

PEERS = 3
"""Tensors of the same role in other layers that a comparison needs."""


@dataclass(frozen=True)
class Bad:
    """One tensor that is not fit to train from."""

    name: str
    what: str
    """What it holds: "[3, 17] is nan, 1 of 4,608 elements"."""

    fault: Fault
    numbers: dict[str, Any]


def finite(c: Context) -> Result:
    """Every tensor finite, none filled with zeros, in whole or in blocks."""
    seen = audit(c)
    findings = [*not_finite(c, seen), *zero_filled(c, seen)]
    if findings:
        return found(f"{sum(f.numbers['tensors'] for f in findings)} of {len(seen.numbers)} tensors", *findings)
    worst = max((n for n in seen.numbers.values() if not n.buffer), key=lambda n: n.absmax)
    return ok(f"{len(seen.numbers)} tensors, largest element {worst.absmax:.3g}{seen.left_out}")


def not_finite(c: Context, seen: Audit) -> list[Finding]:
    """Findings for NaN and infinity."""
    bad = []
    for n in seen.numbers.values():
        if n.finite:
            continue
        index, value, count = first_bad(tensor(c, n.name))
        fault = blame(c, n.name, n.dtype, lambda t: not np.isfinite(absmax(t.reshape(-1))))
        what = f"{list(index)} is {value}, {count:,} of {n.size:,} elements"
        bad.append(Bad(n.name, what, fault, {"index": list(index), "value": str(value), "elements": count}))
    return _by_cause(bad, "hold NaN or infinity", "weights.damaged")


def zero_filled(c: Context, seen: Audit) -> list[Finding]:
    """Findings for tensors of zeros, or blocks of them that neither padding nor pruning leaves.

    A tensor that no file holds is left to `initialised`: a new head may be meant to start at 0.
    """
    bad = []
    for n in empty_tensors(c, seen):
        whole = n.empty
        fault = blame(c, n.name, n.dtype, _empty if whole else _blocked(n.table))
        if fault.culprit == "initialiser":
            continue
        share = 1.0 if whole else sum(b - a for a, b in n.blocks) / n.size
        what = "is all zero" if n.absmax == 0 else f"has no element above {n.absmax:.1g}"
        first = 0 if whole else n.blocks[0][0]
        if not whole:
            index = [int(i) for i in np.unravel_index(first, n.shape)]
            what = f"is zero from {index} on for {n.blocks[0][1] - first:,} of {n.size:,} elements"
        bad.append(Bad(n.name, what, fault, {"share": round(share, 4), "first": first}))
    bad.sort(key=lambda b: -b.numbers["share"])
    return _by_cause(bad, "are filled with zeros", "weights.zero_filled")


def empty_tensors(c: Context, seen: Audit) -> list[Numbers]:
    """Numbers of the tensors of two dimensions or more and of norm weights that are empty or have blocks of zeros."""
    norms = {name: layer for name, layer in norm_layers(c.start)}
    suspects = []
    for n in seen.numbers.values():
        if n.buffer:
            continue
        if len(n.shape) >= 2:
            empty = n.empty or bool(n.blocks)
        else:
            empty = n.name in norms and n.empty and _zero_scale(norms[n.name])
        if empty:
            suspects.append(n)
    return suspects


def bad_tensors(c: Context) -> set[str]:
    """Names of the tensors that `finite` or `sizes` report as errors; later checks have nothing to say about those."""
    seen = audit(c)
    wrong = {n.name for n in seen.numbers.values() if not n.finite or (n.absmax >= JUNK and not n.buffer)}
    return wrong | {n.name for n in empty_tensors(c, seen)}


def sizes(c: Context) -> Result:
    """Largest elements against any trained model and against the same tensor of other layers; norm weights."""
    seen = audit(c)
    skip = {n.name for n in empty_tensors(c, seen)}
    sound = [n for n in seen.numbers.values() if n.finite and n.name not in skip and not n.buffer]
    findings = [*junk(c, sound), *outliers(c, [n for n in sound if n.absmax < JUNK]), *norms(c, sound)]
    if not sound:
        return found("no tensor left to judge", *findings)
    worst = max(sound, key=lambda n: n.absmax)
    return found(f"largest {worst.absmax:.3g} in {worst.name}", *findings)


def junk(c: Context, sound: Iterable[Numbers]) -> list[Finding]:
    """Findings for elements no training leaves."""
    bad = []
    for n in sound:
        if n.absmax < JUNK:
            continue
        index, value = largest(tensor(c, n.name))
        fault = blame(c, n.name, n.dtype, lambda t: absmax(t.reshape(-1)) >= JUNK)
        bad.append(Bad(n.name, f"{list(index)} is {value:.3g}", fault, {"index": list(index), "value": value}))
    bad.sort(key=lambda b: -abs(b.numbers["value"]))
    return _by_cause(bad, f"hold an element of {JUNK:.0e} or more", "weights.damaged")


def standing_out(numbers: Iterable[Numbers]) -> list[tuple[Numbers, str, float]]:
    """(tensor, absmax or rms, ratio to the median of its peers) of those far from the same tensor of other layers.

    An element counts from `LARGE` on; the size of a whole tensor counts for matrices only, and both ways: norms and
    biases differ by a hundred between the layers of sound models.
    """
    roles: dict[str, list[Numbers]] = {}
    for n in numbers:
        roles.setdefault(role(n.name), []).append(n)
    far = []
    for group in roles.values():
        for n in group if len(group) > PEERS else ():
            peers = [p for p in group if p is not n]
            usual = float(np.median([p.absmax for p in peers]))
            size = float(np.median([p.rms for p in peers]))
            if n.absmax >= LARGE and n.absmax >= OUTLIER * usual:
                far.append((n, "absmax", n.absmax / max(usual, TINY)))
            elif len(n.shape) >= 2 and size > 0 and not 1 / OUTLIER < n.rms / size < OUTLIER:
                far.append((n, "rms", n.rms / size))
    return sorted(far, key=lambda f: -abs(np.log(max(f[2], TINY))))


def outliers(c: Context, sound: Iterable[Numbers]) -> list[Finding]:
    """A warning for tensors that stand out among their peers, a note for large elements without such."""
    sound = list(sound)
    far = standing_out(sound)
    if far:
        n, kind, ratio = far[0]
        value = n.absmax if kind == "absmax" else n.rms
        word = "largest element" if kind == "absmax" else "root mean square"
        fault = blame(c, n.name, n.dtype, lambda t: bool(_like(t, kind, value)))
        sentence = (
            f"{n.name} stands out: its {word} is {value:.3g}, {ratio:.3g} times the median of the same tensor in other "
            f"layers; {fault.sentence}{_more(len(far))}"
        )
        id = "weights.damaged" if fault.culprit in ("file", "unknown") else "weights.uninitialised"
        numbers = {kind: value, "ratio": ratio, "file": fault.file, "tensors": len(far)}
        return [Finding(id, "warning", sentence, tuple(f[0].name for f in far), numbers)]
    high = sorted((n for n in sound if n.absmax >= LARGE), key=lambda n: -n.absmax)
    if not high:
        return []
    sentence = f"elements up to {high[0].absmax:.3g} in {places([n.name for n in high])}: larger than in most models"
    return [Finding("weights.damaged", "note", sentence, tuple(n.name for n in high), {"absmax": high[0].absmax})]


def norms(c: Context, sound: Iterable[Numbers]) -> list[Finding]:
    """A warning for norms that turn the sign of most features."""
    layers = dict(norm_layers(c.start))
    negative = []
    for n in sound:
        if n.name not in layers or float(tensor(c, n.name).float().mean()) >= 0:
            continue
        scale = effective_scale(layers[n.name])
        if scale is not None and float(scale.mean()) < 0:
            negative.append((float(scale.mean()), n))
    if not negative:
        return []
    mean, worst = min(negative, key=lambda pair: pair[0])
    fault = blame(c, worst.name, worst.dtype, lambda t: float(t.float().mean()) < 0)
    sentence = (
        f"{worst.name} scales by {mean:.3g} on average, where a trained norm stays above 0; {fault.sentence}"
        f"{_more(len(negative))}"
    )
    id = "weights.damaged" if fault.culprit in ("file", "unknown") else "weights.uninitialised"
    names = tuple(n.name for _, n in sorted(negative, key=lambda pair: pair[0]))
    return [Finding(id, "warning", sentence, names, {"mean": mean, "file": fault.file, "tensors": len(names)})]


def tensor(c: Context, name: str) -> torch.Tensor:
    """A parameter or buffer of the start model."""
    found: torch.Tensor = c.start.get_parameter_or_buffer(name)
    return found.detach()


def _zero_scale(norm: nn.Module) -> bool:
    scale = effective_scale(norm)
    return scale is not None and bool((scale.abs() < TINY).all())


def _empty(stored: torch.Tensor) -> bool:
    return absmax(stored.reshape(-1)) < TINY


def _blocked(table: bool) -> Callable[[torch.Tensor], bool]:
    return lambda t: t.dim() > 0 and bool(blocks(tuple(t.shape), zero_runs(t.reshape(-1)), table))


def _like(stored: torch.Tensor, kind: str, value: float) -> bool:
    flat = stored.reshape(-1)
    size = absmax(flat) if kind == "absmax" else float(flat.float().square().mean().sqrt())
    return bool(np.isclose(size, value, rtol=0.5))


def _by_cause(bad: list[Bad], verb: str, of_file: str) -> list[Finding]:
    """One finding per cause: `of_file` where the file is at fault, overflow of the format, or never initialised."""
    causes = {"file": of_file, "unknown": of_file, "cast": of_file}
    if of_file == "weights.damaged":
        causes["cast"] = "precision.fp16_overflow"
    groups: dict[str, list[Bad]] = {}
    for b in bad:
        groups.setdefault(causes.get(b.fault.culprit, "weights.uninitialised"), []).append(b)
    findings = []
    for id, group in groups.items():
        first = group[0]
        names = tuple(b.name for b in group)
        files = sorted({b.fault.file for b in group if b.fault.file})
        sentence = (
            f"{len(group)} tensor{'s' if len(group) > 1 else ''} {verb}: {first.name} {first.what}; "
            f"{first.fault.sentence}{_more(len(group))}"
        )
        numbers = {"tensors": len(group), "culprit": first.fault.culprit, "files": files, **first.numbers}
        overrides = ("precision=fp32",) if id == "precision.fp16_overflow" else ()
        findings.append(Finding(id, "error", sentence, names, numbers, overrides))
    return findings


def _more(count: int) -> str:
    return f" ({count - 1} more)" if count > 1 else ""
