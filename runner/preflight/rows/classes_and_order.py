"""What the rows are as a set: classes and their balance, duplicates, the order of training, outliers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runner.data.dropped import NO_LABEL
from runner.data.sampler import epoch_order
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, Severity, found, not_needed, places
from runner.preflight.rows.classes import balance_findings, name_findings, no_classes
from runner.preflight.rows.columns import Columns, columns, row_hashes
from runner.preflight.rows.lost import finding_of, lost
from runner.preflight.rows.outliers import (
    REPEATS,
    alphabet,
    brace_rows,
    control_rows,
    longest_repeat,
    placeholders,
    replacement_rows,
    shortened,
    too_long,
)
from runner.preflight.rows.shuffled import Mixing, mixing, repeated

RARE = 0.01
"""Share of rows below which a fault is only noted."""

DUPLICATES = 0.05
"""Share of repeated rows from which training on them twice as often is likely to show."""

CORRELATED, SURE = 0.2, 5.0
"""Intraclass correlation of the rows of a step, and its standard deviations above a shuffle, that are clumps: at 8 rows
a step the variance of a step's mix is 2.4 times that of a shuffle then."""

PLACEHOLDERS, DECODED = 0.2, 500
"""Share of a source's rows with the same {{placeholder}} that is no text about templates; rows decoded to see that."""

WINDOW = 8
"""Rows looked at together where a step has fewer."""


def classes(c: Context) -> Result:
    """Class ids, names that give a mistake away, labels without rows, balance (E7)."""
    names = c.data.labels
    if names is None:
        return not_needed("there are no classes")
    ids = columns(c.data.train).labels
    wrong = np.flatnonzero((ids < 0) | (ids >= len(names)))
    if len(wrong):
        where = columns(c.data.train).row_ids(wrong)
        said = f"{len(wrong):,} rows have a class id outside 0 to {len(names) - 1}: {places(where)}"
        numbers = {"smallest": int(ids.min()), "largest": int(ids.max()), "classes": len(names)}
        return found("ids out of range", Finding("labels.ids_or_dtype", "error", said, where, numbers))
    counts = np.bincount(ids, minlength=len(names))
    findings = name_findings(names, counts, [f"dataset.sources.{s}.columns.label" for s in c.cfg.dataset.sources])
    if c.cfg.task.class_weights is None and not no_classes(names, counts):
        findings += balance_findings(names, counts)
    if unnamed := lost(c.data.report, (NO_LABEL,)):
        findings.append(finding_of("labels.ids_or_dtype", unnamed))
    few = int(np.argmin(counts))
    shown = ", ".join(f"{n} {k:,}" for n, k in zip(names, counts, strict=True))
    if len(names) > 6:
        most = int(np.argmax(counts))
        shown = f"{len(names)} classes of {counts[few]:,} to {counts[most]:,} rows"
    return found(shown, *findings)


def duplicates(c: Context) -> Result:
    """Rows that are there twice, rows held out that are trained on too, texts with two labels (E8)."""
    rows = columns(c.data.train)
    text = row_hashes(rows.tokens, rows.starts)
    whole = row_hashes(rows.labels, rows.starts) if not c.classification else None
    both = row_hashes(rows.tokens, rows.starts, rows.labels if whole is None else whole)
    findings: list[Finding] = []
    again = _repeats(both)
    dropped = sum(s.duplicates for s in c.data.report.sources.values())
    read = sum(s.read for s in c.data.report.sources.values())
    if len(again) or dropped >= DUPLICATES * read:
        firsts = [s.first_duplicate for s in c.data.report.sources.values() if s.first_duplicate is not None]
        where = rows.row_ids(again) or tuple(firsts)
        before = f"{dropped:,} of {read:,} rows read were exact duplicates and have been dropped"
        left = f"{len(again):,} of {len(rows):,} training rows equal an earlier one token by token"
        findings.append(
            Finding(
                "data.duplicated",
                "warning" if len(again) >= DUPLICATES * len(rows) else "note",
                f"{'; '.join(([left] if len(again) else []) + ([before] if dropped else []))}: {places(where)}",
                where,
                {"repeated": len(again), "rows": len(rows), "dropped": dropped, "read": read},
                ("dataset.dedup=exact",) if c.cfg.dataset.dedup != "exact" else (),
            )
        )
    if c.classification and len(two := _two_labels(text, rows.labels)):
        where = rows.row_ids(two)
        said = f"{len(two):,} of {len(rows):,} rows have a text that also comes with another label: {places(where)}"
        severity: Severity = "warning" if len(two) >= DUPLICATES * len(rows) else "note"
        findings.append(Finding("data.hard_labels", severity, said, where, {"rows": len(rows), "in_two": len(two)}))
    shown = f"{dropped:,} exact duplicates dropped, {len(again):,} left"
    if c.data.validation is not None:
        leaked = _overlap(c, text if c.classification else both, findings)
        shown += f", {leaked:,} of {len(c.data.validation):,} held-out rows trained on"
    return found(shown, *findings)


def _repeats(hashes: np.ndarray) -> np.ndarray:
    """Indices of rows that an earlier row equals."""
    first = np.unique(hashes, return_index=True)[1]
    return np.setdiff1d(np.arange(len(hashes)), first, assume_unique=True)


def _two_labels(texts: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Indices of rows whose text, by its hash, also has a row with another label."""
    code = np.unique(texts, return_inverse=True)[1]
    low = np.full(code.max(initial=-1) + 1, np.iinfo(np.int64).max)
    high = np.full_like(low, -1)
    np.minimum.at(low, code, labels)
    np.maximum.at(high, code, labels)
    return np.flatnonzero((low != high)[code])


def _overlap(c: Context, trained: np.ndarray, findings: list[Finding]) -> int:
    """Held-out rows that are trained on too (classification: with any label); adds the finding where there are any."""
    held = columns(c.data.validation)
    if c.classification:
        own = row_hashes(held.tokens, held.starts)
    else:
        own = row_hashes(held.tokens, held.starts, row_hashes(held.labels, held.starts))
    leaked = np.flatnonzero(np.isin(own, trained))
    if len(leaked):
        where = held.row_ids(leaked)
        findings.append(
            Finding(
                "data.validation_overlap",
                "warning" if len(leaked) >= RARE * len(held) else "note",
                f"{len(leaked):,} of {len(held):,} held-out rows are trained on too ({places(where)}): the validation "
                "loss of these shows what was memorised",
                where,
                {"overlap": len(leaked), "validation": len(held)},
                # Where most rows are held out too, dropping them leaves next to nothing to train on.
                ("dataset.dedup=exact",)
                if c.cfg.dataset.dedup != "exact" and 2 * len(leaked) < len(c.data.train)
                else (),
            )
        )
    return len(leaked)


def order(c: Context) -> Result:
    """The planned order of the first two epochs: clumps of one label or source, equal epochs, rows twice (E8)."""
    rows = columns(c.data.train)
    named = [rows.names[s] for s in rows.source]
    kind, block = c.cfg.batch.sampler, max(c.plan.global_batch, WINDOW)
    orders = [
        np.asarray(epoch_order(kind, c.cfg.seed, epoch, named, rows.lengths.tolist(), c.plan.global_batch))
        for epoch in (0, 1)
    ]
    findings = order_findings(orders, len(rows))
    shown = []
    for what, groups in _groups(c, rows):
        mixed = mixing(groups[orders[0]], block)
        if np.isnan(mixed.correlation):
            continue
        shown.append(f"{what}: correlation within {block} rows {mixed.correlation:+.2f}")
        if mixed.correlation >= CORRELATED and mixed.sigmas >= SURE:
            findings.append(_clumps(c, what, mixed, block))
    said = ", ".join(shown) or "one source"
    return found(f"{kind}, {said} (0 = shuffled)" if shown else f"{kind}, {said}", *findings)


def order_findings(orders: Sequence[np.ndarray], rows: int) -> list[Finding]:
    """What is wrong with the orders of the first two epochs over `rows` rows: rows twice, no change between them."""
    out = []
    for epoch, one in enumerate(orders):
        if len(twice := repeated(one, rows)):
            said = f"{len(twice):,} of {rows:,} rows come more than once in epoch {epoch}"
            out.append(Finding("data.duplicated", "error", said, ("batch.sampler",), {"repeated": len(twice)}))
    # Up to three rows may come in the same order by chance.
    if rows > 3 and np.array_equal(orders[0], orders[1]):
        said = f"both epochs go through the {rows:,} rows in the same order"
        out.append(Finding("data.order", "warning", said, ("batch.sampler",), {"rows": rows}))
    return out


def _groups(c: Context, rows: Columns) -> list[tuple[str, np.ndarray]]:
    labels = [("labels", rows.labels)] if c.classification else []
    return [*labels, ("sources", rows.source.astype(np.int64))]


def _clumps(c: Context, what: str, mixed: Mixing, block: int) -> Finding:
    said = (
        f"with batch.sampler={c.cfg.batch.sampler} rows of a step share their {what[:-1]}: {mixed.alone:.0%} of blocks "
        f"of {block} rows hold one {what[:-1]} only, {mixed.alone_shuffled:.0%} if shuffled (correlation "
        f"{mixed.correlation:.2f})"
    )
    numbers = {
        "correlation": mixed.correlation,
        "sigmas": mixed.sigmas,
        "blocks_of_one": mixed.alone,
        "blocks_of_one_shuffled": mixed.alone_shuffled,
        "block": block,
    }
    if what == "labels":
        return Finding("data.order", "warning", said, ("batch.sampler",), numbers, ("batch.sampler=random",))
    # A source in clumps makes the curve swing, and saves padding: what the user asked for.
    id = "data.length_grouping" if c.cfg.batch.sampler == "length_grouped" else "data.order"
    severity: Severity = "note" if id == "data.length_grouping" else "warning"
    return Finding(id, severity, said, ("batch.sampler",), numbers, ("batch.sampler=stratified",))


OUTLIERS_AT_MOST = 0.05
"""Share of the rows from which long ones are a kind of their own."""


def outliers(c: Context) -> Result:
    """Rows far longer than the others, and rows of broken, control or repeated characters (E9)."""
    rows = columns(c.data.train)
    lengths = rows.lengths
    size = len(c.tokenizer)
    used = np.flatnonzero(np.bincount(rows.tokens, minlength=size))
    letters = alphabet(c.tokenizer, used, max(size, int(used.max(initial=0)) + 1))
    broken, control, repeats, braces = [], [], [], []
    for first, last in rows.blocks():
        tokens, starts = rows.tokens_of(first, last)
        broken.append(first + replacement_rows(tokens, starts, letters))
        control.append(first + control_rows(tokens, starts, letters))
        braces.append(first + brace_rows(tokens, starts, letters))
        repeats.append(first + np.flatnonzero(longest_repeat(tokens, starts) >= REPEATS))
    far = too_long(lengths)
    if len(far) > OUTLIERS_AT_MOST * len(rows):
        far = far[:0]  # a second kind of rows, not outliers
    findings = []
    if len(far):
        where, median = rows.row_ids(far), float(np.median(lengths))
        said = (
            f"{len(far):,} of {len(rows):,} rows are far longer than the others, {lengths[far[0]]:,} tokens at most, "
            f"median {median:.0f}: {places(where)}. A batch that holds one takes most of its loss from it"
        )
        numbers = {"rows": len(rows), "outliers": len(far), "longest": int(lengths[far[0]]), "median": median}
        findings.append(Finding("data.bad_batch", "note", said, where, numbers))
    kinds = (
        ("the replacement character U+FFFD", np.concatenate(broken), ("\ufffd",)),
        ("control characters", np.concatenate(control), tuple(chr(b) for b in range(32) if b not in (9, 10, 13))),
        (f"one to four tokens repeated over {REPEATS} tokens or more", np.concatenate(repeats), ()),
    )
    for what, hit, around in kinds:
        if len(hit):
            where = rows.row_ids(hit)
            share = len(hit) / len(rows)
            sample = shortened(str(c.tokenizer.decode(_row(rows, int(hit[0])))), around)
            said = f"{len(hit):,} of {len(rows):,} rows ({share:.1%}) hold {what}: {places(where)}, such as {sample}"
            severity: Severity = "warning" if share >= RARE else "note"
            numbers = {"rows": len(rows), "rows_hit": len(hit)}
            findings.append(Finding("data.bad_batch", severity, said, where, numbers))
    findings += _unfilled(c, rows, np.concatenate(braces))
    odd = len(np.unique(np.concatenate([hit for _, hit, _ in kinds]).astype(np.int64)))
    return found(f"longest {lengths.max(initial=0):,} tokens, {len(far)} length outliers, {odd} odd rows", *findings)


def _unfilled(c: Context, rows: Columns, braces: np.ndarray) -> list[Finding]:
    """Sources in which the same {{placeholder}} comes again and again: nobody filled it in."""
    out = []
    for s, name in enumerate(rows.names):
        candidates, of = braces[rows.source[braces] == s], int((rows.source == s).sum())
        if len(candidates) < max(3, PLACEHOLDERS * of):
            continue
        # The first ones in the order of the source tell; decoding all of a large source would take long.
        chosen = candidates[:DECODED]
        held = placeholders([str(text) for text in c.tokenizer.batch_decode([_row(rows, int(i)) for i in chosen])])
        often = {field: n for field, n in held.items() if n * len(candidates) >= PLACEHOLDERS * of * len(chosen)}
        if often:
            held_by = f"in up to {len(candidates):,} of {of:,} rows of {name}"
            said = f"{places(list(often))} {held_by}: placeholders that nobody filled in"
            numbers = {"rows": of, "rows_with_braces": len(candidates), "decoded": len(chosen), "fields": often}
            out.append(Finding("data.bad_batch", "warning", said, (name, *rows.row_ids(chosen)), numbers))
    return out


def _row(rows: Columns, index: int) -> list[int]:
    tokens: list[int] = rows.tokens[rows.starts[index] : rows.starts[index + 1]].tolist()
    return tokens
