"""The table of numbers knows every number that the diagnosis gives, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runner.report.page.numbers import MEANINGS, PERIOD, interval, meaning_of, rows_of

DIAGNOSIS = Path(__file__).parents[2] / "runner" / "diagnosis"
SET = r'signs\.numbers\["(\w+)"\] ='
JOINED = r"signs\.numbers \|= \{([^}]*)\}"
END = re.compile(r"_(low|high)$")


def emitted() -> set[str]:
    """Names that the code of the diagnosis puts into `numbers`, but for `period_...`, which it makes of parts."""
    code = "".join(file.read_text(encoding="utf-8") for file in sorted(DIAGNOSIS.glob("*.py")))
    return set(re.findall(SET, code)) | set(re.findall(r'"(\w+)":', "".join(re.findall(JOINED, code))))


def test_every_number_of_the_diagnosis_has_a_meaning_or_is_the_end_of_an_interval_that_is_shown() -> None:
    names = emitted()
    assert len(names) > 50
    ends = {name for name in names if END.search(name) and END.sub("", name) in names}
    assert ends == {"kappa_low", "kappa_high", "r_squared_low"}
    assert set(MEANINGS) == names - ends
    numbers = {name: 0.1 + n for n, name in enumerate(sorted(names))}
    rows = rows_of(numbers)
    assert [name for name, _, _ in rows] == list(MEANINGS), "the most telling first"
    notes = {name: note for name, _, note in rows if note}
    assert notes == {
        "kappa": f"{numbers['kappa_low']:g} … {numbers['kappa_high']:g}",
        "r_squared": f"≥ {numbers['r_squared_low']:g}",
    }


@pytest.mark.parametrize("name", ["period_epoch", "period_scheduler_cycle"])
def test_periods_share_a_meaning(name: str) -> None:
    assert meaning_of(name) is PERIOD and meaning_of("period") is None and meaning_of("novel") is None


def test_a_meaning_is_one_sentence_in_both_languages_with_the_same_figures() -> None:
    for name, (en, zh) in {**MEANINGS, "period_": PERIOD}.items():
        assert re.fullmatch(r"[A-Z0-9].*[^.]\.", en) and ". " not in en, name
        assert zh.count("。") == 1 and zh.endswith("。") and re.search(r"[\u4e00-\u9fff]", zh), name
        figures = [set(re.findall(r"(?<![a-z])-?\d+(?:\.\d+)?", words)) for words in (en, zh)]
        assert figures[0] == figures[1], name
    # Two rows that say the same would leave the reader to guess how they differ.
    assert len({t.en for t in MEANINGS.values()}) == len({t.zh for t in MEANINGS.values()}) == len(MEANINGS)


def test_the_most_telling_numbers_come_first() -> None:
    order = list(MEANINGS)
    told = ["kappa", "r_squared", "smoother", "probe_change", "noise_relative", "fall_relative", "eval_rise",
            "rate_peak", "clipped_share"]  # fmt: skip
    assert [name for name in order if name in told] == told


def test_an_interval_may_have_one_end() -> None:
    assert interval("x", {"x": 1.0, "x_low": 0.5, "x_high": 2.0}) == "0.5 … 2"
    assert interval("x", {"x": 1.0, "x_low": 0.0}) == "≥ 0" and interval("x", {"x": 1.0, "x_high": 2.0}) == "≤ 2"
    assert interval("x", {"x": 1.0}) == "" and interval("x", {"x_interval": [0.5, 2.0]}) == "0.5 … 2"
