"""Losses of rows under a start model, on disk, so that later runs and sweeps need not measure them again.

One file per start model, keyed by everything its losses depend on; in it one entry per row, keyed by the row's tokens
and labels alone, so that other mixes of the same data find them. A broken or unwritable cache costs time, never a run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from runner.config.schema import Config
from runner.data.cache import cache_folder, write_bytes

Loss = tuple[float, int]
"""(summed loss in nats, supervised tokens) of one row."""

_VERSION = 1
"""Goes up when the meaning of an entry changes."""

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".py")
_SETTINGS = ("config.json", "adapter_config.json")
_DIGEST_LENGTH = 64


def model_key(
    cfg: Config,
    compute: str,
    frozen: str,
    trainable: str,
    attention: str,
    classes: int | None,
    commit: str | None = None,
) -> str:
    """Key of the model a run starts from: SHA-256 of all that the loss of a row under it depends on, the row aside.

    `compute`, `frozen` and `trainable` name number formats, `attention` the kernel in use, `classes` the number of
    labels (None for sft), `commit` the hub's commit of the weights where it is known. The seed counts only where it
    decides weights: a new classification head, an adapter whose start is random, embeddings grown for a template.
    """
    lora = cfg.lora
    facts: dict[str, Any] = {
        "version": _VERSION,
        "task": cfg.task.name,
        "path": cfg.model.path,
        "files": _files(cfg.model.path),
        "revision": cfg.model.revision or "main",
        "commit": commit,
        "gguf_file": cfg.model.gguf_file,
        "quantization": cfg.model.quantization,
        "compute": compute,
        "weights": frozen if lora.method == "lora" else trainable,
        "attention": attention,
    }
    random_start = classes is not None or cfg.model.template != "auto"
    if classes is not None:
        facts["classes"] = classes
        facts["head"] = trainable
    if lora.method == "lora" and (lora.adapter is not None or not starts_as_base(cfg)):
        facts["lora"] = asdict(lora)
        facts["adapter"] = _files(lora.adapter) if lora.adapter else None
        facts["adapter_format"] = trainable
        random_start = random_start or lora.adapter is None
    if lora.method == "lora" and lora.modules_to_save:
        facts["saved"] = [lora.modules_to_save, trainable]
    if lora.method == "freeze" and frozen != trainable:
        facts["freeze"] = [lora.trainable, frozen]
    if random_start:
        facts["seed"] = cfg.seed
        facts["template"] = cfg.model.template
    if cfg.planted.fault != "none":
        facts["planted"] = asdict(cfg.planted)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def starts_as_base(cfg: Config) -> bool:
    """Whether a new LoRA adapter adds nothing at first and leaves the base weights alone: PEFT's inits with B = 0.

    The others (pissa, olora, ...) take a part out of the base, or start from noise (false).
    """
    return cfg.lora.adapter is None and cfg.lora.init_lora_weights in (True, "gaussian")


def _files(path: str) -> list[Any] | None:
    """Names, sizes and times of the weight files in a local folder, and its config; None for a hub id."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return None
    found: list[Any] = [str(folder.resolve())]
    for file in sorted(folder.iterdir()):
        if file.suffix in _WEIGHTS:
            state = file.stat()
            found.append([file.name, state.st_size, state.st_mtime_ns])
        elif file.name in _SETTINGS:
            found.append([file.name, hashlib.sha256(file.read_bytes()).hexdigest()])
    return found


def row_key(input_ids: Sequence[int], labels: Sequence[int] | int) -> bytes:
    """Key of a row, 32 bytes: SHA-256 of its token ids and labels (one label per token, or the class)."""
    ids, target = np.asarray(input_ids, dtype=np.int64), np.asarray(labels, dtype=np.int64)
    # The shape keeps ids and labels apart: without it the border between them could move.
    return hashlib.sha256(str((ids.shape, target.shape)).encode() + ids.tobytes() + target.tobytes()).digest()


def load_losses(
    key: str, rows: Iterable[bytes], note: Callable[[str], None], folder: Path | None = None
) -> dict[bytes, Loss]:
    """Those of `rows` (row keys) that are known under the model `key`; `note` is told of a file that cannot be used."""
    known = _read(_path(key, folder), note)
    return {row: known[row] for row in rows if row in known}


def store_losses(key: str, losses: dict[bytes, Loss], note: Callable[[str], None], folder: Path | None = None) -> None:
    """Add `losses` (by row key) to what is known under the model `key`.

    The file is read again first, so that what another process wrote meanwhile stays. A loss that is not finite is not
    kept: whatever made it may be mended by the next run. `note` is told where nothing can be written.
    """
    path = _path(key, folder)
    finite = {row: (total, tokens) for row, (total, tokens) in losses.items() if math.isfinite(total)}
    if not finite:
        return
    # A damaged file was told of when it was loaded; here it is simply replaced.
    merged = {**_read(path, lambda _: None), **finite}
    try:
        write_bytes(path, _pack(merged))
    except OSError as error:
        note(f"the cache {path.parent} cannot be written ({error.strerror or error}); set RUNNER_CACHE")


def _path(key: str, folder: Path | None) -> Path:
    return (folder or cache_folder()) / "base_loss" / f"{key}.arrow"


def _read(path: Path, note: Callable[[str], None]) -> dict[bytes, Loss]:
    """Everything in the file; nothing where it is absent, unreadable or does not match its checksum."""
    try:
        return _unpack(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        note(f"the cache {path.parent} cannot be read ({error.strerror or error}); base losses are measured anew")
    except (ValueError, KeyError, pa.ArrowException):
        note(f"the cache file {path} was damaged; its base losses are measured anew")
    return {}


def _pack(losses: dict[bytes, Loss]) -> bytes:
    table = pa.table(
        {
            "row": pa.array(list(losses), pa.binary(32)),
            "sum": pa.array([total for total, _ in losses.values()], pa.float64()),
            "tokens": pa.array([tokens for _, tokens in losses.values()], pa.int64()),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    return hashlib.sha256(body).hexdigest().encode() + body


def _unpack(content: bytes) -> dict[bytes, Loss]:
    digest, body = content[:_DIGEST_LENGTH], content[_DIGEST_LENGTH:]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("checksum")
    with pa.ipc.open_stream(body) as reader:
        table = reader.read_all()
    columns = (table[name].to_pylist() for name in ("row", "sum", "tokens"))
    return {row: (total, tokens) for row, total, tokens in zip(*columns, strict=True)}
