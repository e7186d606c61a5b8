"""LLaMA-Factory's `dataset_info.json`, read as it is."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from runner.config.schema import Source
from runner.data.files import loads, read_text
from runner.errors import DataError

_FORMATS = {"alpaca": "alpaca", "sharegpt": "sharegpt", "openai": "messages"}
_DEFAULT_COLUMNS = {
    "alpaca": {"prompt": "instruction", "query": "input", "response": "output"},
    "sharegpt": {"messages": "conversations"},
    "messages": {"messages": "messages"},
}
_OPTIONAL = {
    "alpaca": ("query", "system", "history", "tools"),
    "sharegpt": ("system", "tools"),
    "messages": ("system", "tools"),
}
_VISION = ("images", "videos", "audios")
_KNOWN = {
    "file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name", "formatting", "ranking",
    "subset", "split", "folder", "num_samples", "columns", "tags",
}  # fmt: skip


def read_dataset_info(folder: str, names: list[str]) -> tuple[dict[str, Source], list[str]]:
    """Sources for the `names` of `<folder>/dataset_info.json`, and notes on what was ignored in the entries.

    Raises DataError for a missing file, an unknown name (nearest names are given), and entries that are preference
    (DPO, KTO, reward) or vision and audio data, which this runner does not train on.
    """
    path = Path(folder).expanduser() / "dataset_info.json"
    if not path.is_file():
        why = (
            f"the folder {folder} does not exist"
            if not path.parent.is_dir()
            else f"{folder} holds no dataset_info.json"
        )
        raise DataError(
            f"dataset.dir={folder}: {why}. Set dataset.dir to LLaMA-Factory's data folder (the one with "
            "dataset_info.json)."
        )
    info = loads(path, read_text(path), 1)
    if not isinstance(info, dict):
        raise DataError(f"{path}: the top level must be an object of named entries, not a {type(info).__name__}.")
    sources: dict[str, Source] = {}
    notes: list[str] = []
    for name in names:
        if name not in info:
            near = difflib.get_close_matches(name, list(info), n=3, cutoff=0.5)
            told = f"did you mean {', '.join(near)}?" if near else f"it has: {', '.join(list(info)[:12])}"
            raise DataError(f"dataset.names: {name!r} is not in {path}; {told}")
        if not isinstance(info[name], dict):
            raise DataError(f"{path}: the entry {name!r} must be an object with file_name or hf_hub_url.")
        sources[name] = _source(path, name, info[name], notes)
    return sources, notes


def _source(path: Path, name: str, entry: dict[str, Any], notes: list[str]) -> Source:
    columns = dict(entry.get("columns") or {})
    _refuse(name, entry, columns)
    formatting = entry.get("formatting", "alpaca")
    if formatting not in _FORMATS:
        raise DataError(f"{path}: {name!r} has formatting={formatting!r}; known are {', '.join(_FORMATS)}.")
    form = _FORMATS[formatting]
    # LLaMA-Factory: with `columns` only the columns named there are used, without it the defaults; "" = not used.
    wanted = columns or dict(_DEFAULT_COLUMNS[form])
    for optional in _OPTIONAL[form]:
        wanted.setdefault(optional, "")
    ignored = sorted(k for k in entry if k not in _KNOWN)
    if ignored:
        notes.append(f"{name}: {', '.join(ignored)} of dataset_info.json are not used here")
    return Source(
        path=_where(path, name, entry, notes),
        format=form,  # type: ignore[arg-type]
        columns={str(k): str(v) if v is not None else "" for k, v in wanted.items()},
        tags={str(k): str(v) for k, v in (entry.get("tags") or {}).items()},
        split=entry.get("split") or "train",
        subset=entry.get("subset"),
        folder=entry.get("folder"),
        max_samples=entry.get("num_samples"),
    )


def _where(path: Path, name: str, entry: dict[str, Any], notes: list[str]) -> str:
    if entry.get("hf_hub_url"):
        if entry.get("file_name"):
            notes.append(
                f"{name}: read from the hub ({entry['hf_hub_url']}), as LLaMA-Factory does; file_name is not used"
            )
        return str(entry["hf_hub_url"])
    if entry.get("file_name"):
        return str(path.parent / entry["file_name"])
    for key, what in (
        ("script_url", "a loading script"),
        ("cloud_file_name", "cloud storage"),
        ("ms_hub_url", "ModelScope"),
        ("om_hub_url", "Modelers"),
    ):
        if entry.get(key):
            raise DataError(
                f"{path}: {name!r} comes only from {what} ({key}), which is not supported: download it and set "
                "file_name."
            )
    raise DataError(f"{path}: {name!r} has neither file_name nor hf_hub_url.")


def _refuse(name: str, entry: dict[str, Any], columns: dict[str, Any]) -> None:
    if entry.get("ranking") or columns.get("chosen") or columns.get("rejected"):
        raise DataError(
            f"{name!r} is preference data (ranking: chosen and rejected answers, for DPO); this runner does "
            "SFT and classification only."
        )
    if columns.get("kto_tag"):
        raise DataError(
            f"{name!r} is preference data (kto_tag, for KTO); this runner does SFT and classification only."
        )
    seen = [c for c in _VISION if columns.get(c)]
    if seen:
        raise DataError(f"{name!r} holds {seen[0]} (vision and audio data); this runner trains on text only.")
