"""Rows longer than `max_length`: cut so that what remains is a whole prompt and an ended answer, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TokenSpan:
    """One answer as token positions."""

    start: int
    """Its first token."""

    end: int
    """Behind its last token, the end-of-turn token included."""

    tail: int
    """How many of its last tokens are the end of turn."""

    trained: bool
    """Whether it may carry loss."""


@dataclass(frozen=True)
class Fitted:
    """A row that fits."""

    ids: list[int]
    """Token ids, at most max_length."""

    spans: tuple[TokenSpan, ...]
    """The answers that remain; the last trained one ends with its end-of-turn tokens."""

    cut: bool
    """True if any trained token was lost."""


def truncate_answer(
    ids: Sequence[int], spans: Sequence[TokenSpan], max_length: int, offsets: Sequence[tuple[int, int]] | None = None
) -> Fitted | None:
    """Cut the last answer that has room, keep its end-of-turn tokens, and leave out every turn behind it.

    `offsets` (characters of each token) keep a character that spans several tokens in one piece. None = the prompt
    alone leaves no room for one answer token and the end of turn.
    """
    if len(ids) <= max_length:
        return Fitted(list(ids), tuple(spans), False)
    for k in range(len(spans) - 1, -1, -1):
        span = spans[k]
        if not span.trained:
            continue
        lost_later = any(s.trained for s in spans[k + 1 :])
        if span.end <= max_length:
            return Fitted(list(ids[: span.end]), tuple(spans[: k + 1]), lost_later)
        body_end = max_length - span.tail
        if body_end <= span.start:
            continue
        body_end = _whole_characters(body_end, span.start, offsets)
        kept = [*ids[:body_end], *ids[span.end - span.tail : span.end]]
        shorter = TokenSpan(span.start, len(kept), span.tail, True)
        return Fitted(kept, (*spans[:k], shorter), True)
    return None


def _whole_characters(cut: int, start: int, offsets: Sequence[tuple[int, int]] | None) -> int:
    """The largest cut <= `cut` that does not part tokens of one character; at least one token of the answer stays."""
    if offsets is None:
        return cut
    best = cut
    while best > start + 1 and offsets[best][0] < offsets[best - 1][1]:
        best -= 1
    return best if best > start + 1 or offsets[best][0] >= offsets[best - 1][1] else cut


def labels_of(fitted: Fitted, train_on: str) -> list[int]:
    """Labels for a row: token ids where there is loss, -100 elsewhere. `train_on`: answers, last_answer or all."""
    if train_on == "all":
        return list(fitted.ids)
    labels = [-100] * len(fitted.ids)
    trained = [s for s in fitted.spans if s.trained]
    for span in trained[-1:] if train_on == "last_answer" else trained:
        labels[span.start : span.end] = fitted.ids[span.start : span.end]
    return labels
