"""Every shipped YAML composes, says how to call it, and lists only keys of the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runner.config.compose import Session
from runner.config.help import groups
from runner.config.layers import OVERLAYS
from runner.config.share import packaged_conf

FILES = sorted(packaged_conf().rglob("*.yaml"))
HELP = {  # what an option cannot do without
    "dataset/file": ["dataset.path=/rows.jsonl"],
    "dataset/llamafactory": ["dataset.names=[identity]"],
    "dataset/sentiment_zh": ["task=classification"],
    "task/classification": ["dataset=sentiment_zh"],
    "model/path": ["model.path=Qwen/Qwen2.5-0.5B"],
    "lora/freeze": ["lora.trainable=[layers]"],
}


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


def name(file: Path) -> str:
    return str(file.relative_to(packaged_conf()).with_suffix(""))


@pytest.mark.parametrize("file", [f for f in FILES if f.parent != packaged_conf()], ids=name)
def test_option_composes(file: Path, session: Session) -> None:
    group, option = name(file).split("/")
    loaded = session.load([f"{group}={option}", *HELP.get(name(file), [])])
    assert loaded.config.model.path
    label = f"conf/{group}/{option}.yaml"
    assert label in loaded.where.values() or option in ("quickstart",) or group == "sweep"


@pytest.mark.parametrize("file", FILES, ids=name)
def test_first_comment_says_how_to_call_it(file: Path) -> None:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("# @package")]
    parent, option = file.parent.name, file.stem
    if file.parent == packaged_conf():
        assert lines[0].startswith("# python -m runner")
    elif parent in OVERLAYS:
        assert re.match(rf"# python -m runner .*\+{parent}={option}\b", lines[0])
    else:
        assert re.match(rf"# {parent}={option}\b", lines[0])


def test_an_exp_never_sets_leaves_of_model_and_picks_model_and_dataset() -> None:
    import yaml

    for file in (packaged_conf() / "exp").glob("*.yaml"):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert "model" not in content, file
        if file.stem != "quickstart":
            chosen = [next(iter(d)) for d in content["defaults"]]
            assert {"override /model", "override /dataset"} <= set(chosen)


@pytest.mark.parametrize("exp", [f.stem for f in (packaged_conf() / "exp").glob("*.yaml")])
def test_model_swaps_cleanly_under_every_exp(exp: str, session: Session) -> None:
    tiny = session.load([f"+exp={exp}", "model=qwen2_tiny"])
    plain = session.load(["model=qwen2_tiny"])
    assert tiny.config.model == plain.config.model
    assert tiny.config.name == exp


def test_published_settings() -> None:
    session = Session()
    big = session.load(["+exp=qwen14b_lora"]).config
    assert (big.optim.learning_rate, big.lora.target_modules, big.precision.compute) == (
        1e-5,
        ["q_proj", "v_proj"],
        "fp16",
    )
    assert (big.batch.per_device_train_batch_size, big.batch.gradient_accumulation_steps) == (4, 2)
    assert big.dataset.validation.fraction == 0.01 and big.evaluation.eval_steps == 100
    clip = session.load(["+exp=qwen7b_clip"]).config
    assert clip.optim.betas == (0.9, 0.95) and clip.clip.max_grad_norm == 1.0 and clip.lora.method == "none"
    mood = session.load(["+exp=qwen2_sentiment"]).config
    assert mood.task.labels == ["积极", "消极", "中立"] and mood.schedule.warmup_steps == 50
    assert mood.schedule.warmup_ratio is None


def test_the_groups_of_the_defaults_list_are_those_of_the_schema(session: Session) -> None:
    assert len(groups()) == 14
    assert set(session.groups) - set(OVERLAYS) == set(groups())
