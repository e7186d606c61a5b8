"""The loaded tensors against the bytes in their files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, not_needed, places
from runner.preflight.weights.audit import CHUNK, tensors
from runner.preflight.weights.blame import mismatched
from runner.preflight.weights.disk import Source, origin
from runner.preflight.weights.initialised import same_bits
from runner.preflight.weights.tensors import bad_tensors


def against_files(c: Context) -> Result:
    """Loaded tensors equal the bytes in the files after the cast to the loaded number format."""
    known = origin(c)
    if known.files.why_not:
        return not_needed(known.files.why_not)
    told = bad_tensors(c) | mismatched(c)
    same, built = 0, 0
    differ: list[str] = []
    shapes: list[str] = []
    for name, tensor in tensors(c.start):
        if name not in known.sources:
            continue
        verdict = compare(tensor, known.sources[name])
        if verdict == "same":
            same += 1
        elif verdict == "built":
            built += 1
        elif name not in told:
            (shapes if verdict == "shape" else differ).append(name)
    said = f"{same} tensors equal their files"
    if built:
        said += f", {built} converted, quantised or offloaded and not compared"
    return found(said, *unequal(differ, shapes))


def compare(tensor: torch.Tensor, made_of: Sequence[Source]) -> Literal["same", "differs", "shape", "built"]:
    """A loaded tensor against what the files hold of it. built: it is not one tensor of theirs, so nothing is known.

    Rows added behind those of the file, as for new tokens, are no difference.
    """
    if len(made_of) != 1 or not made_of[0].alone or tensor.is_meta or not tensor.numel():
        return "built"
    stored = made_of[0].stored.read()
    if stored.is_floating_point() != tensor.is_floating_point():
        return "built"
    if not tensor.dim():
        return "same" if same_bits(tensor.detach(), stored.to(tensor.dtype)) else "differs"
    rows = stored.shape[0] if stored.dim() else 0
    if stored.dim() != tensor.dim() or stored.shape[1:] != tensor.shape[1:] or rows > tensor.shape[0]:
        return "shape"
    step = max(1, CHUNK // max(1, stored[:1].numel()))
    for i in range(0, rows, step):
        here, there = tensor.detach()[i : min(i + step, rows)].cpu(), stored[i : i + step]
        if not same_bits(here, there.to(tensor.dtype)):
            return "differs"
    return "same"


def unequal(differ: list[str], shapes: list[str]) -> list[Finding]:
    """An error for tensors that the loader took from elsewhere than their names say."""
    if not differ and not shapes:
        return []
    names = [*shapes, *differ]
    said = "another shape than" if shapes else "other values than"
    sentence = (
        f"{len(names)} loaded tensors are not those of the files: {places(names)}; the first has {said} its file, so "
        "the loader is at fault"
    )
    numbers = {"tensors": len(names), "other_shape": len(shapes), "culprit": "loader"}
    return [Finding("weights.keys_do_not_match", "error", sentence, tuple(names), numbers)]
