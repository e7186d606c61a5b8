"""What a resumed run may change, and what it may not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from runner.config.compare import changed, check_resumed
from runner.config.schema import Config
from runner.errors import ConfigError


def settings(**changes: Any) -> dict[str, Any]:
    found = dataclasses.asdict(Config())
    for key, value in changes.items():
        group, _, name = key.partition("__")
        found[group] = {**found[group], name: value} if name else value
    return found


def test_changed_names_leaves_and_treats_tuples_as_lists() -> None:
    assert changed({"a": {"b": 1, "c": (1, 2)}, "d": 3}, {"a": {"b": 2, "c": [1, 2]}, "e": 4}) == {
        "a.b": (1, 2),
        "d": (3, None),
        "e": (None, 4),
    }


def test_the_same_settings_say_nothing_and_neither_do_those_that_change_no_number() -> None:
    assert (
        check_resumed(settings(), settings(output_dir="x", checkpoint__resume="auto", dataset__preview=0), "run") == []
    )


def test_the_schedule_may_change_and_is_told() -> None:
    assert check_resumed(settings(), settings(schedule__max_steps=90), "run") == ["schedule.max_steps None -> 90"]


@pytest.mark.parametrize(
    "changes", [{"lora__r": 4}, {"optim__name": "sgd"}, {"batch__gradient_accumulation_steps": 1}, {"seed": 1}]
)
def test_what_the_checkpoint_depends_on_may_not(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="does not fit these settings"):
        check_resumed(settings(), settings(**changes), "run")


def test_all_of_them_come_in_one_message() -> None:
    with pytest.raises(ConfigError, match=r"lora\.r was 8, is 4; optim\.name was adamw_torch_fused, is sgd"):
        check_resumed(settings(), settings(lora__r=4, optim__name="sgd"), "run")
