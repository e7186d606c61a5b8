"""How the table of predictions is read."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.causes.likelihood import NOTES, odds, rank, supporting
from runner.causes.table import LAWS, NEEDS, PREDICTS, PRIOR, RARE, REST, RIVALS, USUAL
from runner.causes.thresholds import POSSIBLE


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


def test_odds_of_two_causes_by_hand():
    """The numbers of the table as of now, worked out with a pocket calculator."""
    signs = {"eval_rises": True, "falls": True, "eval_falls": False, "memorised": None}
    # 0.2/0.8 * 0.9/0.08 * 0.85/0.85 * 0.7/0.4 = 4.921875
    assert math.exp(odds("data.overfit", signs)) == pytest.approx(4.921875)
    # 0.05/0.95 * 0.02/0.85 * 0.1/0.6 (falls; eval_falls absent: 0.9/0.4) = 0.0027864
    assert math.exp(odds("learning.stuck", signs)) == pytest.approx(0.05 / 0.95 * 0.02 / 0.85 * 0.9 / 0.4)
    assert rank(signs).causes[0].id == "data.overfit"
    assert rank(signs).causes[0].probability == pytest.approx(4.921875 / 5.921875)


def test_signs_that_no_row_knows_change_nothing():
    known = {"eval_rises": True, "falls": True}
    assert rank({**known, "never heard of": True, "another": False}) == rank(known)


@given(st.dictionaries(st.sampled_from(sorted(USUAL)), st.sampled_from([True, False, None])))
def test_every_ranking_is_in_order_and_in_bounds(signs):
    found = rank(signs)
    probabilities = [c.probability for c in found.causes]
    assert probabilities == sorted(probabilities, reverse=True)
    for cause in found.causes:
        assert cause.law == (cause.id in LAWS) and POSSIBLE <= cause.probability <= 1.0
        assert cause.signs and all(signs[s] for s in cause.signs)
        if cause.id in NEEDS:
            assert any(signs.get(s) for s in NEEDS[cause.id])
    for group in RIVALS:
        assert sum(c.probability for c in found.causes if c.id in group.causes and not c.law) <= 1 + 1e-9
    assert rank({k: v for k, v in signs.items() if v is not None}) == found


@given(st.dictionaries(st.sampled_from(sorted(USUAL)), st.sampled_from([True, False])))
def test_a_description_never_stands_beside_what_explains_it(signs):
    found = rank(signs).causes
    explained = {s for c in found if c.id not in REST and c.id not in NOTES for s in c.signs}
    assert not [c.id for c in found if c.id in REST and set(c.signs) <= explained]


def test_rivals_with_equal_odds_count_each():
    found = [c.probability for c in rank({"log_classes_zero_norm": True, "frozen_norm": True}).causes]
    assert len(found) >= 2 and found[0] == found[1] and sum(found) <= 1


def test_a_description_stays_beside_a_note():
    found = [c.id for c in rank({"level_rises": True, "rate_hot": False, "oscillates": True, "falls": True}).causes]
    assert "stability.level_jump" in found


@pytest.mark.parametrize(("cause", "sign"), sorted(LAWS.items()))
def test_laws(cause, sign):
    found = {c.id: c for c in rank({sign: True}).causes}
    assert found[cause].law and found[cause].probability == 1.0
    assert cause not in {c.id for c in rank({sign: False, **dict.fromkeys(set(PREDICTS[cause]) - {sign}, True)}).causes}


def test_an_experiment_is_named_only_where_no_rival_is_likely():
    clear = rank({"level_rises": True, "rise_stays": True, "rate_hot": True, "norm_rises_too": True})
    assert clear.causes[0].id == "optim.learning_rate_too_high" and clear.tied is None
    open_ = rank({"nan_loss": True, "finite_before_nan": True, "fp16": None}).tied
    assert open_ is not None and open_.experiment.en and open_.experiment.zh
