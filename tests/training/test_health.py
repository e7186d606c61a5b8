"""The health light while a trainer runs: what it does, what it leaves alone, what a resume makes of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from runner.config.schema import Guard
from runner.run import run
from runner.runfolder import number, read_json, read_telemetry
from runner.signals.health import Health, Monitor
from tests.training.kit import trainer_for
from tests.training.test_guarded import Weights

HOT = {"optim__learning_rate": 0.3, "schedule__warmup_steps": 1, "schedule__warmup_ratio": None}


def lights(rows: list[dict[str, Any]]) -> list[str]:
    return [(row.get("health") or {"light": "green"})["light"] for row in rows]


def red_at(monkeypatch: pytest.MonkeyPatch, *steps: int) -> None:
    """A monitor that is red at these of the steps that it sees, and green at others."""
    from runner.text import Text

    def observe(self: Monitor, facts: Any) -> Health:
        self.seen += 1
        red = Health("red", "planted", Text("planted", "x"), Text("it was planted", "x"))
        self.health = red if self.seen in steps else Health()
        return self.health

    monkeypatch.setattr(Monitor, "observe", observe)


@pytest.mark.slow
def test_stop_ends_the_run_as_diverged_and_says_what_was_seen(
    make_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    red_at(monkeypatch, 4)
    cfg = make_config(rows=40, schedule__max_steps=12, stability__guard=Guard(on_doomed="stop"))
    outcome = run(cfg)
    record, rows = read_json(outcome.folder / "run.json"), read_telemetry(outcome.folder)
    assert record is not None and outcome.state == record["state"] == "diverged" and outcome.exit_code == 1
    assert "on_doomed=stop: it was planted" in record["reason"] and "step 4 of 12" in record["reason"]
    assert len(rows) == 4 and rows[3]["skipped"] == "doomed" and rows[3]["action"] == "stop"
    assert rows[3]["health"]["reason"] == "planted" and lights(rows) == ["green"] * 3 + ["red"]
    assert "doomed: it was planted" in (outcome.folder / "console.log").read_text()
    summary = read_json(outcome.folder / "summary.json")
    assert summary is not None and summary["counts"]["health"]["first_red_step"] == 4
    assert record["metric"] is not None, "its last metric stays"


@pytest.mark.slow
def test_a_roll_back_begins_anew_with_half_the_rate(
    make_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    red_at(monkeypatch, 3)
    weights = Weights()
    cfg = make_config(
        rows=40, schedule__max_steps=6, schedule__lr_scheduler_type="constant", schedule__warmup_ratio=0.0,
        stability__guard=Guard(on_doomed="rollback"),
    )  # fmt: skip
    trainer, rows = trainer_for(cfg, [weights])
    anew = []
    monkeypatch.setattr(Monitor, "after_roll_back", lambda self: anew.append(self.seen))
    trainer.train()
    assert rows[2]["action"] == "rollback" and rows[2]["rolled_back_to"] == 0 and anew == [3]
    assert trainer.guard.rollbacks == 1 and trainer.guard.ends_run is None
    assert rows[4]["learning_rate"] == pytest.approx(0.5 * rows[1]["learning_rate"])
    assert not torch.equal(weights.after[1], weights.after[2])


def test_a_snapshot_to_go_back_to_is_older_than_the_first_warning(make_config: Callable[..., Any]) -> None:
    trainer, _ = trainer_for(make_config(rows=40, stability__guard=Guard(on_doomed="rollback")))
    decider = trainer.decider
    assert decider._may_keep(Health("yellow")), "the first one is better than none"
    decider.snapshots.step = 1
    assert decider._may_keep(Health()) and not decider._may_keep(Health("yellow"))


def test_to_warn_changes_no_weight_and_to_ignore_computes_nothing(
    make_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    red_at(monkeypatch, 2, 3)
    after = {}
    for kind in ("warn", "ignore"):
        weights = Weights()
        guard = Guard(on_doomed=kind)  # type: ignore[arg-type]
        trainer, rows = trainer_for(
            make_config(rows=40, out=kind, schedule__max_steps=5, stability__guard=guard), [weights]
        )
        trainer.train()
        after[kind] = weights.after
        assert lights(rows) == (["green", "red", "red", "green", "green"] if kind == "warn" else ["green"] * 5)
        assert not any(row.get("action") or row["skipped"] for row in rows)
    assert all(torch.equal(a, b) for a, b in zip(after["warn"], after["ignore"], strict=True))


def test_probes_and_the_noise_of_the_start_reach_the_light(
    make_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(Monitor, "probe", lambda self, line: seen.append(line["probe"]))
    expected: list[dict[str, Any]] = []
    monkeypatch.setattr(Monitor, "expect", lambda self, noise: expected.append(noise))
    cfg = make_config(rows=40, schedule__max_steps=3)
    cfg.stability.probes.line = cfg.stability.probes.replay = 2
    run(cfg)
    assert {"line", "replay", "probe_set"} <= set(seen)
    assert expected and expected[0]["sd_step"] > 0


@pytest.mark.slow
def test_a_resumed_run_has_the_same_lights(make_config: Callable[..., Any], tmp_path: Path) -> None:
    """Cut in the middle of a divergence: the statistics travel in trainer_state.json."""
    cfg = make_config(
        rows=80, out="whole", schedule__max_steps=10, checkpoint__save_strategy="steps", checkpoint__save_steps=4,
        checkpoint__save_total_limit=None, **HOT,
    )  # fmt: skip
    whole = run(cfg)
    state = read_json(whole.folder / "checkpoints" / "checkpoint-4" / "trainer_state.json")
    assert state is not None
    kept = state["stateful_callbacks"]["StabilityState"]["attributes"]["guard"]["health"]["monitor"]
    assert kept["seen"] == 4
    again = dataclasses.replace(
        cfg,
        output_dir=str(tmp_path / "again"),
        checkpoint=dataclasses.replace(cfg.checkpoint, resume=str(whole.folder / "checkpoints" / "checkpoint-4")),
    )
    expected = [row.get("health") for row in read_telemetry(whole.folder)]
    assert any(expected[4:]), "a light that is not green, to tell something by"
    (whole.folder / "run.json").write_text(
        json.dumps({**(read_json(whole.folder / "run.json") or {}), "state": "running"})
    )
    resumed = run(again)
    rows = [json.loads(x) for x in (resumed.folder / "telemetry.jsonl").read_text().splitlines()]
    repeated = [row.get("health") for row in rows[10:]]
    assert [row["step"] for row in rows[10:]] == list(range(5, 11)) and repeated == expected[4:]


@pytest.mark.slow
def test_a_hundredfold_rate_is_red_before_the_loss_leaves_its_band(tmp_path: Path) -> None:
    """The shipped model at 100 times its rate, and at a rate that rises over the whole run; and at its own rate."""
    from runner.config.compose import Session

    def train(name: str, *overrides: str) -> tuple[list[dict[str, Any]], float]:
        words = [f"output_dir={tmp_path / name}", "schedule.max_steps=50", "dataset.preview=0", *overrides]
        folder = run(Session().load(words).config).folder
        noise = (read_json(folder / "base_loss.json") or {})["noise"]
        return read_telemetry(folder), noise["mean"] + 2 * noise["sd_step"]

    rows, _ = train("own", "optim.learning_rate=1e-3")
    assert set(lights(rows)) == {"green"}
    rising = ("schedule=constant", "schedule.warmup_ratio=null", "schedule.warmup_steps=47")
    for name, rate, more in (("hot", 0.1, ()), ("slow", 0.042, rising)):
        rows, limit = train(name, f"optim.learning_rate={rate}", *more)
        leaves = next(row["step"] for row in rows if not number(row["loss"]) <= limit)  # type: ignore[operator]
        red = next(row["step"] for row in rows if lights([row]) == ["red"])
        assert red < leaves, name
