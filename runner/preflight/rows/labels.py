"""What is trained on: tokens with loss, answers and their end, begin and pad tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from runner.data.dropped import LEFT_OUT, NO_LABEL, NO_LOSS, NOT_LOCATED, known_causes, no_room, too_long
from runner.data.template import ChatTemplate
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, Severity, found, not_needed, ok, places
from runner.preflight.rows.answers import Answers, all_answers, all_supervised, begins_twice_with, ends_with
from runner.preflight.rows.columns import columns
from runner.preflight.rows.lost import finding_of, lost
from runner.preflight.settings.config_json import config_json, config_path
from runner.runfolder import read_json

CUT = 0.1
"""Share of answers cut from which the run is likely to suffer: one answer in ten stops where it should not."""

RARE = 0.01
"""Share of rows below which a fault is only noted."""


LOST_TEXTS = 0.05
"""Share of a source's texts that may be lost without a word beyond the count."""


def supervised(c: Context) -> Result:
    """Tokens with loss in each row, and rows lost because there were none (E1)."""
    report, limit = c.data.report, c.cfg.dataset.max_length
    # A text without tokens is a lost row like any other; under sft smaller losses have checks of their own.
    least = LOST_TEXTS if c.classification else 0.5
    others = [one for one in lost(report, None, but=known_causes(limit)) if one.share >= least]
    cause = "data.bad_batch" if c.classification else "labels.no_supervised_token"
    findings = [finding_of(cause, others, grave=False)] if others else []
    if c.classification:
        dropped = sum(one.rows for one in lost(report, None, but=(NO_LABEL,)))
        return found(f"one label per text, {dropped:,} rows dropped", *findings)
    masked = lost(report, (NO_LOSS,))
    if masked:
        findings.insert(0, finding_of("labels.no_supervised_token", masked))
    rows = columns(c.data.train)
    counts = all_supervised(rows)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        where = rows.row_ids(empty)
        findings.append(
            Finding(
                "labels.no_supervised_token",
                "error" if 2 * len(empty) >= len(rows) else "warning",
                f"{len(empty):,} of {len(rows):,} training rows have no token that carries loss: {places(where)}",
                where,
                {"rows_empty": len(empty), "rows": len(rows)},
            )
        )
    shown = [f"median {np.median(counts):.0f}"]
    if len(rows.names) > 1:
        medians = [np.median(counts[rows.source == s]) for s in range(len(rows.names))]
        low, high = int(np.argmin(medians)), int(np.argmax(medians))
        shown = [f"median {rows.names[low]} {medians[low]:.0f} to {rows.names[high]} {medians[high]:.0f}"]
    shown += [f"{len(empty)} rows empty"] + ([f"{sum(m.rows for m in masked):,} dropped"] if masked else [])
    return found(", ".join(shown), *findings)


def truncation(c: Context) -> Result:
    """Rows that the cut emptied, and answers that it shortened (E2)."""
    report, limit = c.data.report, c.cfg.dataset.max_length
    longest = max((s.longest for s in report.sources.values()), default=0)
    used = sum(s.kept for s in report.sources.values())
    cut = sum(s.truncated for s in report.sources.values())
    if c.classification:
        return ok(f"{cut:,} of {used:,} texts cut to {limit:,} tokens, longest {longest:,}")
    longer = (f"dataset.max_length={enough}",) if (enough := room_for(c, longest)) > limit else ()
    findings = []
    if emptied := lost(report, (no_room(limit),)):
        findings.append(finding_of("labels.answer_truncated", emptied, longer))
    if dropped := [one for one in lost(report, (too_long(limit),)) if one.severity == "error"]:
        findings.append(finding_of("labels.answer_truncated", dropped, longer, grave=False))
    rows = columns(c.data.train)
    every = all_answers(rows, stop_ids(c, ChatTemplate(c.tokenizer)))
    unended = without_end(every, rows.lengths, limit)[0]
    if cut:
        first = [s.first_truncated for s in report.sources.values() if s.first_truncated is not None]
        findings.append(
            Finding(
                "labels.answer_truncated",
                "warning" if cut >= CUT * used else "note",
                f"{cut:,} of {used:,} rows ({cut / used:.1%}) lose part of an answer at max_length={limit:,}; the "
                f"longest row has {longest:,} tokens (first cut: {places(first)})",
                tuple(first),
                {"cut": cut, "rows": used, "longest": longest, "max_length": limit},
                longer or ("dataset.too_long=drop",),
            )
        )
    if len(unended):
        where = rows.row_ids(unended)
        findings.append(
            Finding(
                "labels.answer_truncated",
                "warning",
                f"{len(unended):,} of {len(rows):,} rows fill max_length={limit:,} and lost their end token: "
                f"{places(where)}",
                where,
                {"without_end": len(unended), "rows": len(rows), "max_length": limit},
                longer,
            )
        )
    shown = (
        f"{cut:,} of {used:,} rows cut, {sum(e.rows for e in emptied):,} emptied, end tokens cut from {len(unended)}"
    )
    return found(f"{shown}, longest {longest:,} tokens", *findings)


def room_for(c: Context, longest: int) -> int:
    """max_length that holds `longest` tokens, a multiple of 64; 0 where the model has no positions for so many."""
    known = config_json(c.cfg.model).get("max_position_embeddings")
    most = min(c.tokenizer.model_max_length, known or math.inf)
    enough = math.ceil(longest / 64) * 64
    return enough if enough <= most else longest if longest <= most else 0


def stop_ids(c: Context, template: ChatTemplate) -> list[int]:
    """Tokens at which generation with the trained model stops: the template's, and those of generation_config.json,
    else config.json (the tokenizer's eos where these name none), as `runner.model.load.set_tokens` collects them."""
    beside = config_path(c.cfg.model)
    content = read_json(beside.with_name("generation_config.json")) if beside is not None else None
    named = content if content is not None else config_json(c.cfg.model)
    known = _ids(named.get("eos_token_id"))
    return list(dict.fromkeys(_ids(template.stop_id) + (known or _ids(c.tokenizer.eos_token_id))))


def _ids(value: Any) -> list[int]:
    """Token ids of a field that holds one, several or none."""
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int)]


def without_end(every: Answers, lengths: np.ndarray, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with an answer that does not end with a stop token: those where the cut at `max_length` explains it, and the
    others. `lengths` has shape (rows,).

    The cut explains it in rows of that length, unless the answers of most other rows end without one too.
    """
    broken = np.unique(every.row[~every.ended])
    if 2 * len(broken) >= len(lengths):
        return broken[:0], broken
    full = lengths[broken] >= max_length
    return broken[full], broken[~full]


def template(c: Context) -> Result:
    """The chat template writes answers that can be found, and a stop token that is trained (E3, E4)."""
    if c.classification:
        return not_needed("texts are not put into a chat template")
    chat, tokenizer = ChatTemplate(c.tokenizer), c.tokenizer
    chatml = ("model.template=chatml",) if "<|im_end|>" in tokenizer.get_vocab() else ()
    findings = []
    if hidden := lost(c.data.report, (LEFT_OUT, NOT_LOCATED)):
        findings.append(finding_of("labels.no_generation_markers", hidden, chatml))
    stops = stop_ids(c, chat)
    rows = columns(c.data.train)
    every = all_answers(rows, stops)
    broken = without_end(every, rows.lengths, c.cfg.dataset.max_length)[1]
    ended, total = int(every.ended.sum()), len(every.ended)
    end = chat.end or str(tokenizer.eos_token or "")
    if len(broken):
        pieces = len(tokenizer(end, add_special_tokens=False)["input_ids"]) if end else 0
        stopping = ", ".join(f"{tokenizer.convert_ids_to_tokens(i)} ({i})" for i in stops) or "none"
        mostly = 2 * len(broken) >= len(rows)
        findings.append(
            Finding(
                "labels.end_token",
                "warning" if len(broken) >= RARE * len(rows) else "note",
                f"{len(broken):,} of {len(rows):,} rows have an answer without a stop token at its end. The template "
                f"ends answers with {end!r} ({pieces} token{'' if pieces == 1 else 's'}); generation stops at: "
                f"{stopping}",
                ("model.template",) if mostly else rows.row_ids(broken),
                {"rows_without_end": len(broken), "rows": len(rows), "end": end, "stop_ids": stops},
                chatml if mostly else (),
            )
        )
    inside = np.unique(every.row[every.within > 0]) if c.cfg.task.train_on != "all" else np.zeros(0, dtype=np.int64)
    if len(inside):
        where = rows.row_ids(inside)
        findings.append(
            Finding(
                "labels.end_token",
                "warning" if len(inside) >= RARE * len(rows) else "note",
                f"a stop token stands inside the answers of {len(inside):,} of {len(rows):,} rows, with text behind it "
                f"that generation never reaches: {places(where)}",
                where,
                {"rows_with_end_inside": len(inside), "rows": len(rows)},
            )
        )
    if chat.stop_id is not None and tokenizer.pad_token_id == chat.stop_id:
        findings.append(
            Finding(
                "labels.end_token",
                "note",
                f"the pad token is the end token of answers ({end}). Here its label is kept, because answers are found "
                "by their place; tools that mask every pad id would never train it",
                ("tokenizer.pad_token",),
                {"pad_token_id": tokenizer.pad_token_id, "trained": ended},
            )
        )
    return found(f"{end!r} ends {ended:,} of {total:,} answers, and is trained there", *findings)


def special_tokens(c: Context) -> Result:
    """Begin tokens that are there twice, pad tokens that hide the last token of a text, unknown ids (E5, E6)."""
    tokenizer, rows = c.tokenizer, columns(c.data.train)
    findings = []
    begin, pad, size = tokenizer.bos_token_id, tokenizer.pad_token_id, len(tokenizer)
    if begin is None and c.classification:
        begin = tokenizer.cls_token_id
    twice = begins_twice_with(rows.tokens, rows.starts, begin) if begin is not None else np.zeros(0, dtype=np.int64)
    if len(twice):
        findings.append(
            Finding(
                "labels.double_bos",
                _gravity(len(twice), len(rows)),
                f"{len(twice):,} of {len(rows):,} rows begin with {tokenizer.convert_ids_to_tokens(begin)} twice: "
                f"{places(rows.row_ids(twice))}",
                rows.row_ids(twice),
                {"rows_twice": len(twice), "rows": len(rows), "bos_token_id": begin},
            )
        )
    if pad is None or not 0 <= pad < size:
        where = ("tokenizer.pad_token",)
        said = "there is no pad token" if pad is None else f"the pad id {pad} is beyond the {size:,} tokens"
        findings.append(Finding("labels.pad_token", "error", said, where, {"pad_token_id": pad, "tokens": size}))
    elif c.classification and len(hidden := ends_with(rows.tokens, rows.starts, pad)):
        findings.append(
            Finding(
                "labels.pad_token",
                _gravity(len(hidden), len(rows)),
                f"{len(hidden):,} of {len(rows):,} texts end with the pad token "
                f"{tokenizer.convert_ids_to_tokens(pad)}: the classifier takes it for padding and reads an earlier "
                f"token: {places(rows.row_ids(hidden))}",
                rows.row_ids(hidden),
                {"rows_ending_with_pad": len(hidden), "rows": len(rows), "pad_token_id": pad},
            )
        )
    largest = int(rows.tokens.max(initial=-1))
    if largest >= size:
        first = np.searchsorted(rows.starts, np.flatnonzero(rows.tokens >= size), side="right") - 1
        there = rows.row_ids(np.unique(first))
        said = f"token id {largest} is in the data, and the tokenizer has {size:,}: {places(there)}"
        findings.append(Finding("weights.token_rows", "error", said, there, {"largest_id": largest, "tokens": size}))
    shown = "no begin token" if begin is None else f"begin token twice in {len(twice)} rows"
    return found(f"{shown}, pad id {pad}, largest id {largest:,} of {size:,}", *findings)


def _gravity(rows: int, of: int) -> Severity:
    return "warning" if rows >= RARE * of else "note"
