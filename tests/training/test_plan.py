"""Arithmetic of a run, by hand and against transformers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.config.schema import Batch, Config, Schedule
from runner.errors import ConfigError
from runner.training.plan import accumulation_for, learning_rate_for, make_plan, warmup_steps_for


def config(per_device: int = 4, accumulation: int = 2, **schedule: object) -> Config:
    cfg = Config()
    cfg.batch = Batch(per_device_train_batch_size=per_device, gradient_accumulation_steps=accumulation)
    cfg.schedule = Schedule(**schedule)  # type: ignore[arg-type]
    return cfg


def test_the_published_sentiment_run_has_30_steps() -> None:
    plan = make_plan(config(64, 1, num_train_epochs=10, warmup_steps=50), rows=192, processes=1)
    assert (plan.steps_per_epoch, plan.total_steps, plan.warmup_steps, plan.global_batch) == (3, 30, 50, 64)


def test_a_ragged_window_counts_and_processes_divide() -> None:
    plan = make_plan(config(4, 2, num_train_epochs=2.5, warmup_ratio=0.03), rows=26, processes=1)
    assert (plan.steps_per_epoch, plan.total_steps, plan.warmup_steps) == (4, 10, 1)
    assert make_plan(config(4, 2), rows=26, processes=2).steps_per_epoch == 2
    assert "4 x 2 x 2 = 16" in make_plan(config(4, 2), rows=26, processes=2).batch_line


def test_max_steps_wins() -> None:
    assert make_plan(config(max_steps=7, num_train_epochs=3), rows=100, processes=1).total_steps == 7


def test_global_batch_size_sets_the_accumulation() -> None:
    batch = Batch(per_device_train_batch_size=4, global_batch_size=32)
    assert accumulation_for(batch, 1) == 8
    assert accumulation_for(batch, 2) == 4
    with pytest.raises(ConfigError, match="multiple of 12"):
        accumulation_for(batch, 3)


@given(st.integers(1, 5000), st.floats(0, 0.99))
def test_warmup_is_what_transformers_makes_of_it(total: int, ratio: float) -> None:
    steps = warmup_steps_for(Schedule(warmup_ratio=ratio), total)
    assert steps == min(math.ceil(total * ratio), total - 1)


@pytest.mark.parametrize(
    ("method", "width", "rate", "words"),
    [
        ("lora", 3584, 1e-4, "default of LoRA"),
        ("none", 3584, 1e-5, "default of full"),
        ("freeze", 3584, 1e-5, "default of full"),
        ("lora", 128, 8e-4, "128 wide"),
        ("none", 128, 8e-5, "128 wide"),
        ("lora", None, 1e-4, "default of LoRA"),
    ],
)
def test_default_learning_rate_says_where_it_comes_from(method: str, width: int, rate: float, words: str) -> None:
    cfg = config()
    cfg.lora.method = method  # type: ignore[assignment]
    found, source = learning_rate_for(cfg, width)
    assert found == pytest.approx(rate)
    assert words in source


def test_a_given_learning_rate_is_taken() -> None:
    cfg = config()
    cfg.optim.learning_rate = 3e-4
    assert learning_rate_for(cfg, 128) == (3e-4, "set by optim.learning_rate")
