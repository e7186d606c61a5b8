"""The config.json beside the weights, read as JSON: the configuration stage imports neither torch nor transformers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from runner.config.schema import Model
from runner.runfolder import read_json


def hub_cache() -> Path:
    """Folder of downloaded models, by the environment variables that huggingface_hub reads, in its order."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return Path(named).expanduser()
    home = os.environ.get("HF_HOME")
    if home:
        return Path(home).expanduser() / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def config_path(model: Model) -> Path | None:
    """The config.json of a local folder or of the hub's cache; None where the model is not on this machine yet."""
    local = Path(model.path).expanduser()
    if local.is_dir():
        return local / "config.json" if (local / "config.json").is_file() else None
    folder = hub_cache() / f"models--{model.path.replace('/', '--')}"
    revision = model.revision or "main"
    pointer = folder / "refs" / revision
    commit = pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else revision
    path = folder / "snapshots" / commit / "config.json"
    return path if path.is_file() else None


def config_json(model: Model) -> dict[str, Any]:
    """Content of config.json, that of a nested text_config filled in below it; {} where it is not on this machine."""
    path = config_path(model)
    content = (read_json(path) if path is not None else None) or {}
    inner = content.get("text_config")
    return {**inner, **content} if isinstance(inner, dict) else content


def width(model: Model) -> int | None:
    """`hidden_size`, where config.json is on this machine and says it."""
    value = config_json(model).get("hidden_size")
    return value if isinstance(value, int) else None
