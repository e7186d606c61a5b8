"""Notes about settings that popular advice recommends."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.config.advice import advice
from runner.config.compose import Session
from runner.preflight.check import Check
from runner.preflight.context import Context
from runner.preflight.finding import Result
from runner.preflight.flow import Preflight
from runner.preflight.settings.formats import formats
from runner.preflight.settings.popular import popular
from runner.preflight.settings.rules import rate_band, rules

SESSION = Session()

SHOWN = {
    "bf16_and_fp16": ["precision=fp16", "precision.frozen_weights=bf16"],
    "clip_and_accumulation": ["clip.max_grad_norm=4"],
    "lora_without_clip": ["clip=none"],
    "tight_clip": ["clip.max_grad_norm=0.1"],
    "clip_by_task": ["clip.max_grad_norm=0.5"],
    "same_global_batch": ["batch.per_device_train_batch_size=8", "batch.gradient_accumulation_steps=1"],
    "raise_rank": ["lora.r=128"],
    "alpha_not_twice_r": ["lora.lora_alpha=32"],
    "polynomial_power": ["schedule=polynomial", "schedule.power=0.9"],
    "weight_decay": ["optim.weight_decay=0.01"],
    "frequent_evaluation": ["evaluation.eval_strategy=steps", "evaluation.eval_steps=50"],
    "clean_data": ["dataset.dedup=off"],
    "vision": ["model=path", "model.path=Qwen/Qwen2.5-VL-7B-Instruct"],
    "audio": ["model=path", "model.path=Qwen/Qwen2-Audio-7B"],
}
"""Entry -> what a user sets."""

ELSEWHERE = {
    "lower_the_rate": ["optim.learning_rate=1e-5"],
    "fp16_saves_memory": ["precision=fp16"],
    "small_validation": ["dataset.validation.fraction=0.01"],
    "class_imbalance": [],
    "warmup_beyond_end": [
        "schedule.warmup_ratio=null",
        "schedule.warmup_steps=50",
        "schedule.max_steps=30",
        "checks.allow=schedule.warmup_beyond_end",
    ],
}
"""Entry that another check's finding says -> what a user sets."""


def told(*lines: str) -> Result:
    return popular(Context(SESSION.load(list(lines)).config, "quick", Path("unused")))


def test_every_entry_with_a_condition_is_here() -> None:
    conditional = {a.id: a.quoted_by for a in advice().values() if a.when}
    assert {id for id, elsewhere in conditional.items() if elsewhere is None} == set(SHOWN)
    assert {id for id, elsewhere in conditional.items() if elsewhere is not None} == set(ELSEWHERE)


@pytest.mark.parametrize("id", SHOWN)
def test_a_setting_shows_its_own_note_and_no_other(id: str) -> None:
    result, entry = told(*SHOWN[id]), advice()[id]
    (note,) = result.findings
    assert (note.id, note.severity, note.numbers["advice"]) == ("advice.popular", "note", id)
    assert note.sentence.endswith(f": {entry.text.en}") and note.overrides == entry.overrides
    assert note.where and set(note.where) <= set(entry.where) and result.summary == id
    assert note.sentence.startswith(f"{note.where[0]}=")


@pytest.mark.parametrize("id", ELSEWHERE)
def test_what_another_check_finds_is_no_note_here(id: str) -> None:
    assert told(*ELSEWHERE[id]).findings == ()


def test_what_is_left_to_other_checks_is_found_there() -> None:
    """The three that the configuration alone shows."""
    for id, function in (("lower_the_rate", rate_band), ("warmup_beyond_end", rules), ("fp16_saves_memory", formats)):
        given = ["model=qwen2_0_5b", *ELSEWHERE[id]]
        result = function(Context(SESSION.load(given).config, "quick", Path("unused")))
        entry = advice()[id]
        assert entry.quoted_by in [f.id for f in result.findings]
        keys = {line.partition("=")[0] for f in result.findings for line in f.overrides}
        assert keys & {line.partition("=")[0] for line in entry.overrides}


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["task=classification", "dataset=sentiment_zh"],
        ["task=classification", "dataset=sentiment_zh", "lora=none"],
        ["lora=none"],
    ],
)
def test_healthy_runs_get_no_note(lines: list[str]) -> None:
    result = told(*lines)
    assert result == Result("none of it is followed")


def test_several_at_once_and_the_values_they_are_about() -> None:
    result = told("+exp=qwen14b_lora", "clip.max_grad_norm=0.1", "lora.r=64", "lora.lora_alpha=16")
    assert result.summary == "tight_clip, raise_rank, alpha_not_twice_r, frequent_evaluation"
    first = result.findings[0]
    assert first.where == ("clip.max_grad_norm", "optim.name") and first.numbers["clip.max_grad_norm"] == 0.1
    assert first.sentence.startswith("clip.max_grad_norm=0.1, optim.name=adamw_torch_fused: ")
    assert first.numbers["verdict"] == "depends"


def test_in_the_flow_it_never_refuses(tmp_path: Path) -> None:
    check = Check("advice.popular", "popular advice", "config", (), "settings.popular:popular")
    pre = Preflight(SESSION.load(["clip=none", "lora.r=64"]).config, "quick", tmp_path, checks=(check,))
    pre.run("config")
    pre.refuse()
    assert [line.status for line in pre.lines] == ["note"] and len(pre.findings) == 2
    assert pre.as_json()["findings"][0]["title"]["zh"] and pre.errors == []
