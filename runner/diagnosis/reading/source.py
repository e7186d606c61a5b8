"""From a path to the text of a log: gzip, encodings, the standard input, and what stands where a log should be."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

from runner.errors import UserError

UNDERSTOOD = (
    "a run folder of this project; trainer_state.json; trainer_log.jsonl of LLaMA-Factory; "
    "logging.jsonl of ms-swift; one JSON record a line; a console log with lines such as {'loss': 0.91, 'epoch': 0.1}; "
    "TensorBoard event files; CSV with columns step and loss (also W&B exports); each also as .gz"
)


def load(path: Path) -> bytes:
    """The bytes of `path`, unpacked where they are gzip's; `-` reads the standard input.

    Raises `UserError` for what is absent, may not be read, or is only a Git LFS pointer.
    """
    try:
        content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist. Name a log, or a folder that holds one.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}). Name a log that you may read.") from error
    if content[:2] == b"\x1f\x8b":
        content = _unpack(content, path)
    if content.startswith(b"version https://git-lfs"):
        raise UserError(
            f"{path} is a Git LFS pointer: the log itself was not downloaded. Get it with `git lfs pull`, then name it "
            "again."
        )
    return content


def _unpack(content: bytes, path: Path) -> bytes:
    """What gzip packed into `content`, as far as it goes where the file was cut short."""
    parts = []
    try:
        while content[:2] == b"\x1f\x8b":
            stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
            parts.append(stream.decompress(content))
            content = stream.unused_data
    except zlib.error as error:
        if not parts:
            raise UserError(f"{path} is broken: it begins like gzip and cannot be unpacked ({error}).") from error
    return b"".join(parts)


def decode(content: bytes) -> str | None:
    """`content` as text; None where it is binary. PowerShell writes UTF-16 into files."""
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if content.startswith(mark):
            return content.decode(encoding, errors="replace")
    if content[:4096].count(0) > 0.01 * len(content[:4096]):
        return None
    return content.decode("utf-8", errors="replace").replace("\x00", "")
