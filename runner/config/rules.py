"""Cross-field rules: one pure function each, one table. A rule returns a sentence with cause and remedy, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runner.config import rules_data as data
from runner.config import rules_model as model
from runner.config import rules_train as train
from runner.config.names import nearest
from runner.config.rules_files import FILE_RULES
from runner.config.rules_train import warmup_beyond_end
from runner.config.schema import Config
from runner.errors import ConfigError

Check = Callable[[Config], str | None]


@dataclass(frozen=True)
class Rule:
    """id: a slug. keys: the keys it is about (their origin is shown). allowable: by checks.allow=id; then the id is
    that of a cause of the catalogue, and preflight shows the broken rule as a finding."""

    id: str
    keys: tuple[str, ...]
    check: Check
    allowable: bool = False


@dataclass(frozen=True)
class Broken:
    """A rule that does not hold."""

    rule: Rule
    sentence: str


_TRAINED = ("precision.trainable_weights",)
_LENGTH = ("dataset.validation.fraction", "dataset.validation.source")
RULES: tuple[Rule, ...] = (
    Rule("schedule.warmup_twice", ("schedule.warmup_ratio", "schedule.warmup_steps"), train.warmup_twice),
    Rule("schedule.warmup_beyond_end", ("schedule.warmup_steps",), train.warmup_known_end, allowable=True),
    Rule("config.out_of_range", (), train.numbers_in_range),
    Rule("optim.learning_rate", ("optim.learning_rate",), train.learning_rate),
    Rule("optim.unknown_name", ("optim.name",), train.optimizer_name),
    Rule("evaluation.no_steps", ("evaluation.eval_strategy",), train.eval_steps),
    Rule("checkpoint.no_steps", ("checkpoint.save_strategy",), train.save_steps),
    Rule("checkpoint.best_without_evaluation", ("checkpoint.load_best_model_at_end",), train.best_model),
    Rule("checkpoint.early_stopping", ("checkpoint.early_stopping_patience",), train.early_stopping),
    Rule("checkpoint.unknown_metric", ("checkpoint.metric_for_best_model",), train.metric_name),
    Rule("dataset.validation_twice", _LENGTH, data.held_out_twice),
    Rule("dataset.validation_source", _LENGTH, data.held_out_source),
    Rule("evaluation.nothing_held_out", ("evaluation.eval_strategy", *_LENGTH), data.nothing_held_out),
    Rule("dataset.no_source", ("dataset.sources",), data.no_source),
    Rule("dataset.weights", ("dataset.weights",), data.weights),
    Rule("dataset.max_samples", ("dataset.max_samples",), data.max_samples_names),
    Rule("task.labels", ("task.labels",), data.labels),
    Rule("task.class_weights", ("task.class_weights",), data.class_weights),
    Rule("task.needs_labels", ("task.name", "dataset.sources"), data.classification_source),
    Rule("task.needs_answers", ("task.name", "dataset.sources"), data.sft_source),
    Rule("model.quantized_training", ("model.quantization",), model.quantized_training),
    Rule("model.quantized_gguf", ("model.gguf_file",), model.quantized_gguf),
    Rule("batch.not_divisible", ("batch.global_batch_size",), train.batch_twice),
    Rule("precision.fp16_weights", _TRAINED, model.fp16_weights, allowable=True),
    Rule("precision.scaler_meets_fp16_weights", _TRAINED, model.scaler_meets_fp16_weights, allowable=True),
    Rule("precision.lost_updates", _TRAINED, model.bf16_weights_under_fp16, allowable=True),
    Rule("lora.pattern", ("lora.trainable", "lora.target_modules"), model.lora_pattern),
    Rule("lora.nothing_trains", ("lora.target_modules", "lora.trainable"), model.lora_targets),
    Rule("clip.split_gradients", ("clip.method", "engine.name"), train.clip_needs_whole_gradients),
    Rule("stability.split_steps", ("stability.guard.on_nonfinite", "engine.name"), train.guard_needs_whole_steps),
    Rule("planted.beyond_end", ("planted.step", "schedule.max_steps"), train.planted_beyond_end),
    Rule("stability.spike_window", ("stability.guard.spike_min_steps",), train.spike_window),
    Rule("engine.local_under_launcher", ("engine.name",), train.engine_alone),
    Rule("batch.stratified_interleave", ("batch.sampler", "dataset.mix"), data.stratified_alone),
    *(Rule(*entry) for entry in FILE_RULES),
)

__all__ = [
    "RULES",
    "Broken",
    "Rule",
    "allowable_broken",
    "allowed",
    "broken_rules",
    "refuse_warmup",
    "warmup_beyond_end",
    "wrong_allowances",
]

NEEDS_FILES = frozenset(entry[0] for entry in FILE_RULES)
"""Rules that look at the disk or at installed packages; `--cfg job` does without them."""


def allowed(c: Config) -> list[str]:
    """Finding ids that `checks.allow` lists, whether as one name or as a list."""
    return [c.checks.allow] if isinstance(c.checks.allow, str) else list(c.checks.allow)


def broken_rules(c: Config, files: bool = True, rules: Iterable[Rule] = RULES) -> list[Broken]:
    """Every rule that does not hold and is not allowed. files=False leaves out what looks at the disk."""
    found: list[Broken] = []
    for rule in rules:
        if rule.id in NEEDS_FILES and not files:
            continue
        sentence = rule.check(c)
        if sentence and not (rule.allowable and rule.id in allowed(c)):
            found.append(Broken(rule, _worded(rule, sentence)))
    return found


def allowable_broken(c: Config, rules: Iterable[Rule] = RULES) -> list[Broken]:
    """Every rule that does not hold and that `checks.allow` could allow, whether it does or not; the bare sentence."""
    found = ((rule, rule.check(c)) for rule in rules if rule.allowable)
    return [Broken(rule, sentence) for rule, sentence in found if sentence]


def _worded(rule: Rule, sentence: str) -> str:
    remedy = f"; to run all the same: checks.allow={rule.id}" if rule.allowable else ""
    return f"{sentence} [{rule.id}]{remedy}"


def refuse_warmup(c: Config, warmup_steps: int, total_steps: int) -> None:
    """Raise ConfigError where the warmup does not fit into the real number of steps and that is not allowed."""
    rule = next(r for r in RULES if r.id == "schedule.warmup_beyond_end")
    sentence = warmup_beyond_end(warmup_steps, total_steps)
    if sentence is not None and rule.id not in allowed(c):
        raise ConfigError([_worded(rule, sentence)])


@cache
def finding_ids() -> tuple[str, ...]:
    """Ids that findings may have: those of the catalogue of causes, listed here because it lives above this room."""
    return tuple((Path(__file__).with_name("findings.txt")).read_text(encoding="utf-8").split())


def wrong_allowances(c: Config) -> list[str]:
    """Sentences about ids in `checks.allow` that no finding and no allowable rule has."""
    can = finding_ids()
    rules = {rule.id for rule in RULES}
    found = []
    for name in allowed(c):
        if name not in can:
            why = "cannot be allowed" if name in rules else "is no finding"
            near = nearest(name, can, 0.5)
            hint = f"did you mean {near}?" if near else "findings have the ids that python -m runner check shows"
            found.append(f"checks.allow={name} {why}; {hint}")
    return found
