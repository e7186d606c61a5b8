"""Folder names of trials: readable, short, safe, never shared."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.config.trialname import trial_name

LISTS = st.lists(st.text(max_size=60), max_size=6)


def test_plain_names_are_the_overrides() -> None:
    assert trial_name(["clip=none", "optim.learning_rate=1e-4"]) == "clip=none,optim.learning_rate=1e-4"
    assert trial_name(["task.name=积极"]) == "task.name=积极"
    assert trial_name([]) == "defaults"


def test_changed_names_end_in_a_hash() -> None:
    assert "~" in trial_name(["a=/b/c"])
    assert trial_name(["a=b,c=d"]) != trial_name(["a=b", "c=d"])
    assert trial_name(["a=/"]) != trial_name(["a=:"])


@settings(max_examples=200, deadline=None)
@given(LISTS, LISTS)
def test_two_lists_never_share_a_name(one: list[str], other: list[str]) -> None:
    assert (trial_name(one) == trial_name(other)) == (one == other)


@settings(max_examples=200, deadline=None)
@given(LISTS)
def test_names_fit_a_file_system(overrides: list[str]) -> None:
    name = trial_name(overrides)
    assert 0 < len(name) <= 120 and len(name.encode()) <= 200
    assert not set(name) & set('/\\:*?"<>|\0\n') and name not in (".", "..")
