"""From a source's path to its raw rows: a file, a folder of files, or a data set on the hub."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.config.nearby import looks_local, near
from runner.config.schema import Dataset, Source
from runner.data.files import EXTENSIONS, read_file
from runner.data.llamafactory import read_dataset_info
from runner.errors import DataError


def resolve_sources(dataset: Dataset) -> tuple[dict[str, Source], list[str]]:
    """All sources of a dataset config by name (`sources`, `path` alone, LLaMA-Factory's `dir` + `names`), and notes."""
    sources: dict[str, Source] = dict(dataset.sources)
    notes: list[str] = []
    if dataset.names:
        entries, notes = read_dataset_info(dataset.dir or "data", list(dataset.names))
        both = sorted(set(sources) & set(entries))
        if both:
            raise DataError(
                f"{both[0]!r} is both in dataset.sources and in dataset.names: rename the one in dataset.sources."
            )
        sources.update(entries)
    elif not sources and dataset.path:
        sources["file"] = Source(path=dataset.path)
    if not sources:
        raise DataError(
            "There is nothing to train on: set dataset=file dataset.path=rows.jsonl, or fill dataset.sources."
        )
    return sources, notes


def load_rows(name: str, source: Source, offline: bool = False) -> list[Any]:
    """Raw rows of one source, in file order; files of a folder are read in the order of their names.

    Raises DataError if the path is neither here nor a reachable hub data set, or holds nothing readable.
    """
    try:
        path = Path(source.path).expanduser()
        is_folder, is_there = path.is_dir(), path.exists()
    except (OSError, RuntimeError) as error:
        raise DataError(f"dataset.sources.{name}.path={source.path} cannot be looked up ({error}).") from error
    if is_folder:
        return [row for file in folder_files(path) for row in read_file(file)]
    if is_there:
        if path.suffix.lower() not in EXTENSIONS:
            raise DataError(
                f"dataset.sources.{name}.path={source.path}: cannot read "
                f"{path.suffix or 'a file without ending'}; {_KINDS}"
            )
        return read_file(path)
    if looks_local(source.path):
        raise DataError(f"dataset.sources.{name}.path={source.path}: no such file or folder{near(path)}.")
    return _load_from_hub(name, source, offline)


_KINDS = "readable are " + ", ".join(EXTENSIONS) + " files, folders of them, and hub names."


def folder_files(folder: Path) -> list[Path]:
    """Files of a folder that are read, in order; those of sub-folders only if it has none itself. DataError if none."""

    def readable(paths: Iterator[Path]) -> list[Path]:
        kinds = (p for p in paths if p.suffix.lower() in EXTENSIONS and p.is_file() and p.name != "dataset_info.json")
        return sorted(p for p in kinds if not any(part.startswith(".") for part in p.relative_to(folder).parts))

    try:
        files = readable(folder.iterdir()) or readable(folder.rglob("*"))
        there = sorted(p.name for p in folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror or error}.") from error
    if not files:
        listed = f" It holds: {', '.join(there[:8])}." if there else " It is empty."
        raise DataError(f"The folder {folder} has no file to read; {_KINDS}{listed}")
    return files


@contextlib.contextmanager
def _offline(on: bool) -> Iterator[None]:
    """hub=offline for the calls inside; both libraries read their environment variable only once, at import."""
    import datasets.config
    import huggingface_hub.constants

    places: list[Any] = [datasets.config, huggingface_hub.constants]
    before = [m.HF_HUB_OFFLINE for m in places]
    try:
        for module in places if on else []:
            module.HF_HUB_OFFLINE = True
        yield
    finally:
        for module, value in zip(places, before, strict=True):
            module.HF_HUB_OFFLINE = value


def _load_from_hub(name: str, source: Source, offline: bool) -> list[Any]:
    import datasets
    import datasets.exceptions
    import huggingface_hub.errors

    http = huggingface_hub.errors.HfHubHTTPError
    unreachable = (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError, http)
    try:
        with _offline(offline):
            table = datasets.load_dataset(
                source.path, name=source.subset, split=source.split, revision=source.revision, data_dir=source.folder
            )
    except unreachable as error:
        is_off = offline or os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
        why = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        remedy = (
            "The hub is switched off (hub=offline or HF_HUB_OFFLINE): download the data first, or allow the "
            "hub with hub=auto "
            "and HF_HUB_OFFLINE unset"
            if is_off
            else "Without access to the hub set HF_ENDPOINT=<a mirror>, or HF_TOKEN for a gated data set"
        )
        raise DataError(
            f"dataset.sources.{name}.path={source.path} is neither a file or folder here ({Path.cwd()}) nor a "
            "data set that the "
            f"hub gave: {why} {remedy}; or set dataset.sources.{name}.path to a local file."
        ) from error
    if not isinstance(table, datasets.Dataset):
        raise DataError(f"dataset.sources.{name}.split={source.split} of {source.path} gives several splits; name one.")
    rows: list[Any] = table.to_list()
    if not rows:
        raise DataError(f"The data set {source.path}, split {source.split}, is empty.")
    for column, feature in table.features.items():
        if isinstance(feature, datasets.ClassLabel):
            for row in rows:
                value = row[column]
                row[column] = feature.int2str(value) if value is not None and value >= 0 else None
    return rows
