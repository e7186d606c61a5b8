"""Where weights come from, and what to say when they do not come."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from runner.config.nearby import looks_local, near
from runner.errors import UserError


def check_location(path: str) -> None:
    """Raise `UserError` where `path` looks like a local folder and is not there."""
    local = Path(path).expanduser()
    if not looks_local(path) or local.exists():
        return
    raise UserError(
        f"model.path={path}: there is no such folder{near(local)}. Give a local folder or a hub id (Qwen/Qwen2.5-7B)."
    )


def damaged_files(path: str) -> list[str]:
    """Names of the weight files in a local folder that cannot be opened, or that its index lists and that are not
    there; empty for a hub id.
    """
    folder = Path(path).expanduser()
    index = folder / "model.safetensors.index.json"
    listed: set[str] = set()
    if index.is_file():
        try:
            listed = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError):
            return [index.name]
    damaged = [name for name in sorted(listed) if not (folder / name).is_file()]
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy"):
                pass
        except SafetensorError:
            damaged.append(file.name)
    return damaged


@contextlib.contextmanager
def hub_errors(path: str, what: str) -> Iterator[None]:
    """Turn the library's errors while loading `what` from `path` into one sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        offline = os.environ.get("HF_HUB_OFFLINE") == "1"
        way = "Offline mode is on (hub=offline or HF_HUB_OFFLINE=1)." if offline else "HF_ENDPOINT sets a mirror."
        damaged: list[str] = []
        if "trust_remote_code" in str(error):
            way = "It ships Python code of its own: read that code, then set model.trust_remote_code=true."
        elif Path(path).exists():
            damaged = damaged_files(path) if what == "weights" else []
            named = f" ({', '.join(damaged[:4])})" if damaged else ""
            way = f"The folder is there but incomplete or damaged{named}: copy or download it again."
        unreadable = bool(damaged) or isinstance(error, SafetensorError)
        raise UserError(
            f"model.path={path}: no {what} could be loaded ({first}). {way}",
            finding="weights.damaged" if unreadable else None,
            where=damaged,
        ) from error
