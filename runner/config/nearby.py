"""What lies near a path that is not there."""

from __future__ import annotations

import difflib
from pathlib import Path


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
