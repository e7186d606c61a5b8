"""Rules about rows, labels and what is held out."""

from __future__ import annotations

import math

from runner.config.schema import Config


def held_out_twice(c: Config) -> str | None:
    """fraction and source exclude each other."""
    v = c.dataset.validation
    if v.fraction and v.source:
        return (
            f"dataset.validation.fraction={v.fraction} and "
            f"dataset.validation.source={v.source} exclude each other; set fraction=0 or "
            "source=null"
        )
    return None


def held_out_source(c: Config) -> str | None:
    """A source for validation that is not there, or the only one."""
    v, names = c.dataset.validation, source_names(c)
    if v.source is None:
        return None
    if v.source not in names:
        return f"dataset.validation.source={v.source} is no source; there are {', '.join(names) or 'none'}"
    return (
        f"dataset.validation.source={v.source} is the only source: nothing is left to train on"
        if len(names) == 1
        else None
    )


def nothing_held_out(c: Config) -> str | None:
    """Evaluation without rows to evaluate on."""
    v = c.dataset.validation
    if c.evaluation.eval_strategy != "no" and not v.fraction and not v.source:
        return (
            f"evaluation.eval_strategy={c.evaluation.eval_strategy} needs held-out rows; set "
            "dataset.validation.fraction=0.05, or evaluation.eval_strategy=no"
        )
    return None


def source_names(c: Config) -> list[str]:
    """Names of the sources: `dataset.sources`, or the entries of a dataset_info.json."""
    return list(c.dataset.sources) or list(c.dataset.names or [])


def no_source(c: Config) -> str | None:
    """No rows at all."""
    return None if source_names(c) else "there is no source of rows; choose dataset=file dataset.path=/my/rows.jsonl"


def weights(c: Config) -> str | None:
    """Weights that do nothing, name nothing, or are no probabilities."""
    w, d = c.dataset.weights, c.dataset
    if w is None:
        return None
    if d.mix != "interleave":
        return "dataset.weights is used with dataset.mix=interleave only; set that, or dataset.weights=null"
    training = [n for n in source_names(c) if n != d.validation.source]
    unknown, absent = [n for n in w if n not in training], [n for n in training if n not in w]
    if unknown or absent:
        return (
            f"dataset.weights must name every source once: {', '.join(training)}"
            + (f"; unknown: {', '.join(unknown)}" if unknown else "")
            + (f"; missing: {', '.join(absent)}" if absent else "")
        )
    if any(not 0 <= x < math.inf for x in w.values()) or sum(w.values()) <= 0:
        return "dataset.weights must be numbers of 0 or more, not all 0"
    return None


def max_samples_names(c: Config) -> str | None:
    """A limit for a source that is not there."""
    limits = c.dataset.max_samples
    unknown = [n for n in limits if n not in source_names(c)] if isinstance(limits, dict) else []
    return (
        f"dataset.max_samples names {', '.join(unknown)}, but the sources are {', '.join(source_names(c))}"
        if unknown
        else None
    )


def labels(c: Config) -> str | None:
    """Label names: at least two, none twice, none empty."""
    names = c.task.labels
    if names is None or c.task.name != "classification":
        return None
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        return f"task.labels holds {', '.join(twice)} twice"
    if len(names) < 2 or any(not n.strip() for n in names):
        return f"task.labels needs two names or more, none empty; it is {names}"
    return None


def class_weights(c: Config) -> str | None:
    """Weights of labels that do not exist, or that are missing."""
    w, names = c.task.class_weights, c.task.labels
    if not isinstance(w, dict) or c.task.name != "classification":
        return None
    if any(not 0 <= x < math.inf for x in w.values()):
        return "task.class_weights must be numbers of 0 or more"
    wrong = sorted(set(w) ^ set(names)) if names is not None else []
    return (
        f"task.class_weights and task.labels must name the same labels; they differ in {', '.join(wrong)}"
        if wrong
        else None
    )


def classification_source(c: Config) -> str | None:
    """Instruction data under a classifier."""
    if c.task.name != "classification":
        return None
    wrong = [n for n, s in c.dataset.sources.items() if s.format not in ("auto", "classification")]
    if not wrong:
        return None
    formats = ", ".join(f"{n} ({c.dataset.sources[n].format})" for n in wrong)
    return (
        "task=classification needs a text and a label per row, but these sources are "
        f"instructions: {formats}; choose dataset=sentiment_zh or dataset=file "
        "dataset.path=..."
    )


def sft_source(c: Config) -> str | None:
    """Labelled texts under SFT."""
    wrong = [n for n, s in c.dataset.sources.items() if s.format == "classification"] if c.task.name == "sft" else []
    return (
        (
            "task=sft needs instructions with answers, but these sources are labelled texts: "
            f"{', '.join(wrong)}; add task=classification"
        )
        if wrong
        else None
    )


def stratified_alone(c: Config) -> str | None:
    """Two orders of rows at once."""
    if c.batch.sampler == "stratified" and c.dataset.mix == "interleave":
        return (
            "batch.sampler=stratified fixes the share of each source per batch, and "
            "dataset.mix=interleave draws it; choose dataset.mix=concat or "
            "batch.sampler=random"
        )
    return None
