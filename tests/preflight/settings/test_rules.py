"""Rules as findings, and the band of the learning rate."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.causes.catalogue import CAUSES
from runner.config.compose import Session
from runner.config.rules import RULES, allowable_broken, finding_ids
from runner.config.schema import Config
from runner.errors import ConfigError
from runner.preflight.context import Context
from runner.preflight.settings.rules import MENDS, band_for, batch_findings, rate_band, rules

SESSION = Session()
ROOT = Path(__file__).resolve().parents[3]
BROKEN = {
    "schedule.warmup_beyond_end": ["schedule.warmup_steps=50", "schedule.max_steps=30"],
    "precision.fp16_weights": ["precision=fp32", "precision.trainable_weights=fp16"],
    "precision.scaler_meets_fp16_weights": ["precision=fp16", "precision.trainable_weights=fp16"],
    "precision.lost_updates": ["precision=fp16", "precision.trainable_weights=bf16"],
}


@functools.cache
def loaded(*lines: str) -> Config:
    return SESSION.load(list(lines), findings=True).config


def look(*lines: str) -> Context:
    return Context(copy.deepcopy(loaded(*lines)), "deep", Path("nowhere"))


def test_the_list_of_findings_is_the_catalogue() -> None:
    assert list(finding_ids()) == sorted(CAUSES), "runner/config/findings.txt lists the ids of runner.causes.catalogue"
    allowable = {rule.id for rule in RULES if rule.allowable}
    assert allowable <= set(CAUSES) and set(MENDS) == allowable == set(BROKEN)


def test_any_finding_may_be_allowed_and_nothing_else() -> None:
    assert SESSION.load(["checks.allow=[weights.uninitialised,labels.no_supervised_token]"])
    for wrong, said in (("weights.uninitialized", "did you mean weights.uninitialised"), ("task.labels", "cannot be")):
        with pytest.raises(ConfigError, match=said):
            SESSION.load([f"checks.allow={wrong}"])


@pytest.mark.parametrize("id", sorted(BROKEN))
def test_a_broken_rule_is_that_finding_and_its_overrides_mend_it(id: str) -> None:
    result = rules(look(*BROKEN[id]))
    (finding,) = result.findings
    assert (finding.id, finding.severity) == (id, "error")
    assert finding.where[0] in ("schedule.warmup_steps", "precision.trainable_weights")
    assert "checks.allow" not in finding.sentence
    kept = [
        line for line in BROKEN[id] if line.partition("=")[0] not in {o.partition("=")[0] for o in finding.overrides}
    ]
    assert not rules(look(*kept, *finding.overrides)).findings


def test_allowed_rules_are_reported_too() -> None:
    id = "schedule.warmup_beyond_end"
    cfg = look(*BROKEN[id], f"checks.allow={id}").cfg
    assert [b.rule.id for b in allowable_broken(cfg)] == [id]


def test_adamw_eps_in_fp16_is_told_from_lost_updates() -> None:
    plain = ["precision=fp32", "precision.trainable_weights=fp16", "optim.name=adamw_torch"]
    assert "eps=1e-08 is 0 in fp16" in rules(look(*plain)).findings[0].sentence
    assert "rounded away" in rules(look(*plain, "optim.eps=1e-6")).findings[0].sentence
    assert "rounded away" in rules(look(*plain[:2])).findings[0].sentence  # the fused kernel computes in fp32


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["task=classification", "dataset=sentiment_zh"],
        ["lora=none"],
        ["+exp=qwen7b_clip"],
        ["+exp=qwen2_sentiment"],
    ],
)
def test_sound_settings_have_no_finding(lines: list[str]) -> None:
    c = look(*lines)
    assert not rules(c).findings and not rate_band(c).findings


def test_the_low_rate_of_the_published_lora_run() -> None:
    (finding,) = rate_band(look("+exp=qwen14b_lora")).findings
    assert (finding.id, finding.severity, finding.where) == (
        "optim.learning_rate_low",
        "note",
        ("optim.learning_rate",),
    )
    assert finding.numbers["usual"] == pytest.approx(1e-4) and "10 times below" in finding.sentence
    mended = look("+exp=qwen14b_lora", *finding.overrides)
    assert mended.cfg.optim.learning_rate == pytest.approx(1e-4) and not rate_band(mended).findings


@pytest.mark.parametrize(
    ("rate", "id", "severity"),
    [
        (5, "optim.learning_rate_too_high", "warning"),
        (6e-3, "optim.learning_rate_too_high", "warning"),
        (6e-4, "optim.learning_rate_too_high", "note"),
        (4e-4, None, None),
        (2.1e-5, None, None),
        (1.9e-5, "optim.learning_rate_low", "note"),
        (9e-7, "optim.learning_rate_low", "warning"),
    ],
)
def test_bands_of_lora_at_full_width(rate: float, id: str | None, severity: str | None) -> None:
    c = look("model=path", "model.path=Org/Wide")
    c.cfg.optim.learning_rate = rate
    findings = rate_band(c).findings
    assert [(f.id, f.severity) for f in findings] == ([(id, severity)] if id else [])


def test_a_narrow_model_takes_a_higher_rate() -> None:
    """The shipped model is 128 wide: 1e-4 x 1024 / 128 = 8e-4."""
    assert not rate_band(look("optim.learning_rate=3e-3")).findings
    (finding,) = rate_band(look("optim.learning_rate=1e-4")).findings
    assert finding.numbers["usual"] == pytest.approx(8e-4) and "128 wide" in finding.sentence
    assert finding.overrides == ("optim.learning_rate=0.0008",)


def test_the_same_rate_is_high_in_full_fine_tuning_and_usual_under_lora() -> None:
    wide = ["model=path", "model.path=Org/Wide", "optim.learning_rate=2e-4"]
    assert not rate_band(look(*wide)).findings
    assert [f.id for f in rate_band(look(*wide, "lora=none")).findings] == ["optim.learning_rate_too_high"]


def test_other_optimizers_have_bands_of_their_own() -> None:
    assert band_for("sgd", 1e-4) is None and band_for("galore_adamw", 1e-4) is None and band_for("adalomo", 1) is None
    lion, adafactor, adam = (band_for(n, 1e-5) for n in ("paged_lion_8bit", "adafactor", "adamw_torch_fused"))
    assert lion is not None and adafactor is not None and adam is not None
    assert lion.usual == pytest.approx(2e-6) and adafactor.high == pytest.approx(1e-3)
    assert (adam.low, adam.high) == (pytest.approx(2e-6), pytest.approx(5e-5))


@given(st.sampled_from(["adamw_torch", "adafactor", "lion_32bit", "stable_adamw", "rmsprop"]), st.floats(1e-7, 1e-1))
def test_a_band_holds_its_own_default(name: str, default: float) -> None:
    band = band_for(name, default)
    assert band is not None and band.low < band.usual < band.high


def test_sgd_with_a_rate_for_adamw() -> None:
    (finding,) = rate_band(look("optim=sgd")).findings
    assert finding.id == "optim.learning_rate_low" and "at most 0.0008" in finding.sentence
    assert not rate_band(look(*finding.overrides)).findings
    assert not rate_band(look("optim=sgd", "optim.learning_rate=0.1")).findings


def test_batches_of_one_or_two_rows() -> None:
    tiny = ["batch.per_device_train_batch_size=1", "batch.gradient_accumulation_steps=1"]
    (finding,) = rate_band(look(*tiny)).findings
    assert (finding.id, finding.severity, finding.numbers["global_batch"]) == ("data.sampling_noise", "note", 1)
    assert not rate_band(look(*tiny[:1], *finding.overrides)).findings
    assert batch_findings(2) and not batch_findings(3)


def test_width_is_read_from_the_hub_cache_without_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.config.schema import Model
    from runner.preflight.settings.config_json import config_json, width

    folder = tmp_path / "models--Org--Small"
    snapshot = folder / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text(json.dumps({"text_config": {"hidden_size": 512}, "dtype": "bfloat16"}))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert width(Model(path="Org/Small")) == 512 and config_json(Model(path="Org/Small"))["dtype"] == "bfloat16"
    assert config_json(Model(path="Org/Small", revision="abc")) and config_json(Model(path="Org/Other")) == {}


def test_the_configuration_stage_imports_no_torch() -> None:
    """Its findings have to be there within a second."""
    code = """
import sys, pathlib
from runner.config.compose import load
from runner.preflight.context import Context
from runner.preflight.settings import rules as settings, schedule, formats as f, known_bad as k, resume
c = Context(load([]).config, "deep", pathlib.Path("nowhere"))
for check in (settings.rules, settings.rate_band, schedule.known_end, f.formats, k.known_bad, resume.resume):
    check(c)
print(sorted({"torch", "transformers", "trl", "peft", "datasets", "accelerate"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
