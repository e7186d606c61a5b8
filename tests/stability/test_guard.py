"""The decision about a broken step."""

from __future__ import annotations

import pytest

from runner.config.schema import Guard
from runner.stability.guard import NonFiniteGuard


def fed(guard: NonFiniteGuard, *steps: tuple[bool, bool], scaled: bool = False) -> list[str]:
    return [guard.judge(loss, gradient, scaled) for loss, gradient in steps]


GOOD, BAD_LOSS, BAD_GRADIENT = (True, True), (False, False), (True, False)


@pytest.mark.parametrize(
    ("kind", "verdict"), [("warn", "take"), ("skip", "skip"), ("stop", "skip"), ("ignore", "take")]
)
def test_what_becomes_of_a_broken_step(kind: str, verdict: str) -> None:
    guard = NonFiniteGuard(Guard(on_nonfinite=kind))  # type: ignore[arg-type]
    assert fed(guard, GOOD, BAD_LOSS, BAD_GRADIENT, GOOD) == ["take", verdict, verdict, "take"]


@pytest.mark.parametrize("kind", ["warn", "skip"])
def test_so_many_in_a_row_end_the_run_and_never_loop(kind: str) -> None:
    guard = NonFiniteGuard(Guard(on_nonfinite=kind, max_consecutive=3))  # type: ignore[arg-type]
    fed(guard, BAD_LOSS, BAD_LOSS, GOOD, BAD_LOSS, BAD_GRADIENT)
    assert guard.ends_run is None
    fed(guard, BAD_LOSS)
    assert guard.ends_run is not None and "3 steps in a row" in guard.ends_run
    fed(guard, *[BAD_LOSS] * 7)
    assert guard.ends_run is not None


def test_stop_ends_at_the_first_and_ignore_never() -> None:
    stop, ignore = NonFiniteGuard(Guard(on_nonfinite="stop")), NonFiniteGuard(Guard(on_nonfinite="ignore"))
    fed(stop, GOOD)
    assert stop.ends_run is None
    fed(stop, BAD_GRADIENT)
    assert stop.ends_run is not None
    fed(ignore, *[BAD_LOSS] * 10)
    assert ignore.ends_run is None


def test_the_search_of_the_loss_scale_is_no_alarm_but_a_broken_loss_is() -> None:
    guard = NonFiniteGuard(Guard(on_nonfinite="skip", max_consecutive=2))
    assert fed(guard, *[BAD_GRADIENT] * 20, scaled=True) == ["take"] * 20
    assert guard.ends_run is None
    fed(guard, BAD_LOSS, BAD_GRADIENT, BAD_LOSS, scaled=True)
    assert guard.ends_run is not None, "an overflow between two broken losses does not end the row"


def test_a_resumed_guard_decides_as_an_uninterrupted_one() -> None:
    guard = NonFiniteGuard(Guard(on_nonfinite="skip", max_consecutive=3))
    fed(guard, BAD_LOSS, BAD_LOSS)
    resumed = NonFiniteGuard(Guard(on_nonfinite="skip", max_consecutive=3))
    resumed.load(guard.state())
    fed(resumed, BAD_LOSS)
    assert resumed.ends_run is not None
