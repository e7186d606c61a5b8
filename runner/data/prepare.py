"""The data room's story on one page: read, understand, dedup, sample, tokenise, hold out, mix."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from runner.config.schema import Config, Source
from runner.data.cache import cache_key, cached, tokenizer_key
from runner.data.dropped import known_causes
from runner.data.formats import make_reader
from runner.data.labels import label_names
from runner.data.mixing import check_limits, check_weights, drop_duplicates, interleave, limit_of, sample_rows
from runner.data.report import DataReport, SourceReport
from runner.data.rows import Dropped, Labelled, Row
from runner.data.sources import folder_files, load_rows, resolve_sources
from runner.data.split import held_out
from runner.data.template import ChatTemplate
from runner.data.tokenise import Settings, Tokenised, tokenise
from runner.errors import DataError


@dataclass
class PreparedData:
    """Tokenised rows, ready for a trainer that has its own dataset preparation switched off."""

    train: datasets.Dataset
    """Columns input_ids, labels, row_id, source, length; order is the mix before any shuffling."""

    validation: datasets.Dataset | None
    """Same columns; None if nothing is held out."""

    labels: list[str] | None
    """classification: label names in id order."""

    report: DataReport
    """What happened to every row."""

    fingerprint: str
    """SHA-256 of all token ids and labels with their row ids, in order, training then validation."""


@dataclass
class _Tokens:
    """One tokenised row and where it came from."""

    row: Row
    input_ids: list[int]
    labels: Any
    truncated: bool


def prepare_data(cfg: Config, tokenizer: PreTrainedTokenizerBase) -> PreparedData:
    """Rows of all sources of `cfg.dataset`, tokenised, split and mixed; a function of config, files and tokenizer.

    Raises DataError for anything in the data that stops a run, UserError if the tokenizer has no chat template (sft).
    """
    data, task = cfg.dataset, cfg.task.name
    report = DataReport(task=task)
    sources, notes = resolve_sources(data)
    for note in notes:
        report.note(note)
    held_source = _validation_source(cfg, sources)
    check_limits(data.max_samples, list(sources))
    template = ChatTemplate(tokenizer) if task == "sft" else None
    if template is not None and template.injected and not data.default_system:
        report.note("the chat template adds a system turn of its own; it is left out (dataset.default_system sets one)")

    tables = {name: _read(name, source, cfg, template, report) for name, source in sources.items()}
    if data.dedup == "exact":
        tables = drop_duplicates(tables, report, first=held_source)
    for name, source in sources.items():
        limit = limit_of(name, source.max_samples, data.max_samples)
        chosen = sample_rows(tables[name], limit, cfg.seed, name)
        report.sources[name].beyond_max_samples = len(tables[name]) - len(chosen)
        tables[name] = chosen
    names = None
    if task == "classification":
        names = label_names((row for rows in tables.values() for row in rows), cfg.task.labels)
    tokens = _tokenise_all(tables, cfg, tokenizer, template, names, report)

    train, validation = _split(tokens, held_source, data.validation.fraction, cfg.seed, names, report)
    ordered = _mix(train, cfg, report)
    if not ordered:
        raise DataError(
            "No row is left to train on:\n" + "\n".join(report.lines()),
            finding=_nothing_left(cfg),
            where=tuple(tables),
        )
    _count(ordered, validation, names, report)
    return PreparedData(
        train=_to_dataset(ordered, task),
        validation=_to_dataset(validation, task) if validation else None,
        labels=names,
        report=report,
        fingerprint=_fingerprint(ordered, validation),
    )


def _validation_source(cfg: Config, sources: dict[str, Source]) -> str | None:
    name, fraction = cfg.dataset.validation.source, cfg.dataset.validation.fraction
    if name is None:
        return None
    if name not in sources:
        raise DataError(f"dataset.validation.source={name}: no such source; there are {', '.join(sources)}.")
    if fraction:
        raise DataError(
            f"dataset.validation: source={name} and fraction={fraction} exclude each other; set fraction=0 or "
            "source=null."
        )
    if len(sources) == 1:
        raise DataError(f"dataset.validation.source={name} is the only source, so nothing is left to train on.")
    return name


def _read(name: str, source: Source, cfg: Config, template: ChatTemplate | None, report: DataReport) -> list[Row]:
    """Raw rows of one source as examples; what cannot be used is counted."""
    raw = load_rows(name, source, offline=cfg.hub == "offline")
    leading = template.leading_answers if template is not None else True
    reader = make_reader(name, raw, source.format, dict(source.columns), dict(source.tags), cfg.task.name, leading)
    counts = SourceReport(path=source.path, format=reader.format, recognised=source.format == "auto", read=len(raw))
    report.sources[name] = counts
    folder = Path(source.path).expanduser()
    if folder.is_dir():
        files = [file.name for file in folder_files(folder)]
        report.note(f"{name}: {len(files)} files of the folder, in this order: {', '.join(files[:20])}")
    rows = []
    for index, item in enumerate(raw):
        row_id, notes = f"{name}/{index}", list[str]()
        try:
            rows.append(Row(row_id, name, reader(item, notes)))
        except Dropped as error:
            counts.drop(str(error), row_id)
            continue
        for note in notes:
            counts.adjust(note, row_id)
    _refuse_empty(name, len(rows), counts, cfg)
    return rows


def _refuse_empty(name: str, left: int, counts: SourceReport, cfg: Config) -> None:
    if left == 0 and counts.dropped:
        reasons = "; ".join(f"{t.count}: {reason} (first: {t.first})" for reason, t in counts.dropped.items())
        main, tally = max(counts.dropped.items(), key=lambda item: item[1].count)
        raise DataError(
            f"source {name!r} ({counts.path}, format {counts.format}): none of its {counts.read} rows can be "
            f"used. {reasons}.",
            finding=known_causes(cfg.dataset.max_length).get(main, _nothing_left(cfg)),
            where=(name, tally.first or ""),
        )


def _nothing_left(cfg: Config) -> str | None:
    """Cause of having no row: without an answer in any row nothing is supervised."""
    return "labels.no_supervised_token" if cfg.task.name == "sft" else None


def _tokenise_all(
    tables: dict[str, list[Row]],
    cfg: Config,
    tokenizer: PreTrainedTokenizerBase,
    template: ChatTemplate | None,
    names: list[str] | None,
    report: DataReport,
) -> dict[str, list[_Tokens]]:
    data = cfg.dataset
    settings = Settings(cfg.task.name, cfg.task.train_on, data.max_length, data.too_long, data.default_system)
    key_of_tokenizer = tokenizer_key(tokenizer) if data.cache else ""
    ids = {label: i for i, label in enumerate(names or [])}
    out: dict[str, list[_Tokens]] = {}
    for name, rows in tables.items():

        def compute(rows: list[Row] = rows) -> Tokenised:
            return tokenise(rows, tokenizer, template, settings)

        result = cached(cache_key(rows, key_of_tokenizer, settings), compute, report.note) if data.cache else compute()
        counts = report.sources[name]
        counts.longest = result.longest
        for position, reason in result.dropped:
            counts.drop(reason, rows[position].row_id)
        for position, what in result.adjusted:
            counts.adjust(what, rows[position].row_id)
        cut = set(result.truncated)
        out[name] = []
        for position, input_ids, labels in zip(result.position, result.input_ids, result.labels, strict=True):
            example = rows[position].example
            target: Any = ids[example.label] if isinstance(example, Labelled) else labels
            out[name].append(_Tokens(rows[position], input_ids, target, position in cut))
        if rows:
            _refuse_empty(name, len(out[name]), counts, cfg)
    return out


def _split(
    tokens: dict[str, list[_Tokens]],
    held_source: str | None,
    fraction: float,
    seed: int,
    names: list[str] | None,
    report: DataReport,
) -> tuple[dict[str, list[_Tokens]], list[_Tokens]]:
    """Training rows by source, and the held-out rows."""
    train: dict[str, list[_Tokens]] = {}
    validation: list[_Tokens] = []
    for name, rows in tokens.items():
        if name == held_source:
            validation += rows
            continue
        out = held_out([(name, item.labels if names else None) for item in rows], fraction, seed)
        train[name] = [item for item, held in zip(rows, out, strict=True) if not held]
        validation += [item for item, held in zip(rows, out, strict=True) if held]
    if (fraction or held_source) and not validation:
        report.note("nothing is held out: too few rows for a validation part")
    return train, validation


def _mix(train: dict[str, list[_Tokens]], cfg: Config, report: DataReport) -> list[_Tokens]:
    if cfg.dataset.mix == "concat":
        return [item for rows in train.values() for item in rows]
    weights = check_weights(cfg.dataset.weights, list(train))
    empty = [name for name, rows in train.items() if not rows and weights[name] > 0]
    if empty:
        raise DataError(
            f"dataset.mix=interleave: source {empty[0]!r} has no training row left, so nothing can be drawn."
        )
    drawn = interleave({name: len(rows) for name, rows in train.items()}, weights, cfg.seed)
    for name, rows in train.items():
        report.sources[name].not_drawn = len(rows) - sum(1 for source, _ in drawn if source == name)
    return [train[name][i] for name, i in drawn]


def _count(train: list[_Tokens], validation: list[_Tokens], names: list[str] | None, report: DataReport) -> None:
    for part, items in (("train", train), ("validation", validation)):
        for item in items:
            counts = report.sources[item.row.source]
            counts.kept += 1
            if item.truncated:
                counts.truncated += 1
                counts.first_truncated = counts.first_truncated or item.row.row_id
            if part == "validation":
                counts.validation += 1
                continue
            counts.train += 1
            counts.total_tokens += len(item.input_ids)
            if names is None:
                counts.supervised_tokens += sum(label != -100 for label in item.labels)
        if names is not None and items:
            per_class = np.bincount([item.labels for item in items], minlength=len(names))
            report.classes[part] = {label: int(n) for label, n in zip(names, per_class, strict=True)}


def _to_dataset(items: list[_Tokens], task: str) -> datasets.Dataset:
    labels = pa.list_(pa.int64()) if task == "sft" else pa.int64()
    table = pa.table(
        {
            "input_ids": pa.array([item.input_ids for item in items], pa.list_(pa.int64())),
            "labels": pa.array([item.labels for item in items], labels),
            "row_id": pa.array([item.row.row_id for item in items], pa.string()),
            "source": pa.array([item.row.source for item in items], pa.string()),
            "length": pa.array([len(item.input_ids) for item in items], pa.int64()),
        }
    )
    return datasets.Dataset(datasets.table.InMemoryTable(table))


def _fingerprint(train: list[_Tokens], validation: list[_Tokens]) -> str:
    content = hashlib.sha256()
    for part, items in (("train", train), ("validation", validation)):
        content.update(f"{part} {len(items)}\n".encode())
        for item in items:
            content.update(item.row.row_id.encode("utf-8", "surrogatepass"))
            content.update(np.asarray(item.input_ids, dtype=np.int64).tobytes())
            content.update(np.asarray(item.labels, dtype=np.int64).tobytes())
    return content.hexdigest()
