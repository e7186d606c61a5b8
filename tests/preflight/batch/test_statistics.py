"""The noise that is told before a run, against batches drawn from the same losses; and what the held-out rows show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from runner.config.schema import Validation
from runner.preflight.batch import statistics
from runner.preflight.batch.statistics import measure, noise, noise_sentence, rounded, source_means, sources, validation
from runner.preflight.context import Context


def band(**more: Any) -> dict[str, Any]:
    return {
        "mean": 1.47, "sd_step": 0.23, "sd_log": 0.103, "sd_independent": 0.23, "between_share": 0.3, "batch": 8,
        "log_steps": 5, "examples": 64, **more,
    }  # fmt: skip


def test_the_sentence_says_step_logged_point_a_larger_batch_and_what_it_takes_to_see_a_difference():
    assert noise_sentence(band()) == (
        "loss about 1.47; from sampling alone expect +/- 0.23 per step, +/- 0.1 per logged point (mean of 5 steps) at "
        "batch 8; global batch 32 halves it; to see a difference of 0.02 between two settings takes about 2,100 steps "
        "each, or 730 on the adjusted loss"
    )
    assert "per logged point" not in noise_sentence(band(log_steps=1))
    assert noise_sentence(band(sd_step=math.nan)) == "too few rows to say (64)"


def test_rounded():
    assert [rounded(n) for n in (7, 99, 104, 2074, 123456)] == ["7", "99", "100", "2,100", "120,000"]


def test_source_means_by_hand():
    rows = [("a", 2.0, 2), ("a", 4.0, 1), ("b", 3.0, 1), ("b", math.nan, 1)]
    assert source_means(rows) == {"a": 2.0, "b": 3.0}


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_the_predicted_noise_is_that_of_drawn_batches(context: Callable[..., Any], task: str):
    c = context("batch", task=task, rows=120)
    before = {n: p.detach().clone() for n, p in c.trainer.model.named_parameters()}
    result = noise(c)
    assert not result.findings and "from sampling alone expect" in result.summary
    ids, losses, _ = c.facts["row_losses"]
    rng = np.random.default_rng(0)
    sums, tokens = (np.array([losses[row][k] for row in ids]) for k in (0, 1))
    draws = [rng.choice(len(ids), c.plan.global_batch) for _ in range(4000)]
    drawn = np.std([sums[d].sum() / tokens[d].sum() for d in draws])
    assert c.facts["noise"]["sd_independent"] == pytest.approx(drawn, rel=0.08)
    assert all((p == before[n]).all() for n, p in c.trainer.model.named_parameters())
    assert c.trainer.held_out is None and not c.trainer.step_now.micros and c.trainer.model.training


def test_losses_are_those_that_the_run_measures_itself(context: Callable[..., Any]):
    c = context("batch", rows=20)
    rows = c.data.train.select(range(6))
    ours, its = measure(c, rows), c.trainer.row_losses(rows)
    assert {row: n for row, (_, n) in ours.items()} == {row: n for row, (_, n) in its.items()}
    assert [s for s, _ in ours.values()] == pytest.approx([s for s, _ in its.values()], rel=1e-6)


def test_a_row_with_no_finite_loss_is_named(
    context: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # A weight is spoilt in memory, so losses that another test measured on the same files must not be at hand.
    monkeypatch.setenv("RUNNER_CACHE", str(tmp_path / "cache"))
    # A classifier: under SFT the embedding is tied to the head, and one NaN row of it makes every loss NaN.
    c = context("batch", task="classification", rows=20)
    count = Counter(token for r in c.data.train for token in set(r["input_ids"]))
    token, holder = next((t, r["row_id"]) for r in c.data.train for t in r["input_ids"] if count[t] == 1)
    with torch.no_grad():
        c.trainer.model.get_input_embeddings().weight[token] = math.nan
    (finding,) = noise(c).findings
    assert finding.id == "data.bad_batch" and finding.severity == "error"
    assert finding.where == (holder,)


def with_facts(make_config: Callable[..., Any], rows: int, **more: Any) -> Any:
    c = Context(make_config(), "quick", None)  # type: ignore[arg-type]

    class Data:
        validation = range(rows) if rows else None

    c.data = Data()  # type: ignore[assignment]
    c.facts["noise"] = band(**more)
    return c


def test_the_held_out_rows(make_config: Callable[..., Any]):
    assert validation(with_facts(make_config, 0)).skipped
    few = validation(with_facts(make_config, 100))
    # One row moves 0.23 sqrt(8) = 0.65: +/- 1.96 x 0.065 = 0.1275, 8.7 % of 1.47; 1 % takes (0.1275 / 0.0147)^2 x 100.
    assert few.summary == "100 rows know the evaluation loss to +/- 0.13 (8.7 %); +/- 1 % takes about 7,500"
    assert not few.findings
    coarse = validation(with_facts(make_config, 50))
    assert coarse.findings[0].severity == "note" and coarse.findings[0].numbers["rows_for_1_percent"] == 7524
    enough = validation(with_facts(make_config, 8000))
    assert not enough.findings and "takes about" not in enough.summary
    assert validation(with_facts(make_config, 1)).summary.startswith("1 row knows the evaluation loss")


def test_a_small_share_is_answered_where_it_was_set(make_config: Callable[..., Any]):
    c = with_facts(make_config, 100)
    c.cfg.dataset.validation.fraction = 0.01
    assert [f.id for f in validation(c).findings] == ["evaluation.noisy"]


def test_sources_that_differ_are_told_with_the_sampler_that_helps(make_config: Callable[..., Any]):
    class Chosen(dict):  # a table with columns
        pass

    c = with_facts(make_config, 0)
    losses = {"x/0": (2.0, 1), "y/0": (1.0, 1)}
    c.facts["row_losses"] = (["x/0", "y/0"], losses, Chosen(source=["x", "y"]))
    (finding,) = sources(c).findings
    assert finding.severity == "note" and finding.where == ("x", "y") and "30 % of the loss's noise" in finding.sentence
    assert finding.overrides == ("batch.sampler=stratified",) and "16 % less" in finding.sentence
    c.cfg.batch.sampler = "stratified"
    assert not sources(c).findings
    c.facts["row_losses"] = (["x/0"], losses, Chosen(source=["x"]))
    assert sources(c).skipped


def test_seconds_limit_the_rows(make_config: Callable[..., Any]):
    c = with_facts(make_config, 0)

    class Data:
        train = {"length": [100] * 500}

    c.data = Data()  # type: ignore[assignment]
    assert len(statistics.affordable(c, 500)) == 64
    c.facts["seconds"] = {"seconds": 3.0, "tokens": 400, "rows": 4}  # 0.25 s a row: 20 in 5 s
    assert len(statistics.affordable(c, 500)) == 20
    c.facts["seconds"] = {"seconds": 30.0, "tokens": 400, "rows": 4}
    assert statistics.affordable(c, 500) == []
    c.level = "deep"
    assert statistics.affordable(c, 500) == []
    c.facts["seconds"] = {"seconds": 12.0, "tokens": 400, "rows": 4}
    assert len(statistics.affordable(c, 500)) == 20


def test_held_out_rows_of_a_real_split(context: Callable[..., Any], make_config: Callable[..., Any]):
    c = context("batch", rows=40, dataset__validation=Validation(fraction=0.2))
    noise(c)
    assert f"{len(c.data.validation)} rows know the evaluation loss" in validation(c).summary
