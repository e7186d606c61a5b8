"""Tokenised rows on disk, keyed by everything they depend on. A broken or unwritable cache costs time, never a run."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from runner.data.rows import Row
from runner.data.tokenise import Settings, Tokenised

_DIGEST_LENGTH = 64


def cache_folder() -> Path:
    """$RUNNER_CACHE, else ~/.cache/runner."""
    named = os.environ.get("RUNNER_CACHE")
    return Path(named).expanduser() if named else Path("~/.cache/runner").expanduser()


def tokenizer_key(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash of vocabulary, merges, normaliser, special tokens and chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        tokenizer("", add_special_tokens=False)  # resets truncation and padding, which earlier calls left in the state
        body = backend.to_str()
    else:
        body = json.dumps(tokenizer.get_vocab(), sort_keys=True)
    rest = [type(tokenizer).__name__, str(tokenizer.chat_template), str(tokenizer.special_tokens_map)]
    return hashlib.sha256("\0".join([body, *rest]).encode("utf-8", "surrogatepass")).hexdigest()


def cache_key(rows: Sequence[Row], tokenizer: str, settings: Settings) -> str:
    """Key of one source's tokenised rows: content in order, the tokenizer's key, settings, and this room's code."""
    head = json.dumps([_code_version(), tokenizer, asdict(settings)], sort_keys=True)
    content = hashlib.sha256(head.encode())
    for row in rows:
        content.update(row.digest.encode())
    return content.hexdigest()


def cached(
    key: str, compute: Callable[[], Tokenised], note: Callable[[str], None], folder: Path | None = None
) -> Tokenised:
    """The rows under `key`, computed and stored if they are not there.

    A file that does not match its checksum is rebuilt; a folder that cannot be written to is done without. Either is
    told through `note`.
    """
    path = (folder or cache_folder()) / "tokenised" / f"{key}.arrow"
    try:
        return _unpack(path.read_bytes())
    except FileNotFoundError:
        pass
    except OSError as error:
        note(f"the cache {path.parent} cannot be read ({error.strerror or error}); rows are tokenised anew")
    except (ValueError, KeyError, pa.ArrowException):
        note(f"the cache file {path} was damaged and has been rebuilt")
    result = compute()
    try:
        write_bytes(path, _pack(result))
    except OSError as error:
        note(
            f"the cache {path.parent} cannot be written ({error.strerror or error}); set RUNNER_CACHE, or "
            "dataset.cache=false"
        )
    return result


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside the target, then rename: a crash or a parallel run never leaves half a file under the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _pack(rows: Tokenised) -> bytes:
    rest = {"truncated": rows.truncated, "dropped": rows.dropped, "adjusted": rows.adjusted, "longest": rows.longest}
    table = pa.table(
        {
            "position": pa.array(rows.position, pa.int64()),
            "input_ids": pa.array(rows.input_ids, pa.list_(pa.int32())),
            "labels": pa.array(rows.labels, pa.list_(pa.int32())),
        },
        metadata={"rest": json.dumps(rest)},
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    return hashlib.sha256(body).hexdigest().encode() + body


def _unpack(content: bytes) -> Tokenised:
    digest, body = content[:_DIGEST_LENGTH], content[_DIGEST_LENGTH:]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("checksum")
    with pa.ipc.open_stream(body) as reader:
        table = reader.read_all()
    rest: dict[str, Any] = json.loads((table.schema.metadata or {})[b"rest"])
    return Tokenised(
        position=table["position"].to_pylist(),
        input_ids=table["input_ids"].to_pylist(),
        labels=table["labels"].to_pylist(),
        truncated=rest["truncated"],
        dropped=[(i, reason) for i, reason in rest["dropped"]],
        adjusted=[(i, what) for i, what in rest["adjusted"]],
        longest=rest["longest"],
    )


@functools.cache
def _code_version() -> str:
    """Hash of this room's source: a changed rule never meets rows that an older one made."""
    content = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        content.update(file.read_bytes())
    return content.hexdigest()
