"""The folder name of one trial of a sweep, made from its overrides."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

LONGEST_CHARS = 120
LONGEST_BYTES = 200

_PLAIN = re.compile(r"[\w.=+-]+")  # \w is Unicode: Chinese labels stay readable
_UNSAFE = re.compile(r"[^\w.=+,-]+")


def _cut(text: str, chars: int, size: int) -> str:
    """The longest head of `text` within `chars` characters and `size` bytes of UTF-8."""
    return text[:chars].encode()[:size].decode(errors="ignore")


def trial_name(overrides: Sequence[str]) -> str:
    """Overrides joined by commas; if anything had to be replaced or cut, ended by `~` and a hash of the originals.

    Two different lists never share a name: `~` occurs only before the hash, and an unhashed name is exactly its
    overrides, none of which holds a comma.
    """
    given = [str(o) for o in overrides]
    if not given:
        return "defaults"
    name = ",".join(given)
    whole = len(name) <= LONGEST_CHARS and len(name.encode(errors="replace")) <= LONGEST_BYTES
    if whole and all(_PLAIN.fullmatch(o) for o in given) and any("=" in o for o in given):
        return name
    digest = hashlib.sha256(repr(given).encode(errors="backslashreplace")).hexdigest()[:12]
    safe = _UNSAFE.sub("_", name.replace("++", "")).encode(errors="replace").decode()
    return _cut(safe, LONGEST_CHARS - 13, LONGEST_BYTES - 13) + "~" + digest
