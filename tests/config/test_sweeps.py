"""Sweeps are expanded and checked before the first trial."""

from __future__ import annotations

import pytest

from runner.config.compose import Session
from runner.config.sweeps import check_sweep
from runner.errors import ConfigError

SESSION = Session()


def test_a_sweep_over_groups_and_keys() -> None:
    sweep = check_sweep(SESSION, ["optim.learning_rate=1e-4,1e-3", "precision=fp32,bf16", "clip=norm,none"])
    assert sweep.trials == 8
    assert set(sweep.overrides) == {"optim.learning_rate=1e-4,1e-3", "precision=fp32,bf16", "clip=norm,none"}


def test_sweeps_written_in_yaml_count_and_the_command_line_wins() -> None:
    assert check_sweep(SESSION, ["+sweep=stability"]).trials == 8
    assert check_sweep(SESSION, ["+sweep=clip"]).trials == 4
    assert check_sweep(SESSION, ["+sweep=stability", "clip=norm"]).trials == 4


def test_functions_and_globs() -> None:
    assert check_sweep(SESSION, ["seed=range(1,4)"]).trials == 3
    assert check_sweep(SESSION, ["schedule=glob(co*)", "seed=choice(1,2)"]).trials == 4


def test_chinese_values_in_a_sweep() -> None:
    lines = ["task=classification", "dataset=sentiment_zh", "task.labels=[好,坏],[坏,好]"]
    assert check_sweep(SESSION, lines).trials == 2


def test_every_distinct_mistake_is_named_once() -> None:
    with pytest.raises(ConfigError) as error:
        check_sweep(SESSION, ["lora.r=8,abc", "optim.learning_rate=0,1e-4", "seed=1,2"])
    found = error.value.problems
    assert len([p for p in found if "lora.r=abc" in p]) == 1
    assert any("optim.learning_rate=0" in p for p in found)


def test_an_option_that_does_not_exist_and_a_key_the_option_does_not_use() -> None:
    with pytest.raises(ConfigError, match="did you mean clip=norm"):
        check_sweep(SESSION, ["clip=norm,norn"])
    with pytest.raises(ConfigError, match="not used by clip=none"):
        check_sweep(SESSION, ["clip=norm,none", "clip.max_grad_norm=0.5"])


def test_one_trial_without_a_sweep() -> None:
    assert check_sweep(SESSION, []).trials == 1
