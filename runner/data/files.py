"""Read json, jsonl, csv, tsv and parquet into Python rows, without guessing column types.

Arrow's type inference fails on real files (a column that is sometimes a number, null inputs), so text formats are read
with the standard library. Every mistake is a `DataError` that names file and place.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from runner.errors import DataError

EXTENSIONS = (".json", ".jsonl", ".csv", ".tsv", ".parquet")
"""File name endings that are read, in lower case."""

_OTHER_ENCODINGS = ("gb18030", "big5", "shift_jis", "cp1252")
_LISTS_OF_A_ROW = {
    "messages",
    "conversations",
    "conversation",
    "history",
    "tools",
    "prompt",
    "completion",
    "tool_calls",
}


def read_file(path: Path) -> list[Any]:
    """Rows of one file. JSONL named `.json`, arrays named `.jsonl`, a BOM and blank lines are tolerated.

    Raises DataError for a file that cannot be opened, decoded or parsed (with line and column), or holds no row.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            rows = _read_parquet(path)
        else:
            text = decode(path, path.read_bytes())
            if not text.strip():
                raise DataError(f"{path} is empty: it holds no row.")
            rows = _parse_csv(path, text) if suffix in (".csv", ".tsv") else _parse_json(path, text)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not rows:
        raise DataError(f"{path} is empty: it holds no row.")
    return rows


def read_text(path: Path) -> str:
    """UTF-8 text of a file; DataError if it cannot be opened or decoded."""
    try:
        return decode(path, path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def decode(path: Path, raw: bytes) -> str:
    """UTF-8 text of a file, without BOM; DataError names the offending byte and the encoding the file may have."""
    for bom, name in ((codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16")):
        if raw.startswith(bom):
            raise DataError(
                f"{path} is {name}, not UTF-8. Convert it: iconv -f {name} -t UTF-8 {path.name} > new{path.suffix}"
            )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        guess = next((e for e in _OTHER_ENCODINGS if _decodes(raw, e)), "latin-1").upper()
        raise DataError(
            f"{path}, line {line}: byte 0x{raw[error.start]:02x} at offset {error.start} is not UTF-8. If the "
            f"file is {guess}, "
            f"convert it: iconv -f {guess} -t UTF-8 {path.name} > new{path.suffix}"
        ) from error


def _decodes(raw: bytes, encoding: str) -> bool:
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _parse_json(path: Path, text: str) -> list[Any]:
    # Only "\n" ends a line of JSONL: U+2028 and the like are legal inside JSON strings.
    lines = [(n, line.strip()) for n, line in enumerate(text.split("\n"), 1)]
    lines = [(n, line) for n, line in lines if line]
    first = lines[0][1]
    named_jsonl = path.suffix.lower() == ".jsonl"
    if len(lines) > 1:
        complete = _is_json(first) and (named_jsonl or first.startswith("{"))
        # A malformed first line must not turn a JSONL file into one broken document.
        if complete or (first.startswith("{") and first != "{" and lines[1][1].startswith("{")):
            return [loads(path, line, n) for n, line in lines]
    value = loads(path, text, 1)
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and len(lines) == 1 and (named_jsonl or not _row_list(value)):
        return [value]
    raise DataError(_not_a_list(path, value))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def loads(path: Path, text: str, first_line: int) -> Any:
    """One JSON value; DataError names file, line (text starts at `first_line`) and column."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line, at = first_line + error.lineno - 1, error.colno
        bad_line = text.split("\n")[error.lineno - 1]
        near = bad_line[max(0, at - 30) : at + 30].strip()
        raise DataError(f"{path}, line {line}, column {at}: not valid JSON ({error.msg}) near: {near!r}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}, line {first_line}: JSON that cannot be read ({error}).") from error


def _row_list(value: dict[str, Any]) -> str | None:
    """Key of a top-level object that seems to hold the rows: {"data": [{...}, ...]}."""
    for key, item in value.items():
        if isinstance(item, list) and item and isinstance(item[0], dict) and key not in _LISTS_OF_A_ROW:
            return key
    return None


def _not_a_list(path: Path, value: Any) -> str:
    if not isinstance(value, dict):
        return (
            f"{path}: the top level is a {type(value).__name__}; it must be a list of objects, or one object per line."
        )
    rows = _row_list(value)
    if rows:
        return (
            f"{path}: the top level is an object, not a list of rows. The rows seem to be under {rows!r}: save that "
            f"list alone (jq '.{rows}' {path.name} > rows.json)."
        )
    keys = ", ".join(map(str, list(value)[:8]))
    return (
        f"{path}: the top level is one object (keys: {keys}), not a list of rows. Put it in [ ], or write one "
        "object per "
        "line into a .jsonl file."
    )


def _parse_csv(path: Path, text: str) -> list[Any]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    old_limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header = list(reader.fieldnames or [])
        twice = sorted({h for h in header if header.count(h) > 1})
        if twice:
            raise DataError(f"{path}, line 1: the column {twice[0]!r} is there more than once.")
        rows = []
        for row in reader:
            if None in row:
                raise DataError(
                    f"{path}, line {reader.line_num}: more fields than the header's {len(header)} "
                    f"({', '.join(header)}). "
                    'A text that holds the delimiter needs "quotes" around it.'
                )
            rows.append(row)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.reader.line_num}: not valid CSV ({error}).") from error
    finally:
        csv.field_size_limit(old_limit)
    return rows


def _read_parquet(path: Path) -> list[Any]:
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty: it holds no row.")
    try:
        return list(pq.read_table(path).to_pylist())
    except pa.ArrowException as error:
        raise DataError(f"{path} is not a readable parquet file ({str(error).splitlines()[0]}).") from error
