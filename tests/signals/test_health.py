"""The light: hardly ever on benign noise, never red on healthy real logs, red on what diverges."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.runfolder import number, to_json
from runner.signals.health import CLEAN, HOLD, Monitor

LOGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "logs"
real = pytest.mark.skipif(not (LOGS / "index.jsonl").is_file(), reason="the shared real logs are not here")
NAN = float("nan")


def lights(rows: Any, monitor: Monitor | None = None) -> list[str]:
    monitor = monitor or Monitor()
    return [monitor.observe(row).light for row in rows]


def benign(seed: int, steps: int, cv: float, kind: str, known: bool) -> tuple[Monitor, list[dict[str, Any]]]:
    """Loss falling 1.5 to 1.15 with noise, norms that scatter with it; `known`: with the start model's loss."""
    rng = np.random.default_rng([seed, steps, int(100 * cv)])
    noise, sigma = rng.standard_normal(steps), math.sqrt(math.log(1 + cv * cv))
    factor = 1 + cv * noise if kind == "gaussian" else np.exp(sigma * noise - sigma * sigma / 2)
    loss = (1.15 + 0.35 * np.exp(-3 * np.arange(steps) / steps)) * factor
    norm = np.exp(0.4 * rng.standard_normal(steps) + 0.3 * noise)
    monitor, base = Monitor(), list[float | None]([None] * steps)
    if known:
        monitor.expect({"mean": 1.5 * (1 + 0.35 * cv * rng.standard_normal()), "sd_step": 1.5 * cv,
                        "examples": 64, "batch": 8})  # fmt: skip
        exact = 1.5 * factor * (1 + 0.3 * cv * rng.standard_normal(steps))
        base = [float(x) if i % max(steps // 200, 1) == 0 else None for i, x in enumerate(exact)]
    rows = [
        {"loss": float(x), "grad_norm": float(n), "base_loss": b, "learning_rate": 1e-4}
        for x, n, b in zip(loss, norm, base, strict=True)
    ]
    return monitor, rows


@pytest.mark.parametrize(
    ("steps", "draws"), [(60, 60), (1000, 5), pytest.param(60, 300, marks=pytest.mark.slow),
                         pytest.param(1000, 300, marks=pytest.mark.slow),
                         pytest.param(3000, 300, marks=pytest.mark.slow)],
)  # fmt: skip
def test_benign_noise_is_hardly_ever_called_doomed(steps: int, draws: int) -> None:
    runs, red, not_green = 0, 0, 0
    for draw in range(draws):
        cv, kind, known = (0.1, 0.16, 0.25)[draw % 3], ("gaussian", "log-normal")[draw // 3 % 2], draw // 6 % 2 == 1
        monitor, rows = benign(draw, steps, cv, kind, known)
        count = Counter(lights(rows, monitor))
        runs, red, not_green = runs + 1, red + (count["red"] > 0), not_green + steps - count["green"]
    assert red <= 0.005 * runs
    assert not_green < 0.01 * runs * steps


def records(path: Path) -> list[dict[str, Any]]:
    """The training points of a log, in order, as facts of steps."""
    text = path.read_text(encoding="utf-8")
    found = json.loads(text) if path.suffix == ".json" else [json.loads(x) for x in text.splitlines() if x.strip()]
    while isinstance(found, dict):
        found = found.get("log_history") or found.get("trainer_state") or []
    return [
        {"loss": number(r["loss"]), "grad_norm": number(r.get("grad_norm")),
         "learning_rate": number(r.get("learning_rate", r.get("lr")))}
        for r in found if r.get("loss") is not None
    ]  # fmt: skip


@real
def test_healthy_real_logs_are_never_red() -> None:
    index = [json.loads(line) for line in (LOGS / "index.jsonl").read_text(encoding="utf-8").splitlines()]
    wanted = ("healthy", "benign_noise", "epoch_staircase")
    healthy = [LOGS / x["file"] for x in index if x["label"] in wanted]
    healthy += sorted(LOGS.glob("qwen2.5-3b_qlora/healthy/*")) + sorted(LOGS.glob("qwen2.5-3b_qlora/lr_zero/*"))
    assert len(healthy) > 60
    assert [path.name for path in healthy if "red" in lights(records(path))] == []


@real
@pytest.mark.parametrize(
    ("name", "by"),
    [("qwen2.5-3b_qlora/lr_hot/seed42.json", 4), ("qwen2.5-3b_qlora/lr_hot/seed43.json", 5),
     ("qwen2.5-3b_qlora/fp16_nan/seed42.json", 7), ("qwen2.5-3b_qlora/fp16_nan/seed43.json", 6),
     ("JakubMroz4__subjectivity-detection__2.json", 39)],
)  # fmt: skip
def test_real_divergence_turns_red(name: str, by: int) -> None:
    """These logs have a mean of several steps at each point; the loss leaves its band at points 2, 2, 5, 3, never."""
    found = lights(records(LOGS / name))
    assert "red" in found and found.index("red") + 1 <= by


def steady(steps: int, **more: Any) -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    return [
        {"loss": 2 + 0.1 * float(rng.standard_normal()), "grad_norm": float(np.exp(0.2 * rng.standard_normal())),
         "learning_rate": 1e-4, **more} for _ in range(steps)
    ]  # fmt: skip


def test_a_blow_up_in_the_first_steps_is_seen_against_the_band_of_the_start_model() -> None:
    monitor = Monitor()
    monitor.expect({"mean": 2.0, "sd_step": 0.1, "examples": 64, "batch": 8})
    assert lights([{"loss": x} for x in (2.05, 1.9, 2.4, 3.1, 4.0)], monitor)[-1] == "red"
    assert monitor.health.reason == "loss_above_start"


def test_an_outlier_is_no_doom_and_the_light_is_green_again_after_a_clean_stretch() -> None:
    rows = steady(80)
    rows[40] = {**rows[40], "loss": 9.0, "grad_norm": 40.0}
    found = lights(rows)
    assert "red" not in found and found[-1] == "green" and found[39] == "green"
    assert found.count("yellow") <= CLEAN["yellow"] + 4


def test_growing_gradients_alone_are_a_warning_and_with_a_rising_loss_doom() -> None:
    grown = [{**row, "grad_norm": row["grad_norm"] * 5} for row in steady(30)]
    assert set(lights([*steady(40), *grown])) == {"green", "yellow"}
    rising = [{**row, "loss": row["loss"] + 0.05 * i} for i, row in enumerate(grown)]
    monitor = Monitor()
    found = lights([*steady(40), *rising], monitor)
    assert found[-1] == "red" and found.index("red") >= 40 + HOLD
    both = Monitor()
    lights([*steady(40), *rising][: found.index("red") + 1], both)
    assert "gradient norm" in both.health.sentence.en and "the loss keeps above" in both.health.sentence.en
    exceeds = next(i for i, row in enumerate([*steady(40), *rising]) if i >= 40 and row["loss"] > 2 + 4 * 0.1)
    assert found.index("red") - exceeds < 12


def test_harder_rows_are_no_rising_loss() -> None:
    """A block of harder rows: loss and gradient norm rise, but against the start model on the same rows nothing."""
    easy = [{**row, "base_loss": row["loss"] + 0.5} for row in steady(60)]
    hard = [{**row, "loss": row["loss"] + 0.8, "base_loss": row["loss"] + 1.3, "grad_norm": row["grad_norm"] * 3}
            for row in steady(60)]  # fmt: skip
    monitor = Monitor()
    monitor.expect({"mean": 2.9, "sd_step": 0.2, "examples": 64, "batch": 8})
    assert "red" not in lights([*easy, *hard], monitor)
    unknown = [{k: v for k, v in row.items() if k != "base_loss"} for row in [*easy, *hard]]
    assert "red" in lights(unknown), "where nothing is known of the rows this is doom"


def test_steps_that_replace_the_weights_are_doom_only_with_a_gradient_that_jumps() -> None:
    sizes = {"update_rms": 0.03, "weight_rms": 0.03}
    start = [{"loss": 2.0, "grad_norm": 1.0}, {"loss": 1.9, "grad_norm": 1.1, **sizes}]
    assert lights([*start, {"loss": 2.1, "grad_norm": 12.0, **sizes}])[-1] == "red"
    assert lights([*start, {"loss": 2.1, "grad_norm": 1.2, **sizes}])[-1] == "yellow"
    assert lights([*start, {"loss": 2.1, "grad_norm": 12.0}])[-1] == "green"


@pytest.mark.parametrize(
    ("rates", "light"), [([1e-4] * 4, "yellow"), ([1e-4, 2e-4, 3e-4, 4e-4], "green")], ids=["later", "warm-up"]
)
def test_a_lagging_second_moment_is_a_warning_but_not_in_warm_up(rates: list[float], light: str) -> None:
    rows = [{"loss": 2.0, "grad_norm": 1.0, "rms_t": 2.6, "learning_rate": rate} for rate in rates]
    assert lights(rows)[-1] == light


def line(s: float) -> dict[str, Any]:
    return {"probe": "line", "step": 1, "l0": 2.0, "l_half": 1.9, "l1": 2.1, "s": s}


@pytest.mark.parametrize(
    ("lines", "light"),
    [([line(2.5), line(NAN)], "yellow"), ([line(2.5)], "green"), ([line(0.4), line(0.9)], "green"),
     ([{**line(NAN), "l_half": 2.0, "l1": 2.0}] * 2, "green"),
     ([{"probe": "replay", "step": 1, "before": 2.0, "after": x} for x in (2.1, 1.9, 2.2, 2.3)], "yellow"),
     ([{"probe": "replay", "step": 1, "before": 2.0, "after": 1.9}] * 6, "green"),
     ([{"probe": "lost_updates", "step": 1, "share": 0.4}], "yellow"),
     ([{"probe": "lost_updates", "step": 1, "share": 0.1}], "green")],
)  # fmt: skip
def test_probes(lines: list[dict[str, Any]], light: str) -> None:
    monitor = Monitor()
    monitor.observe({"loss": 2.0, "grad_norm": 1.0, "learning_rate": 1e-3})
    for found in lines:
        monitor.probe(found)
    assert monitor.observe({"loss": 2.0, "grad_norm": 1.0, "learning_rate": 1e-3}).light == light


def test_a_rate_on_its_way_to_zero_may_lose_updates() -> None:
    monitor = Monitor()
    monitor.observe({"loss": 2.0, "learning_rate": 1e-3})
    monitor.probe({"probe": "lost_updates", "step": 9, "share": 0.9})
    assert monitor.observe({"loss": 2.0, "learning_rate": 1e-5}).light == "green"


def test_the_search_of_the_loss_scale_is_no_alarm_but_overflow_without_end_is() -> None:
    overflow = {"loss": 2.0, "grad_norm": math.inf, "loss_scale": 2.0**10}
    search = [overflow] * 6
    assert set(lights([*search, *steady(40)])) == {"green"}
    monitor = Monitor()
    found = lights([*steady(20), *[overflow] * 10], monitor)
    assert found[22] == "yellow" and found[-1] == "red" and monitor.health.reason == "gradients_overflow"
    assert "1024" in monitor.health.sentence.en and "1024" in monitor.health.sentence.zh


def test_losses_that_are_not_finite_in_a_row() -> None:
    bad = {"loss": NAN, "grad_norm": NAN}
    assert lights([*steady(5), bad, bad, bad])[-3:] == ["green", "yellow", "red"]
    hidden = {"loss": 0.0, "grad_norm": NAN}
    assert lights([hidden] * 3)[-1] == "red"


@pytest.mark.parametrize("cut", [1, 20, 45, 52])
def test_a_loaded_state_goes_on_with_the_same_light(cut: int) -> None:
    rising = [{**row, "loss": row["loss"] + 0.05 * i, "grad_norm": row["grad_norm"] * 4, "base_loss": 2.0}
              for i, row in enumerate(steady(30))]  # fmt: skip
    rows = [*steady(40), *rising]
    first, second, whole = Monitor(), Monitor(), Monitor()
    expected = lights(rows, whole)
    begun = lights(rows[:cut], first)
    second.load(json.loads(json.dumps(to_json(first.state()), allow_nan=False)))
    assert begun + lights(rows[cut:], second) == expected and "red" in expected
    assert second.state() == whole.state()


def test_after_a_roll_back_the_signs_begin_anew_and_the_start_stays() -> None:
    monitor = Monitor()
    monitor.expect({"mean": 2.0, "sd_step": 0.1, "examples": 64, "batch": 8})
    lights([{"loss": 5.0, "grad_norm": 50.0}] * 5, monitor)
    assert monitor.health.light == "red"
    monitor.after_roll_back()
    assert set(lights(steady(20), monitor)) == {"green"} and monitor.loss.start == 2.0
    assert lights([{"loss": 5.0, "grad_norm": 50.0}] * 5, monitor)[-1] == "red", "and may turn red again"


def test_every_reason_is_said_in_both_languages() -> None:
    monitor = Monitor()
    lights([{"loss": 2.0}] * 3 + [{"loss": 50.0}] * 5, monitor)
    health = monitor.health
    assert health.light == "red" and health.as_json()["reason"] == "loss_above_start"
    assert health.sentence.zh != health.sentence.en and health.short.zh != health.short.en
