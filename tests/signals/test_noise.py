"""Predicted sampling noise: by hand, and against batches really drawn from rows with known losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.data.sampler import epoch_order
from runner.signals.noise import between_sources, predicted_noise


def test_by_hand() -> None:
    # mu = 10 / 10 = 1, E[n] = 2.5, residuals s - mu n = [1, -1, 2, -2]: mean square 2.5.
    sums, tokens = [2.0, 1.0, 5.0, 2.0], [1, 2, 3, 4]
    square = 2.5 / 2.5**2
    assert predicted_noise(sums, tokens, 1) == pytest.approx(math.sqrt(square))
    assert predicted_noise(sums, tokens, 2, window=5) == pytest.approx(math.sqrt(square / 10))
    assert predicted_noise(sums, tokens, 2, population=8) == pytest.approx(math.sqrt(0.75 * square / 2))


def test_a_batch_of_everything_does_not_move() -> None:
    assert predicted_noise([1.0, 3.0], [1, 1], 2, population=2) == 0
    assert predicted_noise([1.0, 3.0], [1, 1], 4, population=2) == 0


def test_equal_lengths_give_the_textbook_error_of_a_mean() -> None:
    losses = np.array([1.0, 2.0, 4.0, 7.0])
    assert predicted_noise(losses * 10, [10] * 4, 4) == pytest.approx(losses.std() / 2)


def test_too_little_to_say() -> None:
    for sums, tokens in ([], []), ([1.0], [1]), ([0.0, 0.0], [0, 0]), ([1.0, math.nan], [1, 1]):
        assert math.isnan(predicted_noise(sums, tokens, 1))
        assert math.isnan(between_sources(sums, tokens, ["a"] * len(sums)))


def test_rows_without_a_token_or_without_a_finite_loss() -> None:
    assert predicted_noise([2.0, 4.0, math.inf], [1, 1, 1], 1) == predicted_noise([2.0, 4.0], [1, 1], 1)
    # An empty row adds nothing to either sum of a batch, but takes a place in it: E[n] falls to 2/3.
    assert predicted_noise([2.0, 4.0, 0.0], [1, 1, 0], 1) == pytest.approx(math.sqrt((2 / 3) / (2 / 3) ** 2))


def test_batch_and_window_are_counts() -> None:
    with pytest.raises(ValueError, match="batch 0"):
        predicted_noise([1.0, 2.0], [1, 1], 0)
    with pytest.raises(ValueError, match="window 0"):
        predicted_noise([1.0, 2.0], [1, 1], 1, window=0)


def test_between_sources_by_hand() -> None:
    # Means 1 and 3 around 2, within each source +-0.5: between 1, within 0.25.
    sums, sources = [0.5, 1.5, 2.5, 3.5], ["a", "a", "b", "b"]
    assert between_sources(sums, [1] * 4, sources) == pytest.approx(1 / 1.25)
    # Batches of two hold one of each, so only the part within is left; one row cannot be stratified; of three, the odd
    # one comes from either source: it adds the between part once over 3^2.
    assert predicted_noise(sums, [1] * 4, 2, sources=sources) == pytest.approx(math.sqrt(0.25 / 2))
    assert predicted_noise(sums, [1] * 4, 1, sources=sources) == pytest.approx(math.sqrt(1.25))
    assert predicted_noise(sums, [1] * 4, 3, sources=sources) == pytest.approx(math.sqrt(0.25 / 3 + 1 / 9))
    assert between_sources([1.0, 1.0], [1, 1], ["a", "b"]) == 0


def test_rows_left_out_take_their_source_with_them() -> None:
    clean = predicted_noise([1.0, 2.0, 4.0, 6.0], [1] * 4, 2, sources=["a", "a", "b", "b"])
    assert predicted_noise([1, 2, math.nan, 4, 6], [1] * 5, 2, sources=["a", "a", "a", "b", "b"]) == clean


def rows_of_three_sources(rows: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Sums, tokens and sources: means 1, 2 and 4 nats, 0.5 within, 5 to 60 tokens a row."""
    rng = np.random.default_rng(0)
    sources = rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    tokens = rng.integers(5, 60, rows)
    losses = np.array([{"a": 1.0, "b": 2.0, "c": 4.0}[s] for s in sources]) + rng.normal(0, 0.5, rows)
    return losses * tokens, tokens, [str(s) for s in sources]


@pytest.mark.parametrize("batch", [4, 7, 10, 32])
@pytest.mark.parametrize("kind", ["random", "stratified"])
def test_the_samplers_own_batches_move_as_predicted(kind: str, batch: int) -> None:
    sums, tokens, sources = rows_of_three_sources(3000)
    seen: list[float] = []
    for epoch in range(8):
        order = epoch_order(kind, 1, epoch, sources, tokens.tolist(), batch)
        steps = np.array(order[: len(order) // batch * batch]).reshape(-1, batch)
        seen += list(sums[steps].sum(1) / tokens[steps].sum(1))
    predicted = predicted_noise(sums, tokens, batch, population=3000, sources=sources if kind == "stratified" else None)
    assert np.std(seen) == pytest.approx(predicted, rel=0.06)


def test_a_window_of_steps_and_an_epoch_that_is_nearly_one_batch() -> None:
    sums, tokens, _ = rows_of_three_sources(400)
    rng = np.random.default_rng(2)
    big = np.stack([rng.permutation(400)[:300] for _ in range(2000)])
    seen = np.std(sums[big].sum(1) / tokens[big].sum(1))
    assert seen == pytest.approx(predicted_noise(sums, tokens, 300, population=400), rel=0.06)
    windows = rng.integers(0, 400, (3000, 5, 16))
    lines = (sums[windows].sum(2) / tokens[windows].sum(2)).mean(1)
    assert np.std(lines) == pytest.approx(predicted_noise(sums, tokens, 16, window=5), rel=0.06)


@given(
    st.lists(st.tuples(st.floats(0, 50), st.integers(1, 40), st.sampled_from("abc")), min_size=2, max_size=30),
    st.integers(1, 12),
)
def test_shares_are_shares_and_one_row_cannot_be_stratified(rows: list[tuple[float, int, str]], batch: int) -> None:
    losses, tokens, sources = zip(*rows, strict=True)
    sums = [loss * n for loss, n in zip(losses, tokens, strict=True)]
    plain, stratified = predicted_noise(sums, tokens, batch), predicted_noise(sums, tokens, batch, sources=sources)
    assert 0 <= between_sources(sums, tokens, sources) <= 1 + 1e-9
    assert stratified >= 0
    if batch == 1:
        assert stratified == pytest.approx(plain, abs=1e-6)
