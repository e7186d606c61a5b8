"""Rows on disk, copies of the micro model with another tokenizer, and all checks of the data at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa

from runner.config.schema import Source
from runner.errors import UserError
from runner.preflight.examine import build
from runner.preflight.finding import Finding
from runner.preflight.flow import Preflight
from runner.preflight.rows.classes_and_order import classes, duplicates, order, outliers
from runner.preflight.rows.labels import special_tokens, supervised, template, truncation
from runner.preflight.table import CHECKS

EVERY = (supervised, truncation, template, special_tokens, classes, duplicates, order, outliers)
OURS = tuple(c for c in CHECKS if c.runs.startswith("rows."))

QUESTIONS = ("how far is it", "what colour has it", "who made it", "when was it", "why is it so")


def chat(i: int, answer: str = "", **turn: Any) -> dict[str, Any]:
    """One question with its answer; `turn` are further fields of the answer."""
    text = answer or f"it is number {i} of the list, {'and more ' * (i % 4)}that is all"
    return {
        "messages": [
            {"role": "user", "content": f"{QUESTIONS[i % 5]} {i}"},
            {"role": "assistant", "content": text, **turn},
        ]
    }


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """jsonl."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8")
    return path


def reads(cfg: Any, rows: Sequence[dict[str, Any]], form: str = "messages", name: str = "s") -> None:
    """Make `rows` the only source of `cfg`."""
    path = write(Path(cfg.output_dir).parent / "planted" / f"{name}.jsonl", rows)
    cfg.dataset.sources = {name: Source(path=str(path), format=form)}  # type: ignore[arg-type]


def rows_of(rows: Sequence[dict[str, Any]], form: str = "messages") -> Callable[[Any], None]:
    """`reads` as a `spoil`."""
    return lambda cfg: reads(cfg, rows, form)


def template_file(cfg: Any, text: str) -> None:
    """Set model.template to a file with this text."""
    path = Path(cfg.output_dir).parent / "planted.jinja"
    path.write_text(text, encoding="utf-8")
    cfg.model.template = str(path)


def other_tokenizer(cfg: Any, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Point `cfg` at a copy of its model; `change(tokenizer_config, tokenizer_json)` alters the copy in place."""
    copy = Path(cfg.output_dir).parent / "other_model"
    shutil.copytree(cfg.model.path, copy)
    files = [copy / "tokenizer_config.json", copy / "tokenizer.json"]
    settings, body = (json.loads(f.read_text(encoding="utf-8")) for f in files)
    change(settings, body)
    for file, content in zip(files, (settings, body), strict=True):
        file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    cfg.model.path = str(copy)


def findings(c: Any) -> list[Finding]:
    """Of all checks of the data."""
    return [f for check in EVERY for f in check(c).findings]


def grave(c: Any) -> list[Finding]:
    """Errors and warnings of all checks of the data."""
    return [f for f in findings(c) if f.severity != "note"]


def alone(c: Any, id: str, severity: str) -> Finding:
    """The one error or warning, which must have this id and severity."""
    seen = grave(c)
    assert [(f.id, f.severity) for f in seen] == [(id, severity)], [(f.id, f.severity, f.sentence) for f in seen]
    return seen[0]


def noted(c: Any, id: str) -> Finding:
    """The one finding, which must be a note of this id."""
    seen = findings(c)
    assert [(f.id, f.severity) for f in seen] == [(id, "note")], [(f.id, f.severity, f.sentence) for f in seen]
    return seen[0]


def stopped(cfg: Any, folder: Path) -> Finding:
    """The finding that an error while loading becomes."""
    pre = Preflight(cfg, "deep", folder, checks=OURS)
    try:
        build(cfg, pre, "data")
    except UserError as error:
        assert pre.broke(error), error
        (only,) = pre.findings
        return only
    raise AssertionError("nothing stopped")


def dataset(rows: Sequence[tuple[Sequence[int], Any]], source: Sequence[str] | None = None) -> datasets.Dataset:
    """Prepared rows (input_ids, labels) with the ids s/0, s/1, ..."""
    labels = [r[1] for r in rows]
    kind = pa.int64() if labels and isinstance(labels[0], int) else pa.list_(pa.int64())
    table = pa.table(
        {
            "input_ids": pa.array([list(r[0]) for r in rows], pa.list_(pa.int64())),
            "labels": pa.array(labels, kind),
            "row_id": [f"s/{i}" for i in range(len(rows))],
            "source": list(source) if source is not None else ["s"] * len(rows),
            "length": [len(r[0]) for r in rows],
        }
    )
    return datasets.Dataset(datasets.table.InMemoryTable(table))
