"""Weight files on disk: whole, as their index and checksums say, and without holes."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, not_needed, places
from runner.preflight.weights.against import against_files as against_files
from runner.preflight.weights.audit import TINY, absmax, audit, blocks, zero_runs
from runner.preflight.weights.disk import Origin, Stored, WeightFiles, origin, read_header, shards
from runner.preflight.weights.tensors import empty_tensors

HOLE = 4096
"""Bytes of a tensor in a hole of a sparse file from which the tensor is read."""


def files(c: Context) -> Result:
    """Shards and headers against the index, holes, and with checks.level=deep the checksums."""
    known = origin(c)
    weights = known.files
    if weights.why_not:
        return not_needed(weights.why_not)
    size = sum(f.stat().st_size for f in weights.files)
    findings = [*against_index(weights), *wrong_sizes(weights), *in_holes(c, known)]
    said = f"{len(weights.files)} file{'s' if len(weights.files) > 1 else ''}, {size / 1e6:,.1f} MB"
    sums = checksums(weights.files)
    if sums and c.level != "deep":
        said += ", checksums only with checks.level=deep"
    elif sums:
        findings += wrong_checksums(sums)
        said += f", {len(sums)} checksum{'s' if len(sums) > 1 else ''}"
    else:
        said += ", no checksum to compare"
    return found(said, *findings)


def against_index(weights: WeightFiles) -> list[Finding]:
    """Errors for tensors that the index puts where they are not, a note for a total that is not the sum."""
    if weights.index is None:
        return []
    listed = shards(weights.index)
    lost = sorted(k for k, f in listed.items() if k not in weights.stored or weights.stored[k].file.name != f)
    findings = []
    if lost:
        file = listed[lost[0]]
        sentence = f"{weights.index.name} lists {places(lost)} in {file}, whose header does not: {len(lost)} tensors"
        numbers = {"tensors": len(lost), "files": sorted({listed[k] for k in lost})}
        findings.append(Finding("weights.damaged", "error", sentence, tuple(lost), numbers))
    metadata = json.loads(weights.index.read_text(encoding="utf-8")).get("metadata") or {}
    total, actual = metadata.get("total_size"), sum(s.end - s.begin for s in weights.stored.values())
    if total is not None and int(total) != actual:
        sentence = f"{weights.index.name} says total_size {int(total):,}, its shards hold {actual:,} bytes of tensors"
        numbers = {"total_size": int(total), "actual": actual}
        findings.append(Finding("weights.damaged", "note", sentence, (weights.index.name,), numbers))
    return findings


def wrong_sizes(weights: WeightFiles) -> list[Finding]:
    """An error for files that are shorter or longer than their header says."""
    wrong = []
    for file in weights.files:
        _, start = read_header(file)
        ends = [s.end for s in weights.stored.values() if s.file == file]
        wanted, actual = max(ends, default=start), file.stat().st_size
        if wanted != actual:
            wrong.append((file.name, wanted, actual))
    if not wrong:
        return []
    name, wanted, actual = wrong[0]
    sentence = f"{name} has {actual:,} bytes, its header lists {wanted:,}"
    numbers = {"files": [w[0] for w in wrong], "bytes": actual, "wanted": wanted}
    return [Finding("weights.damaged", "error", sentence, tuple(w[0] for w in wrong), numbers)]


def holes(file: Path) -> list[tuple[int, int]]:
    """(first byte, behind the last) of each hole of a sparse file; empty where the file system knows none."""
    size, found_holes, at = file.stat().st_size, [], 0
    if not hasattr(os, "SEEK_HOLE"):
        return []
    with file.open("rb") as content:
        handle = content.fileno()
        while at < size:
            begin = os.lseek(handle, at, os.SEEK_HOLE)
            if begin >= size:
                break
            end = _data_after(handle, begin, size)
            found_holes.append((begin, end))
            at = end
    return found_holes


def _data_after(handle: int, begin: int, size: int) -> int:
    try:
        return os.lseek(handle, begin, os.SEEK_DATA)
    except OSError:
        # ENXIO: the hole reaches to the end of the file.
        return size


def overlapping(stored: Iterable[Stored], gaps: Iterable[tuple[int, int]], least: int = HOLE) -> list[Stored]:
    """Tensors of one file of which `least` bytes or more, or all, lie in one of `gaps`."""
    gaps = list(gaps)
    hit = []
    for s in stored:
        most = max((min(s.end, e) - max(s.begin, b) for b, e in gaps), default=0)
        if most > 0 and most >= min(least, s.end - s.begin):
            hit.append(s)
    return hit


def in_holes(c: Context, known: Origin) -> list[Finding]:
    """An error for tensors in holes of a sparse file that are filled with zeros, those left out that `finite` names."""
    # By the audit's names: a tied tensor has another one too.
    seen = audit(c)
    names = {s.stored.name: name for name in seen.numbers for s in known.sources.get(name, [])}
    told = {n.name for n in empty_tensors(c, seen)}
    bad: list[Stored] = []
    for file in known.files.files:
        mine = [s for s in known.files.stored.values() if s.file == file]
        for s in overlapping(mine, holes(file)):
            name = names.get(s.name)
            if len(s.shape) < 2 or name in told:
                continue
            flat = s.read().reshape(-1)
            if absmax(flat) < TINY or blocks(s.shape, zero_runs(flat), name is not None and seen.numbers[name].table):
                bad.append(s)
    if not bad:
        return []
    sentence = (
        f"{bad[0].file.name} has holes where {len(bad)} tensor{'s' if len(bad) > 1 else ''} should be "
        f"({places([s.name for s in bad])}): they read as zeros"
    )
    numbers = {"tensors": len(bad), "files": sorted({s.file.name for s in bad})}
    return [Finding("weights.zero_filled", "error", sentence, tuple(s.name for s in bad), numbers)]


def checksums(paths: Iterable[Path]) -> dict[Path, str]:
    """{file: sha256 it should have}: the name of a blob of the hub's cache, FILE.sha256 or SHA256SUMS beside it."""
    known: dict[Path, str] = {}
    for file in paths:
        blob = file.resolve()
        if blob.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", blob.name):
            known[file] = blob.name
            continue
        for beside in (file.with_name(f"{file.name}.sha256"), file.with_name("SHA256SUMS")):
            if beside.is_file() and (sum_ := _listed(beside, file.name)):
                known[file] = sum_
                break
    return known


def _listed(beside: Path, name: str) -> str | None:
    for line in beside.read_text(encoding="utf-8").splitlines():
        matched = re.fullmatch(r"([0-9a-fA-F]{64})(?:\s+\*?(.+))?", line.strip())
        if matched and (matched[2] or name) in (name, f"./{name}"):
            return matched[1].lower()
    return None


def wrong_checksums(sums: dict[Path, str]) -> list[Finding]:
    """An error for files whose sha256 is another; reads them, about 1 GB/s."""
    wrong = []
    for file, wanted in sums.items():
        with file.open("rb") as content:
            actual = hashlib.file_digest(content, "sha256").hexdigest()
        if actual != wanted:
            wrong.append((file.name, wanted, actual))
    if not wrong:
        return []
    name, wanted, actual = wrong[0]
    sentence = (
        f"{name} has sha256 {actual[:12]}..., published is {wanted[:12]}...: its bytes are not the published ones"
    )
    numbers = {"files": [w[0] for w in wrong], "sha256": actual, "wanted": wanted}
    return [Finding("weights.damaged", "error", sentence, tuple(w[0] for w in wrong), numbers)]
