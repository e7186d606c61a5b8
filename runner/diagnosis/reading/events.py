"""TensorBoard event files, decoded without TensorBoard: records of TFRecord that hold protobuf messages.

A record is length (uint64), checksum, message, checksum (tensorflow/core/lib/io/record_writer.h); of `Event` and
`Summary.Value` (tensorflow/core/framework/event.proto, summary.proto) only step, tag and scalar are read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Iterator
from pathlib import Path

from runner.diagnosis.reading.log import Log, Record

FLOAT, DOUBLE = 1, 2
"""DT_FLOAT and DT_DOUBLE of tensorflow/core/framework/types.proto."""


USUAL = re.compile(rb"\x09.{8}\x10([\x80-\xff]{0,8}[\x00-\x7f])\x2a.\x0a.\x0a(.)(.+)\x15(.{4})", re.S)
"""An event with one simple value and lengths below 128, as torch's SummaryWriter writes it: read at once."""


def is_events(content: bytes) -> bool:
    """Whether `content` begins as an event file does."""
    return b"brain.Event:" in content[:64]


def read_events(contents: list[bytes], path: Path) -> Log:
    """The scalars of event files of one run, in their order: one record for each step and burst of tags."""
    records: list[Record] = []
    unreadable = 0
    for content in contents:
        current: Record = {}
        messages = _messages(content)
        while True:
            try:
                message = next(messages)
                step, values = _event(message)
            except StopIteration as end:
                unreadable += int(end.value or 0)
                break
            except (IndexError, struct.error, UnicodeDecodeError):
                unreadable += 1
                continue
            for tag, value in values:
                key = name_of(tag)
                if not current or current["step"] != step or key in current:
                    current = {"step": step}
                    records.append(current)
                current[key] = value
    return Log(path, "tensorboard", "transformers", records, unreadable=unreadable)


def name_of(tag: str) -> str:
    """Trainer's own name of a tag: loss of train/loss, eval_loss of eval/loss."""
    return "eval_" + tag.removeprefix("eval/") if tag.startswith("eval/") else tag.removeprefix("train/")


def _messages(content: bytes) -> Generator[bytes, None, int]:
    """The messages of a file; returns 1 where the last one was cut short, else 0."""
    at, end = 0, len(content)
    while at + 12 <= end:
        (size,) = struct.unpack_from("<Q", content, at)
        if at + 16 + size > end:
            return 1
        yield content[at + 12 : at + 12 + size]
        at += 16 + size
    return int(at < end)


def _event(message: bytes) -> tuple[int, list[tuple[str, float]]]:
    usual = USUAL.fullmatch(message)
    if usual and usual[2][0] == len(usual[3]) and len(message) < 128:
        return _varint(usual[1], 0)[0], [(usual[3].decode(), struct.unpack("<f", usual[4])[0])]
    step, values = 0, []
    for field, value in _fields(message):
        if field == 2 and isinstance(value, int):
            step = value
        elif field == 5 and isinstance(value, bytes):
            scalars = (_scalar(v) for f, v in _fields(value) if f == 1 and isinstance(v, bytes))
            values += [s for s in scalars if s is not None]
    return step, values


def _scalar(message: bytes) -> tuple[str, float] | None:
    tag, number = "", None
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode()
        elif field == 2 and isinstance(value, float):
            number = value
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return (tag, number) if tag and number is not None else None


def _tensor(message: bytes) -> float | None:
    """The number in a tensor of one element (writers of TensorFlow 2 put scalars there); None for any other."""
    kind, found = 0, None
    for field, value in _fields(message):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field in (4, 5, 6) and isinstance(value, bytes):
            width, code = (8, "<d") if kind == DOUBLE else (4, "<f")
            if kind in (FLOAT, DOUBLE) and len(value) == width:
                (found,) = struct.unpack(code, value)
        elif field in (5, 6) and isinstance(value, float):
            found = value
    return found


def _fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """(field number, value) of a protobuf message: varint as int, 32 and 64 bits as float, the rest as bytes."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield field, value
        elif wire == 1:
            yield field, struct.unpack_from("<d", message, at)[0]
            at += 8
        elif wire == 5:
            yield field, struct.unpack_from("<f", message, at)[0]
            at += 4
        elif wire == 2:
            size, at = _varint(message, at)
            yield field, message[at : at + size]
            at += size
        else:
            raise struct.error(f"wire type {wire}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
