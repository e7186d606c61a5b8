"""TensorBoard event files, written by TensorBoard itself and byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from runner.diagnosis.reading import read
from runner.errors import UserError


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def block(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2]) + varint(len(content)) + content


def scalar(tag: str, value: float) -> bytes:
    return block(1, block(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value))


def tensor(tag: str, value: float) -> bytes:
    shaped = bytes([1 << 3, 1]) + block(2, b"") + bytes([5 << 3 | 2]) + varint(4) + struct.pack("<f", value)
    return block(1, block(1, tag.encode()) + block(8, shaped) + block(9, b"anything"))


def record(message: bytes) -> bytes:
    return struct.pack("<Q", len(message)) + b"crc." + message + b"crc."


def event(step: int, *values: bytes) -> bytes:
    return record(b"\x09" + struct.pack("<d", 1e9) + b"\x10" + varint(step) + block(5, b"".join(values)))


def events(*parts: bytes) -> bytes:
    return record(b"\x09" + struct.pack("<d", 1e9) + block(3, b"brain.Event:2")) + b"".join(parts)


def test_scalars_of_every_writer(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host.2.0"
    path.write_bytes(
        events(
            event(300, scalar("train/loss", 2.5)),
            event(300, scalar("train/grad_norm", 1.5)),
            event(300, scalar("train/epoch", 0.25)),
            event(300, scalar("eval/loss", 2.25), scalar("eval/g0_loss", 3.5)),
            event(600, tensor("train/loss", float("nan")), tensor("train/learning_rate", 0.5)),
            event(600, block(1, block(1, b"text/text_summary") + block(8, b"\x08\x07"))),
        )
    )
    for where in (path, tmp_path):
        trace = read(where)
        assert trace.kind == "tensorboard" and trace.step.tolist() == [300, 600]
        np.testing.assert_equal(trace.loss.values, [2.5, np.nan])
        assert trace.loss.known.all() and trace.grad_norm.values[0] == 1.5 and trace.learning_rate.values[1] == 0.5
        assert [(e.name, e.loss.tolist()) for e in trace.evaluations] == [("", [2.25]), ("g0", [3.5])]


def test_a_cut_file_keeps_its_whole_records(tmp_path: Path) -> None:
    content = events(event(1, scalar("loss", 2.0)), event(2, scalar("loss", 1.0)))
    (tmp_path / "a.tfevents").write_bytes(content[:-3])
    trace = read(tmp_path / "a.tfevents")
    assert trace.loss.values.tolist() == [2.0] and trace.unreadable == 1


def test_a_resume_in_a_second_file(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(
        events(*(event(s, scalar("train/loss", 9 - s)) for s in range(1, 7)))
    )
    (tmp_path / "events.out.tfevents.2").write_bytes(
        events(*(event(s, scalar("train/loss", 19 - s)) for s in range(4, 9)))
    )
    trace = read(tmp_path)
    assert trace.loss.values.tolist() == [8, 7, 6, 15, 14, 13, 12, 11]
    assert [(r.before, r.step, r.loss_before, r.loss_after) for r in trace.restarts] == [(6, 4, 5.0, 15.0)]


def test_what_tensorboard_writes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path))
    for step in range(1, 200):
        value = Summary(value=[Summary.Value(tag="train/loss", simple_value=1 / step)])
        writer.add_event(Event(wall_time=step, step=step, summary=value))
    writer.close()
    trace = read(tmp_path)
    np.testing.assert_array_equal(trace.step, np.arange(1, 200))
    np.testing.assert_allclose(trace.loss.values, 1 / trace.step, rtol=1e-6)


def test_an_event_file_without_scalars(tmp_path: Path) -> None:
    (tmp_path / "a.tfevents").write_bytes(events())
    with pytest.raises(UserError):
        read(tmp_path / "a.tfevents")
