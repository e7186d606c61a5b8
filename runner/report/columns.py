"""Text in terminal columns: a Chinese character takes two, lines break at words and never before a comma."""

from __future__ import annotations

import re

from rich.cells import cell_len

CLOSING = "，。；：！？、）》」』】”’…％%"
OPENING = "（《「『【“‘"
_SHELL_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+""")


def clean(text: str) -> str:
    """`text` on one line, without control characters; spaces that align columns stay."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text).strip()


def atoms(text: str) -> list[str]:
    """Pieces that a line may be broken between: words, single wide characters with their punctuation, spaces."""
    pieces: list[str] = []
    for letter in text:
        last = pieces[-1] if pieces else ""
        narrow = cell_len(letter) < 2 and letter != " "
        joins = last and last[-1] != " " and letter != " "
        if joins and (
            letter in CLOSING or last[-1] in OPENING or (narrow and cell_len(last[-1]) < 2 and letter not in OPENING)
        ):
            pieces[-1] += letter
        elif letter == " " and last and last[-1] == " ":
            pieces[-1] += letter
        else:
            pieces.append(letter)
    return pieces


def wrap(text: str, room: int) -> list[str]:
    """`text` in lines of at most `room` columns, two or more; a word that is longer than a line is broken."""
    rows, row = [], ""
    for piece in atoms(text):
        if cell_len(row + piece.rstrip()) <= room:
            row += piece
            continue
        if row.strip():
            rows.append(row.rstrip())
        row = piece.lstrip()
        while cell_len(row) > room:
            head = _fitting(row, room)
            rows.append(head)
            row = row[len(head) :]
    return [*rows, row.rstrip()] if row.strip() else rows


def wrap_shell(command: str, room: int) -> list[str]:
    """A command line in lines that a shell joins again: broken between words, a backslash at the end."""
    if cell_len(command) <= room:
        return [command]
    rows, row = [], ""
    for word in _SHELL_WORD.findall(command):
        longer = f"{row} {word}" if row else word
        if row and cell_len(longer) > room - 2:
            rows.append(row + " \\")
            row = word
        else:
            row = longer
    rows.append(row)
    if any(cell_len(r) > room for r in rows):
        return wrap(command, room)
    return rows


def cut(text: str, room: int, always: bool = False) -> str:
    """`text` in `room` columns, cut at a word with an ellipsis where it is longer; `always` adds the ellipsis."""
    if cell_len(text) <= room and not always:
        return text
    kept = ""
    for piece in atoms(text):
        if cell_len(kept + piece.rstrip()) > room - 1:
            break
        kept += piece
    kept = kept.rstrip(" ，；：、,;:") or _fitting(text, room - 1)
    return kept + "…"


def _fitting(text: str, room: int) -> str:
    """The longest start of `text` in `room` columns, one character at least."""
    n = 1
    while n < len(text) and cell_len(text[: n + 1]) <= room:
        n += 1
    return text[:n]
