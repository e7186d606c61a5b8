"""Whatever numbers a run has: written in each format and read back, they are the same."""

from __future__ import annotations

import json
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.diagnosis.reading import read
from runner.diagnosis.trace import Column

Row = dict[str, Any]
numbers = st.floats(width=32)
NAMES = ("loss", "grad_norm", "learning_rate")


@st.composite
def runs(draw: st.DrawFn) -> list[Row]:
    """Points of a run by increasing step: a loss each, the other quantities at some of them."""
    steps = sorted(draw(st.sets(st.integers(1, 10**6), min_size=1, max_size=20)))
    optional = st.one_of(st.none(), numbers)
    drawn = [(s, draw(numbers), draw(optional), draw(optional)) for s in steps]
    return [
        {k: v for k, v in zip(("step", *NAMES), row, strict=True) if v is not None} | {"epoch": row[0] / 64}
        for row in drawn
    ]


def spelt(value: float, quoted: bool) -> str:
    text = str(value)
    return f"'{text}'" if quoted else text


def as_console(rows: list[Row], quoted: bool = False) -> str:
    kept = [{k: v for k, v in r.items() if k != "step"} for r in rows]
    return "".join("{" + ", ".join(f"'{k}': {spelt(v, quoted)}" for k, v in r.items()) + "}\r\n" for r in kept)


def as_csv(rows: list[Row]) -> str:
    names = ("step", "epoch", *NAMES)
    return "\n".join([",".join(names), *(",".join(str(r.get(n, "")) for n in names) for r in rows)])


def as_events(rows: list[Row]) -> bytes:
    def block(field: int, content: bytes) -> bytes:
        return bytes([field << 3 | 2, len(content)]) + content

    out = [b"\x09" + struct.pack("<d", 1.0) + block(3, b"brain.Event:2")]
    for row in rows:
        step, code = row["step"], b""
        while step > 127:
            step, code = step >> 7, code + bytes([step & 127 | 128])
        for name in (*NAMES, "epoch"):
            if name in row:
                value = block(1, f"train/{name}".encode()) + b"\x15" + struct.pack("<f", row[name])
                out.append(
                    b"\x09" + struct.pack("<d", 1.0) + b"\x10" + code + bytes([step]) + block(5, block(1, value))
                )
    return b"".join(struct.pack("<Q", len(m)) + b"crc." + m + b"crc." for m in out)


def as_lines(rows: list[Row]) -> str:
    return "\n".join(json.dumps(r) for r in rows)


def as_llamafactory(rows: list[Row]) -> str:
    names = {"step": "current_steps", "learning_rate": "lr"}
    return as_lines([{names.get(k, k): v for k, v in r.items()} | {"total_steps": 10**6} for r in rows])


def as_swift(rows: list[Row]) -> str:
    return as_lines(
        [{k: v for k, v in r.items() if k != "step"} | {"global_step/max_steps": f"{r['step']}/1000000"} for r in rows]
    )


FORMATS: dict[str, Callable[[list[Row]], str | bytes]] = {
    "trainer_state": lambda rows: json.dumps({"log_history": rows, "max_steps": 10**6}, indent=2),
    "list": json.dumps,
    "lines": as_lines,
    "llamafactory": as_llamafactory,
    "ms_swift": as_swift,
    "console": as_console,
    "console of transformers 5": lambda rows: as_console(rows, quoted=True),
    "csv": as_csv,
    "tensorboard": as_events,
}


def same(column: Column, rows: list[Row], name: str) -> None:
    np.testing.assert_array_equal(column.known, [name in r for r in rows])
    np.testing.assert_array_equal(column.values, [r.get(name, np.nan) for r in rows])


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=40, deadline=None)
@given(rows=runs())
def test_written_and_read_back(form: str, rows: list[Row]) -> None:
    content = FORMATS[form](rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        trace = read(path)
    counted = form.startswith("console")
    assert trace.step.tolist() == (list(range(1, len(rows) + 1)) if counted else [r["step"] for r in rows])
    assert trace.steps_counted == counted and not trace.restarts and not trace.repeated and not trace.unreadable
    np.testing.assert_array_equal(trace.epoch, [r["epoch"] for r in rows])
    same(trace.loss, rows, "loss")
    same(trace.grad_norm, rows, "grad_norm")
    same(trace.learning_rate, rows, "learning_rate")


@settings(max_examples=150, deadline=None)
@given(
    text=st.one_of(
        st.binary(max_size=200),
        st.text(alphabet="{}[]'\",:loss evl_0123456789.nainf\n\r\t;|%/-", max_size=200).map(str.encode),
    )
)
def test_anything_else_is_read_or_refused_in_a_sentence(text: bytes) -> None:
    from runner.errors import UserError

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(text)
        try:
            trace = read(path)
        except UserError:
            return
    assert trace.loss.values.shape == trace.step.shape == trace.epoch.shape
    assert (np.diff(trace.step) > 0).all()


@settings(max_examples=100, deadline=None)
@given(rows=runs(), cut=st.floats(0, 1))
def test_a_file_cut_anywhere_keeps_a_prefix(rows: list[Row], cut: float) -> None:
    from runner.errors import UserError

    for form in ("trainer_state", "list", "lines", "console", "tensorboard"):
        content = FORMATS[form](rows)
        content = content if isinstance(content, bytes) else content.encode()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log"
            path.write_bytes(content[: int(cut * len(content))])
            try:
                trace = read(path)
            except UserError:
                continue
        np.testing.assert_array_equal(trace.loss.values, [r["loss"] for r in rows][: trace.points])


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", ["trainer_state", "lines", "llamafactory", "console", "console of transformers 5", "csv"]
)
def test_a_hundred_thousand_points_take_about_a_second(form: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"step": s, "loss": float(v), "grad_norm": float(v), "learning_rate": 1e-4 / s, "epoch": s / 3000}
        for s, v in enumerate(rng.normal(size=100_000), 1)
    ]
    content = FORMATS[form](rows)
    path = tmp_path / "log"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    began = time.process_time()
    assert read(path).points == 100_000
    assert time.process_time() - began < 2.4, "1.2 s on two quiet cores"
