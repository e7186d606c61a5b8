"""`dataset`: which rows, in which form, how long, mixed how, and which are held out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Format = Literal["auto", "alpaca", "sharegpt", "messages", "prompt_completion", "classification"]


@dataclass
class Source:
    """One named set of rows."""

    path: str = "???"
    """A json, jsonl, csv or parquet file, a folder of them, or a `datasets` hub name."""

    format: Format = "auto"
    """Layout of a row; auto recognises it by its columns and prints what it chose."""

    columns: dict[str, str] = field(default_factory=dict)
    """Renames, LLaMA-Factory style: {prompt: question, response: answer, query: input, system: sys, history: h,
    messages: conversations, text: review, label: score}."""

    tags: dict[str, str] = field(default_factory=dict)
    """sharegpt/messages role names: role_tag, content_tag, user_tag, assistant_tag, system_tag, observation_tag,
    function_tag."""

    split: str = "train"
    """Split of a hub data set. Not used for files."""

    subset: str | None = None
    """Configuration name of a hub data set."""

    revision: str | None = None
    """Branch, tag or commit of a hub data set."""

    folder: str | None = None
    """Sub-folder of a hub data set (`data_dir`)."""

    max_samples: int | None = None
    """Rows kept from this source (the first ones after a seeded shuffle); null = dataset.max_samples, else all."""


@dataclass
class Validation:
    """Rows held out from training; drawn with the run's seed."""

    fraction: float = 0.0
    """Share of each source (classification: of each label in it) that is held out, 0 to below 1."""

    source: str | None = None
    """Name of a source in `dataset.sources` that is used for validation only. Exclusive with `fraction`."""


@dataclass
class Dataset:
    """Sources, their mix, length handling and validation split."""

    sources: dict[str, Source] = field(default_factory=dict)
    """Named sources. The name travels with every row into telemetry and reports."""

    path: str | None = None
    """dataset=file: the file or folder with your rows (dataset.path=数据/情感.jsonl)."""

    dir: str | None = None
    """dataset=llamafactory: the folder that holds `dataset_info.json`."""

    names: list[str] | None = None
    """dataset=llamafactory: which entries of `dataset_info.json` to use."""

    mix: Literal["concat", "interleave"] = "concat"
    """concat = all rows once; interleave = draw sources by `weights` until the first one is exhausted."""

    weights: dict[str, float] | None = None
    """interleave: probability of each source (normalised). null = equal."""

    max_samples: int | dict[str, int] | None = None
    """Rows kept per source: one number for all, or {source: number}. null = all."""

    max_length: int = 2048
    """Longest row in tokens (LLaMA-Factory cutoff_len, TRL max_length)."""

    too_long: Literal["truncate_answer", "drop", "error"] = "truncate_answer"
    """What happens beyond `max_length`. truncate_answer cuts the answer and keeps its end token; always counted."""

    default_system: str | None = None
    """System turn for rows without one. null = none is added, also where the model's template would inject one."""

    dedup: Literal["exact", "off"] = "exact"
    """exact = identical rows are kept once, and counted."""

    validation: Validation = field(default_factory=Validation)
    """What is held out."""

    preview: int = 1
    """Rows printed before step 1 with their trained tokens in colour; 0 = none."""

    cache: bool = True
    """Keep tokenised rows on disk, keyed by content, template and settings."""
