"""The first rows as the model will see them, trained tokens in colour."""

from __future__ import annotations

from itertools import groupby

from rich.text import Text
from transformers import PreTrainedTokenizerBase

from runner.data.prepare import PreparedData

TRAINED, CONTEXT = "bold green", "dim"
_MOST = 600


def preview(data: PreparedData, tokenizer: PreTrainedTokenizerBase, rows: int) -> list[Text]:
    """A legend and the first `rows` training rows; empty for rows=0. Classification shows text and label."""
    count = min(rows, len(data.train))
    if count <= 0:
        return []
    shown = [data.train[i] for i in range(count)]
    if data.labels is not None:
        names = data.labels
        return [_heading(row["row_id"], row["length"]) + _labelled(row, tokenizer, names) for row in shown]
    legend = Text("Legend: ") + Text("tokens that carry loss", TRAINED) + ", " + Text("context without loss", CONTEXT)
    return [legend, *(_heading(row["row_id"], row["length"]) + _chat(row, tokenizer) for row in shown)]


def _heading(row_id: str, length: int) -> Text:
    return Text(f"{row_id} ({length} tokens)\n", "bold")


def _labelled(row: dict, tokenizer: PreTrainedTokenizerBase, names: list[str]) -> Text:
    text = str(tokenizer.decode(row["input_ids"][:_MOST]))
    more = _left_out(len(row["input_ids"]) - _MOST)
    return Text(text, CONTEXT) + more + Text("  ->  ") + Text(names[row["labels"]], TRAINED)


def _chat(row: dict, tokenizer: PreTrainedTokenizerBase) -> Text:
    """Runs of tokens with and without loss; the middle of a long run is left out."""
    out = Text()
    pairs = list(zip(row["input_ids"], row["labels"], strict=True))
    runs = [(trained, [token for token, _ in run]) for trained, run in groupby(pairs, lambda p: p[1] != -100)]
    room = max(40, _MOST // max(1, len(runs)))
    for trained, ids in runs:
        style = TRAINED if trained else CONTEXT
        if len(ids) <= room:
            out.append(str(tokenizer.decode(ids)), style)
            continue
        half = room // 2
        out.append(str(tokenizer.decode(ids[:half])), style)
        out.append_text(_left_out(len(ids) - 2 * half))
        out.append(str(tokenizer.decode(ids[-half:])), style)
    return out


def _left_out(count: int) -> Text:
    return Text(f" [... {count} tokens ...] ", "yellow") if count > 0 else Text()
