"""Whether a path can only be local, and what lies near one that is not there."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

_ENDINGS = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".txt", ".gz", ".arrow")
_HUB_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?")


def looks_local(path: str) -> bool:
    """Whether `path` can only be a file or folder: a hub id is NAME or OWNER/NAME without a file's ending.

    OWNER/NAME where OWNER is a folder here is a misspelt file in that folder.
    """
    if path.startswith((".", "/", "~")) or path.lower().endswith(_ENDINGS) or not _HUB_NAME.fullmatch(path):
        return True
    return "/" in path and Path(path).parent.is_dir()


def near(path: Path) -> str:
    """A clause for an error about the missing `path`: names like it in the deepest folder that exists, else a few of
    what that folder holds."""
    path = path.expanduser()
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    missing = path.relative_to(folder).parts[0] if path != folder else path.name
    try:
        there = sorted(p.name for p in folder.iterdir())
    except OSError:
        return f" (and {folder} cannot be listed)"
    alike = difflib.get_close_matches(missing, there, n=3, cutoff=0.5)
    if alike:
        return f"; near it in {folder.resolve()}: {', '.join(alike)}"
    return f" ({folder.resolve()} holds: {', '.join(there[:6]) or 'nothing'})"
