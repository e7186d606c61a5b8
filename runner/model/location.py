"""Where weights come from, and what to say when they do not come."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

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


@contextlib.contextmanager
def hub_errors(path: str, what: str) -> Iterator[None]:
    """Turn the library's errors while loading `what` from `path` into one sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        offline = os.environ.get("HF_HUB_OFFLINE") == "1"
        way = "Offline mode is on (hub=offline or HF_HUB_OFFLINE=1)." if offline else "HF_ENDPOINT sets a mirror."
        if "trust_remote_code" in str(error):
            way = "It ships Python code of its own: read that code, then set model.trust_remote_code=true."
        elif Path(path).exists():
            way = "The folder is there but incomplete or damaged: copy or download it again."
        raise UserError(f"model.path={path}: no {what} could be loaded ({first}). {way}") from error
