"""The table of predictions: every name in it exists, every sign is set somewhere, every row can be read."""

import re
from pathlib import Path

import pytest

from runner.causes.catalogue import CAUSES
from runner.causes.likelihood import NOTES
from runner.causes.table import LAWS, NEEDS, PREDICTS, PRIOR, RARE, REST, RIVALS, USUAL

DIAGNOSIS = Path(__file__).resolve().parents[2] / "runner" / "diagnosis"
ANSWERS_ONLY = {"nan_lasts", "diverges", "control"}
"""Signs that the answers or the words read, and no cause."""


def said() -> set[str]:
    """Names that the diagnosis gives a value."""
    sources = [p.read_text(encoding="utf-8") for p in (*DIAGNOSIS.glob("sign*.py"), DIAGNOSIS / "control.py")]
    listed = re.findall(r"for name in \(([^)]*)\):\s+signs\.say\(name", "".join(sources))
    names = re.findall(r'signs\.(?:say|found\.setdefault)\(\s*"(\w+)"', "".join(sources))
    names += re.findall(r'signs\.found\["(\w+)"\]', "".join(sources))
    return {*names, *re.findall(r'"(\w+)"', "".join(listed))}


def test_every_sign_of_a_row_has_a_usual_probability() -> None:
    signs = {s for row in PREDICTS.values() for s in row} | {s for n in NEEDS.values() for s in n} | set(LAWS.values())
    assert signs <= set(USUAL), signs - set(USUAL)


def test_every_sign_is_used_by_a_row() -> None:
    assert set(USUAL) <= {s for row in PREDICTS.values() for s in row}


def test_every_cause_is_in_the_catalogue() -> None:
    causes = {*PREDICTS, *PRIOR, *LAWS, *NEEDS, *REST, *NOTES, *(c for r in RIVALS for c in r.causes)}
    assert causes <= set(CAUSES), causes - set(CAUSES)
    assert set(NEEDS) | set(LAWS) | set(PRIOR) | set(REST) <= set(PREDICTS)


def test_every_sign_is_set_by_the_diagnosis_and_the_other_way_round() -> None:
    assert said() - ANSWERS_ONLY == set(USUAL)


def test_probabilities_are_probabilities() -> None:
    for row in [USUAL, PRIOR, {"": RARE}, *PREDICTS.values()]:
        assert all(0 < p < 1 for p in row.values())


@pytest.mark.parametrize("cause", PREDICTS)
def test_a_cause_is_made_likelier_by_what_it_needs(cause: str) -> None:
    row = PREDICTS[cause]
    assert any(p > USUAL[s] for s, p in row.items())
    for sign in (*NEEDS.get(cause, ()), *([LAWS[cause]] if cause in LAWS else [])):
        assert row.get(sign, 0.0) > USUAL[sign], sign


def test_rivals_are_two_or_more_and_name_an_experiment_in_both_languages() -> None:
    for group in RIVALS:
        assert len(set(group.causes)) == len(group.causes) >= 2 and set(group.causes) <= set(PREDICTS)
        assert group.experiment.en and group.experiment.zh and group.experiment.en != group.experiment.zh


@pytest.mark.parametrize("sign", ["period_is_rate", "period_is_length"])
def test_a_named_period_speaks_against_a_period_of_no_name(sign: str) -> None:
    assert PREDICTS["stability.periodic"][sign] < USUAL[sign]
