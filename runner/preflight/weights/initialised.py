"""Tensors that no file holds: does the model's own initialiser fill them, and do two loads agree?"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, not_needed, ok, places
from runner.preflight.weights.audit import CHUNK, TINY, absmax, tensors
from runner.preflight.weights.blame import mismatched
from runner.preflight.weights.disk import origin
from runner.preflight.weights.tensors import LARGE
from runner.preflight.weights.twin import initialise_alone, untouched_share
from runner.training.rng import untouched


def initialised(c: Context) -> Result:
    """Every tensor that the files lack is filled by the model's own initialiser, and holds sane values."""
    if any(p.numel() == 0 or p.is_meta for p in c.start.parameters()):
        return not_needed("weights are offloaded or held by other processes")
    names = absent(c)
    if not names:
        return ok("the files hold every tensor")
    made = initialise_alone(c.start, names)
    findings = [*uncovered(made), *as_loaded(c, made)]
    heads = sum(isinstance(c.start.get_parameter_or_buffer(n), torch.nn.Parameter) for n in made)
    said = f"not in the files: parameters {heads}, buffers {len(made) - heads}"
    return found(f"{said}, {'all' if not findings else 'not all'} initialised", *findings)


def absent(c: Context) -> list[str]:
    """Names of parameters and buffers that come from no file, tied ones left out."""
    tied = set(getattr(c.start, "all_tied_weights_keys", {}))
    reported = (set(c.loading.get("missing_keys", ())) | mismatched(c)) - tied
    known = origin(c)
    if known.files.stored:
        reported |= set(c.start.state_dict()) - set(known.sources) - tied
    computed = {name for name, _ in c.start.named_non_persistent_buffers()}
    there = {name for name, _ in tensors(c.start)}
    return sorted((reported | computed) & there)


def uncovered(made: dict[str, torch.Tensor]) -> list[Finding]:
    """An error for tensors of which the initialiser leaves a part."""
    left = {name: untouched_share(tensor) for name, tensor in made.items()}
    names = sorted((n for n in left if left[n] > 0), key=lambda n: -left[n])
    if not names:
        return []
    part = "" if left[names[0]] == 1 else f" (of {names[0]} {100 * left[names[0]]:.0f} %)"
    sentence = (
        f"no file holds {places(names)} and the model's initialiser does not fill "
        f"{'it' if len(names) == 1 else 'them'}{part}: what was in memory before is trained, another value in each run"
    )
    numbers = {"tensors": len(names), "culprit": "initialiser", "share": left[names[0]]}
    return [Finding("weights.uninitialised", "error", sentence, tuple(names), numbers)]


def as_loaded(c: Context, made: dict[str, torch.Tensor]) -> list[Finding]:
    """An error for tensors that the initialiser does fill and that hold no sane values all the same."""
    wrong: list[tuple[str, str]] = []
    for name, tensor in made.items():
        value = c.start.get_parameter_or_buffer(name)
        if not value.is_floating_point() or not value.numel() or untouched_share(tensor) > 0:
            continue
        size, meant = absmax(value.detach().reshape(-1)), absmax(tensor.reshape(-1))
        if size != size or size == float("inf") != meant:
            wrong.append((name, "holds NaN or infinity"))
        elif size < TINY <= meant:
            wrong.append((name, "is all zero"))
        elif size > LARGE > meant:
            wrong.append((name, f"holds {size:.3g}"))
    if not wrong:
        return []
    name, what = wrong[0]
    sentence = f"no file holds {name}, and after loading it {what}, where the model's initialiser gives sane values"
    numbers = {"tensors": len(wrong), "culprit": "loader"}
    return [Finding("weights.uninitialised", "error", sentence, tuple(n for n, _ in wrong), numbers)]


def twice(c: Context) -> Result:
    """Two loads with one seed give the same bits."""
    if c.cfg.model.gguf_file and not c.loading.get("missing_keys"):
        return not_needed("dequantising a GGUF writes every element, and no key is missing")
    with untouched():
        second = c.load_again()
    try:
        differ, seen = different(dict(tensors(c.start)), dict(tensors(second)))
    finally:
        del second
    if not differ:
        return ok(f"{seen} tensors, the same bits")
    held = set(origin(c).sources)
    source = "its file holds it" if differ[0] in held else "no file holds it"
    sentence = (
        f"two loads with one seed differ in {len(differ)} of {seen} tensors: {places(differ)} ({source}), so "
        "they hold what was in memory before"
    )
    numbers = {"tensors": len(differ), "compared": seen}
    return found(
        f"{len(differ)} of {seen} differ", Finding("weights.uninitialised", "error", sentence, tuple(differ), numbers)
    )


def different(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> tuple[list[str], int]:
    """(names whose shape, dtype or bits differ or that one side lacks, how many names there are)."""
    names: Collection[str] = {**one, **two}
    return [n for n in names if n not in one or n not in two or not same_bits(one[n], two[n])], len(names)


def same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits; NaN equals itself."""
    if one.shape != two.shape or one.dtype != two.dtype or one.is_meta != two.is_meta:
        return False
    if one.is_meta or not one.numel():
        return True
    a, b = _bits(one), _bits(two)
    return all(torch.equal(a[i : i + CHUNK], b[i : i + CHUNK].to(a.device)) for i in range(0, len(a), CHUNK))


def _bits(tensor: torch.Tensor) -> Any:
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = tensor.detach().reshape(-1)
    return flat.view(whole[flat.element_size()]) if flat.element_size() in whole else torch.view_as_real(flat)
