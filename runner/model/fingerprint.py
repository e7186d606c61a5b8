"""Whether weights on disk are the ones that a run was started from."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

PARTS = (".safetensors", ".bin", ".gguf", ".pt")


def weights_hash(path: str) -> str | None:
    """SHA-256 over names and contents of the weight files and the `config.json` in a local folder.

    None where `path` is no local folder, as a hub id. Reads every file, about 1 GB/s; asked again for files of the same
    sizes and times, it remembers.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return None
    files = sorted(f for f in folder.iterdir() if f.suffix in PARTS or f.name == "config.json")
    return _hash(tuple((f, f.stat().st_size, f.stat().st_mtime_ns) for f in files))


@lru_cache(maxsize=8)
def _hash(files: tuple[tuple[Path, int, int], ...]) -> str:
    total = hashlib.sha256()
    for file, size, _ in files:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        total.update(f"{file.name} {size} {digest}\n".encode())
    return total.hexdigest()
