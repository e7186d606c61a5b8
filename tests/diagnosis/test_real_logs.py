"""Real public logs with labels; what a person says of each is what the verdict has to say."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.diagnosis.judge import diagnose
from runner.diagnosis.reading import read
from runner.diagnosis.verdict import Verdict
from tests.diagnosis.traces import cut, shuffled

LOGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "logs"
pytestmark = pytest.mark.skipif(not (LOGS / "index.jsonl").is_file(), reason="the real logs are not here")


SOUND = ("healthy", "benign_noise", "epoch_staircase")


def entries() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (LOGS / "index.jsonl").read_text(encoding="utf-8").splitlines()]


@cache
def verdict(name: str) -> Verdict:
    return diagnose(read(LOGS / name))


def agrees(label: str, found: Verdict) -> bool:
    """The map from label to verdict."""
    if label in SOUND:
        return found.stability == "normal"
    if label in ("nan", "zero_loss_nan_grad", "divergence"):
        return found.stability == "broken"
    if label == "spikes":
        return found.stability in ("at_risk", "broken")
    if label in ("zero_grad", "stuck", "lr_schedule_problem"):
        return found.learning in ("no", "slow")
    if label == "overfit":
        named = any(f.id == "data.overfit" for f in found.findings)
        return named and (found.stability == "at_risk" or found.action == "change_next_run")
    if label == "too_short_to_tell":
        return found.stability == "cannot_tell"
    return True


def test_labels_of_high_confidence_agree() -> None:
    judged = [e for e in entries() if e["confidence"] == "high" and e["label"] != "other"]
    wrong = [e["file"] for e in judged if not agrees(e["label"], verdict(e["file"]))]
    assert len(judged) > 60
    assert len(wrong) <= 0.05 * len(judged), wrong


def test_labels_of_medium_confidence_agree_mostly() -> None:
    judged = [e for e in entries() if e["confidence"] == "medium" and e["label"] != "other"]
    wrong = [e["file"] for e in judged if not agrees(e["label"], verdict(e["file"]))]
    assert len(wrong) <= 0.15 * len(judged), wrong


def test_no_sound_log_is_called_ill() -> None:
    """Of any confidence."""
    sound = [e["file"] for e in entries() if e["label"] in SOUND]
    assert len(sound) > 70
    ill = [name for name in sound if verdict(name).stability in ("at_risk", "broken")]
    assert not ill


def test_two_logs_of_one_run_get_the_same_verdict() -> None:
    pairs = [(e["file"], e["same_run_as"]) for e in entries() if e.get("same_run_as")]
    assert len(pairs) >= 9

    def answers(name: str) -> tuple[str, str, str]:
        return verdict(name).stability, verdict(name).learning, verdict(name).action

    differ = [(a, b, answers(a), answers(b)) for a, b in pairs if answers(a) != answers(b)]
    assert not differ


GALLERY = {
    "healthy": ("normal", "yes", "keep", "data.sampling_noise"),
    "lr_zero": ("normal", "no", "stop", "schedule.rate_zero"),
    "lr_hot": ("broken", "no", "stop", "optim.learning_rate_too_high"),
    "fp16_nan": ("broken", "no", "stop", "optim.learning_rate_too_high"),
    "bad_labels": ("normal", "yes", "change_next_run", "data.label_mismatch"),
    "overfit": ("at_risk", "yes", "change_next_run", "data.overfit"),
}


@pytest.mark.parametrize("seed", ["seed42", "seed43"])
@pytest.mark.parametrize("name", GALLERY)
def test_planted_faults_of_a_3b_model_are_named(name: str, seed: str) -> None:
    found = verdict(f"qwen2.5-3b_qlora/{name}/{seed}.json")
    assert (found.stability, found.learning, found.action, found.findings[0].id) == GALLERY[name]
    if name == "fp16_nan":
        assert "precision.fp16_overflow" in [f.id for f in found.findings[1:]]


@pytest.mark.parametrize("seed", ["seed42", "seed43"])
def test_a_control_at_learning_rate_0_shows_r_squared_and_variance_ratio(seed: str) -> None:
    folder = LOGS / "qwen2.5-3b_qlora"
    control = read(folder / "lr_zero" / f"{seed}.json")
    healthy = diagnose(read(folder / "healthy" / f"{seed}.json"), control)
    assert healthy.control is not None and healthy.control["learning_rate_zero"]
    assert healthy.control["r_squared"] > 0.6 and 0.3 < healthy.control["variance_ratio"] < 1.5
    assert healthy.headline.en.startswith("The oscillation is your data")
    hot = diagnose(read(folder / "lr_hot" / f"{seed}.json"), control)
    assert hot.control is not None and hot.control["r_squared"] < 0.3


UNDECIDED = {("hunarbatra__CoVBERT__1.json", 0.7): "its eval_loss is up by 11 % there, and comes back down later"}
"""Beginnings that look ill: a person could not know better yet."""


def healthy() -> list[str]:
    return [e["file"] for e in entries() if e["label"] == "healthy" and e["confidence"] == "high"]


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_the_beginning_of_a_sound_log_is_sound(share: float) -> None:
    """Labels were given to whole runs; a run is looked at while it goes on."""
    names = [name for name in healthy() if (name, share) not in UNDECIDED]
    assert len(names) > 25
    ill = [n for n in names if diagnose(cut(read(LOGS / n), share)).stability in ("at_risk", "broken")]
    assert not ill


def test_one_overflow_near_the_end_is_not_broken() -> None:
    assert diagnose(cut(read(LOGS / "MemaSp__FT-Llama2-HRChatbot__1.json"), 0.5)).stability != "broken"


def test_sound_logs_stay_sound_with_their_noise_in_another_order() -> None:
    rng = np.random.default_rng(5)
    ill = []
    for name in healthy():
        for _ in range(5):
            other = shuffled(read(LOGS / name), rng)
            if other is not None and diagnose(other).stability in ("at_risk", "broken"):
                ill.append(name)
    assert not ill
