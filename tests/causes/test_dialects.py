"""The lines to paste: filled with the run's numbers, valid in each tool."""

from __future__ import annotations

import shlex

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runner.causes.catalogue import CAUSES, cause
from runner.causes.cause import Cause
from runner.causes.dialects import NAMES, check_command, command, fill
from runner.text import same

RATE = cause("optim.learning_rate_too_high")


def toy(**changes: tuple[str, ...]) -> Cause:
    return Cause("a.b", None, same("t"), "note", same("r"), same("w"), "python -m runner diagnose {path}", changes)


def test_the_runs_numbers_are_filled_in() -> None:
    values = {"learning_rate_tenth": 2e-5, "warmup_three_percent": 30}
    assert fill(RATE, "runner", values)[0] == "optim.learning_rate=2.0e-05"
    assert fill(RATE, "transformers", values) == ("learning_rate=2.0e-05", "warmup_steps=30")
    assert fill(RATE, "llamafactory", values) == ("learning_rate: 2.0e-05", "warmup_steps: 30")
    assert fill(RATE, "ms_swift", values) == ("--learning_rate 2.0e-05", "--warmup_steps 30")


@pytest.mark.parametrize("unknown", [{}, {"learning_rate_tenth": None}, {"learning_rate_tenth": float("nan")}])
def test_a_line_without_its_number_is_left_out(unknown: dict[str, object]) -> None:
    assert fill(RATE, "runner", unknown) == ("schedule.warmup_steps=null", "schedule.warmup_ratio=0.03")
    assert fill(RATE, "llamafactory", unknown) == ()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (5e-5, "5.0e-05"),
        (1.25e-5, "1.25e-05"),
        (0.0003, "0.0003"),
        (0.41876, "0.419"),
        (3.0, "3"),
        (128000, "128000"),
        (np.float64(2e-6), "2.0e-06"),
        (np.int64(30), "30"),
        (True, "true"),
        ("bf16", "bf16"),
    ],
)
def test_numbers_as_written(value: object, written: str) -> None:
    assert fill(toy(llamafactory=("x: {precision}",)), "llamafactory", {"precision": value}) == (f"x: {written}",)


@given(st.floats(min_value=1e-12, max_value=1e5))
def test_yaml_reads_a_rate_as_a_number(rate: float) -> None:
    (line,) = fill(toy(llamafactory=("learning_rate: {learning_rate}",)), "llamafactory", {"learning_rate": rate})
    read = yaml.safe_load(line)["learning_rate"]
    assert isinstance(read, (int, float)) and read == pytest.approx(rate, rel=6e-3)


def test_literal_braces() -> None:
    one = cause("trainability.checkpointing_without_inputs")
    assert fill(one, "ms_swift", {}) == ("--gradient_checkpointing_kwargs '{\"use_reentrant\": false}'",)


def test_commands_of_the_four_tools() -> None:
    lines = {tool: fill(RATE, tool, {"learning_rate_tenth": 1e-5, "warmup_three_percent": 9}) for tool in NAMES}
    assert command("runner", lines["runner"]) == (
        "python -m runner optim.learning_rate=1.0e-05 schedule.warmup_steps=null schedule.warmup_ratio=0.03"
    )
    assert command("transformers", lines["transformers"]) == (
        "TrainingArguments(..., learning_rate=1.0e-05, warmup_steps=9)"
    )
    assert command("llamafactory", lines["llamafactory"]) == "learning_rate: 1.0e-05\nwarmup_steps: 9"
    assert command("ms_swift", lines["ms_swift"]) == "swift sft ... --learning_rate 1.0e-05 --warmup_steps 9"
    assert [command(tool, ()) for tool in NAMES] == ["", "", "", ""]


def test_statements_stay_outside_the_call() -> None:
    lines = ("bf16=True", "model.float()", "model.accepts_loss_kwargs = False")
    assert command("transformers", lines) == (
        "model.float()\nmodel.accepts_loss_kwargs = False\nTrainingArguments(..., bf16=True)"
    )


def test_given_overrides_are_kept_unless_changed() -> None:
    run = ["+exp=qwen14b_lora", "precision=fp16", "precision.loss_scale.initial_power=8", "name=a b", "seed=1"]
    line = command("runner", ["precision=bf16", "seed=2"], run)
    assert shlex.split(line)[3:] == ["+exp=qwen14b_lora", "name=a b", "precision=bf16", "seed=2"]
    assert shlex.quote("name=a b") in line


def test_check_quotes_the_path() -> None:
    words = shlex.split(check_command(toy(), "my logs/a'b.jsonl"))
    assert words[-1] == "my logs/a'b.jsonl"


@pytest.mark.parametrize("tool", list(NAMES))
def test_nothing_known_leaves_no_field(tool: str) -> None:
    for one in CAUSES.values():
        assert not any(f"{{{word}" in line for line in fill(one, tool, {}) for word in ("learning", "warmup", "median"))
