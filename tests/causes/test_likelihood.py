"""The table of predictions, and how it is read."""

import math
import re
from pathlib import Path

import pytest

from runner.causes.catalogue import CAUSES
from runner.causes.likelihood import NOTES, odds, rank, supporting
from runner.causes.table import LAWS, NEEDS, PREDICTS, PRIOR, RARE, REST, RIVALS, USUAL

DIAGNOSIS = Path(__file__).resolve().parents[2] / "runner" / "diagnosis"


def test_every_sign_and_cause_of_the_table_exists():
    signs = {s for row in PREDICTS.values() for s in row} | {s for n in NEEDS.values() for s in n} | set(LAWS.values())
    assert signs <= set(USUAL)
    causes = {*PREDICTS, *PRIOR, *LAWS, *NEEDS, *REST, *NOTES, *(c for r in RIVALS for c in r.causes)}
    assert causes <= set(CAUSES)
    assert set(NEEDS) | set(LAWS) <= set(PREDICTS)


def test_every_sign_is_set_by_the_diagnosis():
    source = "".join(p.read_text(encoding="utf-8") for p in DIAGNOSIS.glob("sign*.py"))
    said = set(re.findall(r'signs\.(?:say|found\.setdefault)\(\s*"(\w+)"', source)) | set(
        re.findall(r'signs\.found\["(\w+)"\]', source)
    )
    assert set(USUAL) <= said, set(USUAL) - said


def test_probabilities_are_probabilities():
    for row in [USUAL, *PREDICTS.values()]:
        assert all(0 < p < 1 for p in row.values())


def test_odds_by_hand():
    row, prior = PREDICTS["stability.noise_grows"], PRIOR.get("stability.noise_grows", RARE)
    start = math.log(prior / (1 - prior))
    p, q = row["noise_grows"], USUAL["noise_grows"]
    assert odds("stability.noise_grows", {}) == pytest.approx(start)
    assert odds("stability.noise_grows", {"noise_grows": True}) == pytest.approx(start + math.log(p / q))
    assert odds("stability.noise_grows", {"noise_grows": False}) == pytest.approx(start + math.log((1 - p) / (1 - q)))
    assert odds("stability.noise_grows", {"noise_grows": None}) == pytest.approx(start)


def test_a_law_is_certain_and_needs_its_sign():
    found = rank({"rate_zero": True}).causes
    assert found[0].id == "schedule.rate_zero" and found[0].law and found[0].probability == 1.0
    assert "schedule.rate_zero" not in [c.id for c in rank({"rate_zero": False, "flat": True}).causes]


def test_no_sign_names_no_cause():
    assert rank({}).causes == () and rank(dict.fromkeys(USUAL, False)).causes == ()


def test_what_only_describes_goes_where_it_is_explained():
    signs = {"level_rises": True, "rise_stays": True, "rate_hot": True, "norm_rises_too": True, "falls": False}
    assert "stability.level_jump" not in [c.id for c in rank(signs).causes]
    assert rank(signs).causes[0].id == "optim.learning_rate_too_high"


def test_rivals_share_one_probability_and_name_the_experiment():
    signs = {"nan_loss": True, "finite_before_nan": True, "fp16": None}
    found = rank(signs)
    group = next(r for r in RIVALS if "precision.fp16_overflow" in r.causes)
    assert sum(c.probability for c in found.causes if c.id in group.causes) <= 1.0
    assert found.tied is group


def test_supporting_signs_come_strongest_first():
    found = supporting("optim.learning_rate_too_high", {"rate_hot": True, "ends_above_start": True, "falls": True})
    assert found == ("ends_above_start", "rate_hot")
