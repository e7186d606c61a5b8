"""The health light in the progress line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from runner.report import progress as module
from runner.report.counts import count, count_line
from runner.report.progress import HEALTH_LINES, Progress, health_words, step_line
from runner.report.screen import Screen, Terminal

GREEN = {"light": "green", "reason": None}
YELLOW = {
    "light": "yellow",
    "reason": "gradient_growing",
    "short": "gradient norm growing",
    "sentence": "it is 3 times",
}
RED = {"light": "red", "reason": "loss_above_start", "short": "loss above its start", "sentence": "2, now 9"}


def row(step: int, health: dict[str, Any] | None) -> dict[str, Any]:
    return {"step": step, "loss": 2.0, "seconds": 0.1, **({} if health is None else {"health": health})}


def said(lights: list[dict[str, Any] | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(module, "PLAIN_SECONDS", 0.0)
    screen = Screen(tmp_path / "console.log")
    screen.console = Terminal(file=io.StringIO())
    with Progress(screen, len(lights)) as progress:
        for i, light in enumerate(lights):
            progress.step(row(i + 1, light))
    screen.close()
    return (tmp_path / "console.log").read_text().splitlines()


def test_words() -> None:
    assert [health_words(x) for x in (GREEN, YELLOW, RED)] == [
        "health ok", "at risk: gradient norm growing", "doomed: loss above its start"
    ]  # fmt: skip
    assert step_line(row(1, None), 9, eta=5.0, health="health ok") == "step 1/9  loss 2.0000  health ok  ETA 0:05"


def test_a_change_of_light_is_one_line_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said([GREEN, None, YELLOW, YELLOW, RED, GREEN, None], tmp_path, monkeypatch)
    stays = [line for line in lines if "loss" not in line.split("  ")[1]]
    assert stays == [
        "step 3/7  at risk: it is 3 times", "step 5/7  doomed: 2, now 9", "step 6/7  health ok again"
    ]  # fmt: skip
    steps = [line for line in lines if line not in stays]
    assert ["health ok" in line for line in steps] == [True, True, False, False, False, True, True]
    assert "at risk: gradient norm growing" in steps[3] and "doomed: loss above its start" in steps[4]


def test_a_run_without_a_light_shows_none_and_a_flickering_one_few_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "health" not in "".join(said([None] * 5, tmp_path, monkeypatch))
    (tmp_path / "console.log").unlink()
    lines = said([GREEN, YELLOW] * 50, tmp_path, monkeypatch)
    assert sum("it is 3 times" in x or "ok again" in x for x in lines) == HEALTH_LINES
    assert sum("telemetry.jsonl only" in x for x in lines) == 1


def test_the_live_line_colours_the_light() -> None:
    screen = Screen(None, quiet=True)
    screen.console = Terminal(file=io.StringIO(), force_terminal=True)
    with Progress(screen, 3) as progress:
        progress.step(row(1, YELLOW))
        assert progress._live is not None
        shown = progress._live.get_renderable()
    assert "yellow" in [str(span.style) for span in shown.spans]  # type: ignore[union-attr]
    assert shown.plain.count("at risk: gradient norm growing") == 1  # type: ignore[union-attr]


def test_lights_are_counted() -> None:
    found = count([row(1, GREEN), row(2, None), row(3, YELLOW), row(4, RED), row(5, RED)], True)
    assert found["health"] == {"green": 2, "yellow": 1, "red": 2, "first_red_step": 4}
    assert count_line({"counts": found}, "none").endswith("1 step at risk, 2 doomed")
    assert count([row(1, None)], True)["health"] is None
