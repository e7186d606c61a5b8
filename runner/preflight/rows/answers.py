"""Answers in rows of tokens, found by their labels: how long they are, and whether they end with a stop token."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from runner.preflight.rows.columns import Columns, row_sums

BEHIND = 4
"""Last tokens of an answer among which its stop token is looked for: a template may write a line break or a second end
token behind it."""


def supervised_per_row(labels: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Tokens with loss in each row, shape (rows,). The first token of a row is never predicted and does not count."""
    on = labels != -100
    on[starts[:-1][np.diff(starts) > 0]] = False
    return row_sums(on, starts)


@dataclass(frozen=True)
class Answers:
    """Runs of tokens with loss."""

    row: np.ndarray
    """Row of each answer, in order, shape (answers,)."""

    ended: np.ndarray
    """Whether a stop token is among its last tokens, shape (answers,)."""

    within: np.ndarray
    """Stop tokens before those last ones, shape (answers,)."""


def answers(labels: np.ndarray, starts: np.ndarray, stops: Collection[int]) -> Answers:
    """Every run of tokens with loss, a row's end ending it too. `labels` has shape (tokens,), `starts` (rows + 1,)."""
    on = labels != -100
    size = len(labels)
    first_of_row, last_of_row = np.zeros(size + 1, dtype=bool), np.zeros(size + 1, dtype=bool)
    first_of_row[starts[:-1]] = True
    last_of_row[starts[1:] - 1] = True
    before, after = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    before[1:], after[:-1] = on[:-1], on[1:]
    begins = np.flatnonzero(on & (~before | first_of_row[:size]))
    ends = np.flatnonzero(on & (~after | last_of_row[:size])) + 1
    is_stop = np.zeros(size, dtype=bool)
    for stop in stops:
        is_stop |= labels == stop
    so_far = np.concatenate([[0], np.cumsum(is_stop)])
    border = np.maximum(begins, ends - BEHIND)
    row = np.searchsorted(starts, begins, side="right") - 1
    return Answers(row, so_far[ends] > so_far[border], so_far[border] - so_far[begins])


def all_supervised(rows: Columns) -> np.ndarray:
    """`supervised_per_row` of a data set, in blocks."""
    parts = [supervised_per_row(rows.labels_of(a, b), rows.tokens_of(a, b)[1]) for a, b in rows.blocks()]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def all_answers(rows: Columns, stops: Collection[int]) -> Answers:
    """`answers` of a data set, in blocks."""
    parts = [(a, answers(rows.labels_of(a, b), rows.tokens_of(a, b)[1], stops)) for a, b in rows.blocks()]
    return Answers(
        row=np.concatenate([first + part.row for first, part in parts] or [np.zeros(0, dtype=np.int64)]),
        ended=np.concatenate([part.ended for _, part in parts] or [np.zeros(0, dtype=bool)]),
        within=np.concatenate([part.within for _, part in parts] or [np.zeros(0, dtype=np.int64)]),
    )


def begins_twice_with(tokens: np.ndarray, starts: np.ndarray, token: int) -> np.ndarray:
    """Rows whose first two tokens are both `token`."""
    rows = np.flatnonzero(np.diff(starts) >= 2)
    first = starts[:-1][rows]
    return rows[(tokens[first] == token) & (tokens[first + 1] == token)]


def ends_with(tokens: np.ndarray, starts: np.ndarray, token: int) -> np.ndarray:
    """Rows whose last token is `token`."""
    rows = np.flatnonzero(np.diff(starts) >= 1)
    return rows[tokens[starts[1:][rows] - 1] == token]
