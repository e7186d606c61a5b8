"""Real public logs with labels; what a person says of each is what the verdict has to say."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runner.diagnosis.judge import diagnose
from runner.diagnosis.reading import read
from runner.diagnosis.verdict import Verdict

LOGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "logs"
pytestmark = pytest.mark.skipif(not (LOGS / "index.jsonl").is_file(), reason="the real logs are not here")


def entries() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (LOGS / "index.jsonl").read_text(encoding="utf-8").splitlines()]


@cache
def verdict(name: str) -> Verdict:
    return diagnose(read(LOGS / name))


def agrees(label: str, found: Verdict) -> bool:
    """The map from label to verdict."""
    if label in ("healthy", "benign_noise", "epoch_staircase"):
        return found.stability == "normal"
    if label in ("nan", "zero_loss_nan_grad", "divergence"):
        return found.stability == "broken"
    if label == "spikes":
        return found.stability in ("at_risk", "broken")
    if label in ("zero_grad", "stuck", "lr_schedule_problem"):
        return found.learning in ("no", "slow")
    if label == "overfit":
        named = any(f.id == "data.overfit" for f in found.findings)
        return found.stability == "at_risk" or (found.action == "change_next_run" and named)
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
    sound = [e["file"] for e in entries() if e["label"] in ("healthy", "benign_noise")]
    ill = [name for name in sound if verdict(name).stability in ("at_risk", "broken")]
    assert not ill


def test_two_logs_of_one_run_get_the_same_verdict() -> None:
    pairs = [(e["file"], e["same_run_as"]) for e in entries() if e.get("same_run_as")]
    assert len(pairs) >= 9

    def answers(name: str) -> tuple[str, str]:
        return verdict(name).stability, verdict(name).learning

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


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_the_beginning_of_a_sound_log_is_sound(share: float, tmp_path: Path) -> None:
    """Labels were given to whole runs; a run is looked at while it goes on."""
    ill = []
    sound = [e for e in entries() if e["label"] == "healthy" and e["confidence"] == "high"]
    for entry in sound:
        trace = read(LOGS / entry["file"])
        keep = int(share * len(trace.step))
        last = int(trace.step[keep - 1]) if keep else 0
        cut = tmp_path / "log.jsonl"
        records = [
            {"step": int(s), "loss": float(x), "epoch": float(e)}
            for s, x, e in zip(trace.step[:keep], trace.loss.values[:keep], trace.epoch[:keep], strict=True)
        ]
        records += [
            {"step": int(s), "eval_loss": float(x)}
            for v in trace.evaluations[:1]
            for s, x in zip(v.step, v.loss, strict=True)
            if s <= last
        ]
        cut.write_text("\n".join(json.dumps(r) for r in records))
        if records and diagnose(read(cut)).stability in ("at_risk", "broken"):
            ill.append(entry["file"])
    assert len(ill) <= 0.05 * len(sound), ill
