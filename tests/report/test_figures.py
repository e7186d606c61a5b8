"""What the pictures show, and the PNG files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.diagnosis.trace import Column, Trace, column
from runner.report.charts import charts
from runner.report.figures import write_plots
from runner.report.series import Chart, events
from runner.report.thinning import bucket_means, lost_stretches, thin_extremes
from tests.report import traces

STEPS = np.arange(1, 100)


def chart(trace: Trace, key: str) -> Chart:
    """The chart of that name."""
    return next(c for c in charts(trace) if c.key == key)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(10, 60), st.data())
def test_thinning_keeps_extremes_ends_and_marked_points(values: list[float], most: int, data: st.DataObject) -> None:
    y = np.array(values)
    keep = np.zeros(len(y), dtype=bool)
    keep[data.draw(st.lists(st.integers(0, len(y) - 1), max_size=most // 2))] = True
    kept = thin_extremes(y, most, keep)
    assert len(kept) <= max(most, 1) and (np.diff(kept) > 0).all()
    assert {0, len(y) - 1} <= set(kept.tolist()) and set(np.flatnonzero(keep).tolist()) <= set(kept.tolist())
    assert y[kept].max() == y.max() and y[kept].min() == y.min()


@given(st.lists(st.sampled_from([1.0, float("nan"), float("inf")]), max_size=80), st.integers(1, 12))
def test_no_broken_point_is_lost_from_the_stretches(values: list[float], most: int) -> None:
    y, step = np.array(values), np.arange(10, 10 + len(values))
    found = lost_stretches(step, y, most)
    assert len(found) <= most and sum(s.points for s in found) == int((~np.isfinite(y)).sum())
    broken = step[~np.isfinite(y)]
    assert all(any(s.first <= x <= s.last for s in found) for x in broken)
    assert all(s.first in broken and s.last in broken for s in found)


def test_stretches_say_what_was_there() -> None:
    y = np.array([1.0, np.nan, np.nan, 2.0, np.inf, 3.0, np.nan, -np.inf])
    found = lost_stretches(np.arange(1, 9), y)
    assert [tuple(s) for s in found] == [(2, 3, 2, "NaN"), (5, 5, 1, "inf"), (7, 8, 2, "NaN, inf")]
    x, means = bucket_means(np.arange(5), np.array([1.0, 3.0, 5.0, 7.0, 9.0]), 3)
    assert x.tolist() == [1, 3, 4] and means.tolist() == [2.0, 6.0, 9.0]


def test_the_band_is_two_predicted_standard_deviations_around_the_trend() -> None:
    smooth = next(x for x in chart(traces.healthy(), "loss").lines if x.role == "smooth")
    assert smooth.low is not None and smooth.high is not None
    assert smooth.y - smooth.low == pytest.approx(0.2) and smooth.high - smooth.y == pytest.approx(0.2)
    logged = dataclasses.replace(traces.healthy(), logging_steps=5)
    assert logged.facts is not None
    logged.facts.noise["sd_log"] = 0.04
    smooth = next(x for x in chart(logged, "loss").lines if x.role == "smooth")
    assert smooth.high is not None and smooth.high - smooth.y == pytest.approx(0.08)
    assert next(x for x in chart(traces.foreign(), "loss").lines if x.role == "smooth").low is None


def test_the_adjusted_curve_moves_less_and_is_dotted_where_only_a_sample_is_known() -> None:
    trace = traces.healthy()
    lines = {x.role: x for x in chart(trace, "loss").lines}
    assert np.std(np.diff(lines["adjusted"].y)) < 0.3 * np.std(np.diff(lines["raw"].y))
    assert lines["adjusted"].style == "line"
    trace.extra["base_loss"] = traces.every(trace.extra["base_loss"].values, 4)
    assert {x.role: x for x in chart(trace, "loss").lines}["adjusted"].style == "points"


def test_clipped_points_come_from_the_factor_or_from_the_clip() -> None:
    trace = traces.healthy()
    cut = int((trace.grad_norm.values > 1).sum())
    assert len(chart(trace, "grad_norm").lines[1].x) == cut > 0
    del trace.extra["clip_coef"]
    assert len(chart(trace, "grad_norm").lines[1].x) == cut
    assert [level.value for level in chart(trace, "grad_norm").levels] == [1.0]
    assert len(chart(traces.foreign(), "grad_norm").lines) == 1, "no clip is known"


def test_a_skipped_step_does_not_move_the_smoothed_loss() -> None:
    trace = traces.foreign()
    trace.loss.values[30] = 100.0
    before = next(x for x in chart(trace, "loss").lines if x.role == "smooth").y
    trace.marks["skipped"] = [int(trace.step[30])]
    after = next(x for x in chart(trace, "loss").lines if x.role == "smooth").y
    assert before.max() > 3 and after.max() < 2


def test_probes_have_error_bars_of_two_standard_errors() -> None:
    found = chart(traces.healthy(), "probes").lines[0]
    assert found.low is not None and found.high is not None and found.x.tolist()[:2] == [50, 100]
    assert found.high - found.low == pytest.approx(4 * 0.011)
    assert [tuple(s) for s in chart(traces.healthy(), "line_probe").lines[0].lost] == [(100, 100, 1, "NaN")]


def test_events_are_counted_once_and_overflow_is_no_other_skip() -> None:
    found = {e.kind: (e.steps, e.count) for e in events(traces.healthy())}
    assert found == {"incident": ([212], 1), "restart": ([301], 1), "spike": ([212], 1), "overflow": ([156], 1)}
    many = traces.foreign()
    many.marks["skipped"] = list(range(1, 2001))
    event = events(many)[0]
    assert event.count == 2000 and len(event.steps) <= 400 and event.steps[-1] == 2000


def test_png_files_are_written_for_what_has_data(tmp_path: Path) -> None:
    written = write_plots(traces.healthy(), traces.verdict(), tmp_path)
    assert [p.stem for p in written] == [c.key for c in charts(traces.healthy())]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in written)
    again = write_plots(traces.healthy(), traces.verdict(), tmp_path)
    assert tmp_path / "loss.png" not in again and len(again) == len(written) - 1, "that of the training stays"
    assert (
        write_plots(traces.foreign(0), traces.verdict(), tmp_path / "none") == [] and not (tmp_path / "none").exists()
    )


def test_png_files_of_a_run_without_one_finite_value(tmp_path: Path) -> None:
    trace = traces.foreign(20)
    nan = Column(np.full(20, np.nan), np.ones(20, dtype=bool))
    trace = dataclasses.replace(trace, loss=nan, grad_norm=nan, sources={"中文": nan, "0": column([None] * 20)})
    written = write_plots(trace, traces.stop(), tmp_path)
    assert [p.stem for p in written] == ["loss", "grad_norm", "learning_rate", "sources"]
    assert [p.stem for p in write_plots(traces.eval_only(), traces.verdict(), tmp_path / "eval")] == ["loss"]
