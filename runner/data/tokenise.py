"""Examples to token ids and labels, in batches; every row comes out or is dropped for a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from runner.data.dropped import NO_LOSS, no_room, too_long
from runner.data.length import Fitted, TokenSpan, labels_of, truncate_answer
from runner.data.render import Rendered, TextSpan, render, with_system
from runner.data.rows import Chat, Dropped, Labelled, Row
from runner.data.template import ChatTemplate
from runner.errors import DataError

_BATCH = 1000


@dataclass(frozen=True)
class Settings:
    """What tokenising depends on, besides rows, tokenizer and template."""

    task: str
    """sft or classification."""

    train_on: str
    """answers, last_answer or all."""

    max_length: int
    """Longest row in tokens."""

    too_long: str
    """truncate_answer, drop or error."""

    default_system: str | None
    """System turn for chats without one."""


@dataclass
class Tokenised:
    """Token ids of the rows of one source, and the fate of the others. Positions are those in the input."""

    position: list[int] = field(default_factory=list)
    """Which input row each output row is."""

    input_ids: list[list[int]] = field(default_factory=list)
    """Token ids."""

    labels: list[list[int]] = field(default_factory=list)
    """sft: token ids with -100 where there is no loss. classification: empty lists."""

    truncated: list[int] = field(default_factory=list)
    """Positions of rows that were cut."""

    dropped: list[tuple[int, str]] = field(default_factory=list)
    """(position, reason) of rows that are not in the output."""

    adjusted: list[tuple[int, str]] = field(default_factory=list)
    """(position, what) of rows that were changed."""

    longest: int = 0
    """Tokens of the longest row before anything was cut."""


def tokenise(
    rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, template: ChatTemplate | None, settings: Settings
) -> Tokenised:
    """Tokenise the rows of one source. `template` is needed for sft.

    Raises DataError for a row beyond max_length if too_long is error.
    """
    out = Tokenised()
    for first in range(0, len(rows), _BATCH):
        batch = rows[first : first + _BATCH]
        if template is None:
            _classification(first, batch, tokenizer, settings, out)
        else:
            _chats(first, batch, tokenizer, template, settings, out)
    return out


def _chats(
    first: int,
    rows: Sequence[Row],
    tokenizer: PreTrainedTokenizerBase,
    template: ChatTemplate,
    settings: Settings,
    out: Tokenised,
) -> None:
    rendered: list[tuple[int, Row, Rendered]] = []
    for position, row in enumerate(rows, first):
        assert isinstance(row.example, Chat)
        notes: list[str] = []
        try:
            rendered.append((position, row, render(with_system(row.example, settings.default_system), template, notes)))
        except Dropped as error:
            out.dropped.append((position, str(error)))
        else:
            out.adjusted += [(position, note) for note in notes]
    encoded = _encode([r.text for _, _, r in rendered], [r.spans for _, _, r in rendered], tokenizer)
    for (position, row, _), (ids, spans, offsets) in zip(rendered, encoded, strict=True):
        out.longest = max(out.longest, len(ids))
        try:
            fitted = _fit(row, ids, spans, offsets, settings)
            labels = labels_of(fitted, settings.train_on)
            # The first token is never predicted, so a label there is no supervision.
            if all(label == -100 for label in labels[1:]):
                raise Dropped(NO_LOSS)
        except Dropped as error:
            out.dropped.append((position, str(error)))
            continue
        out.position.append(position)
        out.input_ids.append(fitted.ids)
        out.labels.append(labels)
        if fitted.cut:
            out.truncated.append(position)


def _fit(row: Row, ids: list[int], spans: list[TokenSpan], offsets: Any, settings: Settings) -> Fitted:
    limit = settings.max_length
    if len(ids) <= limit:
        return Fitted(ids, tuple(spans), False)
    _refuse_long(row, len(ids), settings)
    fitted = truncate_answer(ids, spans, limit, offsets)
    if fitted is None:
        raise Dropped(no_room(limit))
    return fitted


def _refuse_long(row: Row, length: int, settings: Settings) -> None:
    if settings.too_long == "error":
        raise DataError(
            f"row {row.row_id} has {length:,} tokens, more than dataset.max_length={settings.max_length:,}. "
            "Raise max_length, or set "
            "dataset.too_long=truncate_answer or drop.",
            finding="labels.answer_truncated",
            where=(row.row_id,),
        )
    if settings.too_long == "drop":
        raise Dropped(too_long(settings.max_length))


def _encode(
    texts: list[str], spans: list[tuple[TextSpan, ...]], tokenizer: PreTrainedTokenizerBase
) -> list[tuple[list[int], list[TokenSpan], Any]]:
    """(ids, token spans, offsets) of each text; offsets are None where the tokenizer knows none."""
    if not texts:
        return []
    if not tokenizer.is_fast:
        return [(*_in_segments(text, s, tokenizer), None) for text, s in zip(texts, spans, strict=True)]
    batch = tokenizer(
        texts, add_special_tokens=False, return_offsets_mapping=True, return_attention_mask=False, verbose=False
    )
    out = []
    for ids, offsets, of_text in zip(batch["input_ids"], batch["offset_mapping"], spans, strict=True):
        table = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
        out.append((list(ids), [_token_span(table, span) for span in of_text], offsets))
    return out


def _token_span(offsets: np.ndarray, span: TextSpan) -> TokenSpan:
    """Tokens that hold a character of `span`; `offsets` has shape (tokens, 2) and grows, so it can be bisected."""
    starts, ends = offsets[:, 0], offsets[:, 1]
    start = int(np.searchsorted(ends, span.start, side="right"))
    end = int(np.searchsorted(starts, span.end, side="left"))
    tail = int(np.searchsorted(starts, span.tail, side="left"))
    end = max(start, end)
    return TokenSpan(start, end, max(0, end - max(start, tail)) if span.tail < span.end else 0, span.trained)


def _in_segments(
    text: str, spans: tuple[TextSpan, ...], tokenizer: PreTrainedTokenizerBase
) -> tuple[list[int], list[TokenSpan]]:
    """For tokenizers without offsets: every piece between span borders is tokenised alone."""
    ids: list[int] = []
    out: list[TokenSpan] = []
    at = 0

    def add(until: int) -> None:
        nonlocal at
        if until > at:
            ids.extend(tokenizer(text[at:until], add_special_tokens=False, verbose=False)["input_ids"])
        at = until

    for span in spans:
        add(span.start)
        start = len(ids)
        add(span.tail)
        body_end = len(ids)
        add(span.end)
        out.append(TokenSpan(start, len(ids), len(ids) - body_end, span.trained))
    add(len(text))
    return ids, out


def _classification(
    first: int, rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, settings: Settings, out: Tokenised
) -> None:
    texts = [row.example.text for row in rows if isinstance(row.example, Labelled)]
    encoded = tokenizer(texts, add_special_tokens=True, return_attention_mask=False, verbose=False)["input_ids"]
    for position, (row, ids) in enumerate(zip(rows, encoded, strict=True), first):
        out.longest = max(out.longest, len(ids))
        if not ids:
            out.dropped.append((position, "no tokens in the text"))
            continue
        if len(ids) > settings.max_length:
            try:
                _refuse_long(row, len(ids), settings)
            except Dropped as error:
                out.dropped.append((position, str(error)))
                continue
            text = texts[position - first]
            cut = tokenizer(
                text, truncation=True, max_length=settings.max_length, return_attention_mask=False, verbose=False
            )
            ids = cut["input_ids"]
            out.truncated.append(position)
        out.position.append(position)
        out.input_ids.append(list(ids))
        out.labels.append([])
