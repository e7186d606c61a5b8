"""Files that survive crashes, and what readers make of them."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import UserError
from runner.runfolder import (
    JsonLines,
    RunFolder,
    config_hash,
    number,
    read_json,
    read_rows,
    read_telemetry,
    resolve_resume,
    to_json,
    write_json,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_everything_written_is_valid_json(value: object) -> None:
    written = json.dumps(to_json(value), allow_nan=False)
    assert json.dumps(json.loads(written)) == written


@pytest.mark.parametrize("value", [1.5, math.inf, -math.inf])
def test_numbers_come_back(value: float) -> None:
    assert number(json.loads(json.dumps(to_json(value)))) == value


def test_nan_comes_back() -> None:
    assert math.isnan(number(to_json(math.nan)))


def test_a_torn_line_is_ended_before_appending_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    lines = JsonLines(path)
    lines.append({"step": 2, "loss": math.nan})
    lines.close()
    assert [r["step"] for r in read_rows(path)] == [1, 2]
    assert read_telemetry(tmp_path)[1]["loss"] == "NaN"


def test_of_a_repeated_step_the_last_row_wins(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    path.write_text("".join(json.dumps({"step": s, "loss": x}) + "\n" for s, x in ((1, 1), (2, 2), (3, 3), (2, 20))))
    assert [(r["step"], r["loss"]) for r in read_telemetry(tmp_path)] == [(1, 1), (2, 20), (3, 3)]


def test_a_torn_or_absent_json_is_none(tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"state": "runn')
    assert read_json(tmp_path / "torn.json") is None
    assert read_json(tmp_path / "absent.json") is None
    write_json(tmp_path / "whole.json", {"x": math.inf})
    assert read_json(tmp_path / "whole.json") == {"x": "Infinity"}
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".part")] == []


def test_the_hash_leaves_out_where_and_how_often(tmp_path: Path) -> None:
    config = {"seed": 1, "output_dir": "a", "checks": {"allow": []}, "checkpoint": {"resume": None, "save_steps": 5}}
    again = {**config, "output_dir": "b", "checkpoint": {"resume": "auto", "save_steps": 5}}
    assert config_hash(config) == config_hash(again)
    assert config_hash(config) != config_hash({**config, "seed": 2})


def test_a_checkpoint_can_be_named_itself(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-4"
    checkpoint.mkdir(parents=True)
    with pytest.raises(UserError, match="no readable trainer_state"):
        resolve_resume(str(checkpoint), tmp_path, {})
    (checkpoint / "trainer_state.json").write_text("{}")
    assert resolve_resume(str(checkpoint), tmp_path, {}) == (tmp_path / "run", checkpoint)


def test_only_the_leader_writes(tmp_path: Path) -> None:
    leader = RunFolder(tmp_path / "run")
    follower = RunFolder(tmp_path / "run", leader=False)
    follower.begin(1, {})
    follower.end("failed", "x", 1)
    assert not (tmp_path / "run" / "run.json").exists()
    leader.begin(1, {})
    leader.end("finished", None, 0, steps=3)
    run = read_json(tmp_path / "run" / "run.json")
    assert run is not None and (run["state"], run["steps"], run["seed"]) == ("finished", 3, 1)
    leader.close()
    follower.close()


@given(st.lists(values, min_size=1, max_size=6), st.data())
def test_cut_at_any_byte_every_line_before_is_whole_and_writing_goes_on(
    tmp_path_factory: pytest.TempPathFactory, contents: list[object], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    path = folder / "telemetry.jsonl"
    rows = [{"step": i + 1, "value": to_json(content)} for i, content in enumerate(contents)]
    lines = JsonLines(path)
    ends = []
    for row in rows:
        lines.append(row)
        ends.append(path.stat().st_size)  # flushed: it is there before the next step begins
    lines.close()
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = sum(end <= cut for end in ends)
    found = read_telemetry(folder)
    # A line that lacks only its line feed is whole too.
    assert found == rows[:kept] or (cut + 1 in ends and found == rows[: kept + 1])
    again = JsonLines(path)
    again.append({"step": 99})
    again.close()
    assert read_telemetry(folder) == [*found, {"step": 99}]


def test_a_writer_killed_at_any_moment_leaves_every_finished_line(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom runner.runfolder import JsonLines\n"
        "lines = JsonLines(Path(sys.argv[1]) / 'telemetry.jsonl')\n"
        "for step in range(1, 10**9):\n"
        "    lines.append({'step': step, 'loss': float('nan'), 'row_losses': [step / 7] * 50})\n"
        "    print(step, flush=True)\n"
    )
    rng = random.Random(0)
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        writer = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, env=environment)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.05))
        writer.send_signal(signal.SIGKILL)
        said = [1, *(int(line) for line in writer.stdout.read().split(b"\n")[:-1] if line)]
        writer.stdout.close()
        writer.wait()
        rows = read_telemetry(folder)
        assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
        assert len(rows) >= max(said), "a step that was said to be written is written"
        assert all(row["loss"] == "NaN" and len(row["row_losses"]) == 50 for row in rows)
