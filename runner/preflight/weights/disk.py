"""The weight files of a model: where they are, what their headers list, and which tensor of the model each fills."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import try_to_load_from_cache
from safetensors import safe_open

from runner.config.schema import Model
from runner.preflight.context import Context

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
HEADER_MOST = 100_000_000
"""Bytes; the format allows no longer header."""


class HeaderError(ValueError):
    """A safetensors header that cannot be read; the message says why."""


@dataclass(frozen=True)
class Stored:
    """One tensor in a safetensors file."""

    name: str
    """Its key in the file, which may differ from its name in the model."""

    file: Path
    dtype: str
    """As the format writes it: F32, BF16, ..."""

    shape: tuple[int, ...]
    begin: int
    end: int
    """Bytes from the start of the file."""

    def read(self) -> torch.Tensor:
        """The tensor, mapped from the file."""
        with safe_open(self.file, framework="pt") as content:
            tensor: torch.Tensor = content.get_tensor(self.name)
        return tensor


@dataclass(frozen=True)
class WeightFiles:
    """What a model is loaded from."""

    kind: Literal["safetensors", "gguf", "pickle", "absent"]
    """Only safetensors are read; pickle stands for pytorch_model.bin, absent for anything that was not found."""

    files: tuple[Path, ...] = ()
    index: Path | None = None
    """model.safetensors.index.json where the weights are in shards."""

    stored: dict[str, Stored] = field(default_factory=dict)
    """{key: tensor} over all files."""

    @property
    def why_not(self) -> str:
        """Why the files cannot be compared with the model, a few words; empty for safetensors."""
        said = {
            "gguf": "a GGUF is dequantised at loading",
            "pickle": "pytorch_model.bin is not read",
            "absent": "no weight file was found",
        }
        return said.get(self.kind, "")


def read_header(file: Path) -> tuple[dict[str, Any], int]:
    """({key: {dtype, shape, data_offsets}}, first byte of the data) of a safetensors file. Raises `HeaderError`."""
    size = file.stat().st_size
    with file.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        if size < 8 or length > min(HEADER_MOST, size - 8):
            raise HeaderError(f"{size:,} bytes do not hold the header of {length:,} bytes that it announces")
        try:
            header = json.loads(content.read(length))
        except ValueError as error:
            raise HeaderError(f"its header is not JSON ({error})") from error
    header.pop("__metadata__", None)
    return header, 8 + length


def tensors_of(file: Path) -> dict[str, Stored]:
    """{key: tensor} of one file. Raises `HeaderError`."""
    header, start = read_header(file)
    return {
        key: Stored(
            key,
            file,
            entry["dtype"],
            tuple(entry["shape"]),
            start + entry["data_offsets"][0],
            start + entry["data_offsets"][1],
        )
        for key, entry in header.items()
    }


def find(model: Model, name: str) -> Path | None:
    """A file of the model: in its local folder, or in the hub's cache."""
    folder = Path(model.path).expanduser()
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    cached = try_to_load_from_cache(model.path, name, revision=model.revision or "main")
    return Path(cached) if isinstance(cached, str) else None


def shards(index: Path) -> dict[str, str]:
    """{key: file name} of an index. Raises `HeaderError` where it is no index."""
    try:
        listed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError) as error:
        raise HeaderError(f"it is no index ({type(error).__name__}: {error})") from error
    return dict(listed)


def weight_files(model: Model) -> WeightFiles:
    """The files that transformers loads, in its order of preference. Raises `HeaderError` for a broken header."""
    if model.gguf_file:
        return WeightFiles("gguf")
    index: Path | None = None
    single = find(model, SINGLE)
    if single is not None:
        files: Sequence[Path] = (single,)
    else:
        index = find(model, INDEX)
        if index is None:
            pickled = find(model, "pytorch_model.bin") or find(model, "pytorch_model.bin.index.json")
            return WeightFiles("pickle" if pickled else "absent")
        # Shards of the hub's cache are beside the index, each a link of its own.
        files = [index.parent / name for name in sorted(set(shards(index).values()))]
    stored: dict[str, Stored] = {}
    for file in files:
        stored.update(tensors_of(file))
    return WeightFiles("safetensors", tuple(files), index, stored)


@dataclass(frozen=True)
class Source:
    """A tensor of the files that fills a tensor of the model."""

    stored: Stored
    alone: bool
    """Whether it is the tensor of the model as it stands; False where the loader splits, merges or transposes."""


def sources(model: Any, files: WeightFiles) -> dict[str, list[Source]]:
    """{name in the model: tensors of the files that fill it}, by the renaming rules of transformers' own loader."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    rules = get_model_conversion_mapping(model)
    renamings = [r for r in rules if isinstance(r, WeightRenaming)]
    converters = [r for r in rules if isinstance(r, WeightConverter)]
    by_pattern = {pattern: c for c in converters for pattern in c.source_patterns}
    known = model.state_dict()
    filled: dict[str, list[Source]] = {}
    for key, stored in files.stored.items():
        name, pattern = rename_source_key(key, renamings, converters, model.base_model_prefix, known)
        if name not in known and key in known:
            name, pattern = rename_source_key(key, [], [], model.base_model_prefix, known)
        if pattern is None:
            filled.setdefault(name, []).append(Source(stored, True))
            continue
        targets = by_pattern[pattern].target_patterns
        for target in targets:
            filled.setdefault(name.replace(targets[0], target), []).append(Source(stored, False))
    for alias, first in getattr(model, "all_tied_weights_keys", {}).items():
        # A tied tensor may be in the files under either name.
        both = filled.get(first) or filled.get(alias)
        if both:
            filled[first] = filled[alias] = both
    return filled


@dataclass(frozen=True)
class Origin:
    """Where the tensors of the loaded model come from."""

    files: WeightFiles
    sources: dict[str, list[Source]]


def origin(c: Context) -> Origin:
    """Files and sources of the start model; read once, kept in the facts."""
    known = c.facts.get("weights.origin")
    if known is None:
        files = weight_files(c.cfg.model)
        known = c.facts["weights.origin"] = Origin(files, sources(c.start, files) if files.stored else {})
    result: Origin = known
    return result
