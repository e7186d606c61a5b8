"""Cross-field rules: one pure function each, one table. A rule returns a sentence with cause and remedy, or None."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runner.config.names import nearest
from runner.config.rules_files import FILE_RULES
from runner.config.schema import Config
from runner.config.trainer_fields import optimizer_names

Check = Callable[[Config], str | None]


@dataclass(frozen=True)
class Rule:
    """id: the finding's slug. keys: the keys it is about (their origin is shown). allowable: by checks.allow=id."""

    id: str
    keys: tuple[str, ...]
    check: Check
    allowable: bool = False


@dataclass(frozen=True)
class Broken:
    """A rule that does not hold."""

    rule: Rule
    sentence: str


def warmup_beyond_end(warmup_steps: int | None, total_steps: int | None) -> str | None:
    """A warmup that is not over when the run ends; the sentence, or None. run.py asks again with the real count."""
    if not warmup_steps or total_steps is None or warmup_steps < total_steps:
        return None
    return (
        f"warmup_steps {warmup_steps} >= {total_steps} steps: the rate never leaves warmup; "
        "set schedule.warmup_ratio=0.05"
    )


def world_size() -> int:
    """Processes that a launcher announced in WORLD_SIZE; 1 without a launcher."""
    text = os.environ.get("WORLD_SIZE", "1")
    return int(text) if text.isdigit() and int(text) > 0 else 1


def warmup_twice(c: Config) -> str | None:
    """Ratio and steps both set (a higher layer has already won where there was one)."""
    s = c.schedule
    if s.warmup_ratio and s.warmup_steps:
        return f"schedule.warmup_ratio={s.warmup_ratio} and schedule.warmup_steps={s.warmup_steps} exclude each other; set one of them to null"
    return None


def warmup_known_end(c: Config) -> str | None:
    """Warmup beyond max_steps."""
    return warmup_beyond_end(c.schedule.warmup_steps, c.schedule.max_steps)


def numbers_in_range(c: Config) -> str | None:
    """Counts below 1, shares outside 0..1, rates that are no positive numbers; all named in one sentence."""
    s, b, e, k, d = c.schedule, c.batch, c.evaluation, c.checkpoint, c.dataset
    at_least_one = {
        "batch.per_device_train_batch_size": b.per_device_train_batch_size,
        "batch.gradient_accumulation_steps": b.gradient_accumulation_steps,
        "batch.global_batch_size": b.global_batch_size,
        "evaluation.per_device_eval_batch_size": e.per_device_eval_batch_size,
        "evaluation.eval_steps": e.eval_steps,
        "checkpoint.save_steps": k.save_steps,
        "checkpoint.save_total_limit": k.save_total_limit,
        "checkpoint.early_stopping_patience": k.early_stopping_patience,
        "schedule.max_steps": s.max_steps,
        "tracking.logging_steps": c.tracking.logging_steps,
        "lora.r": c.lora.r,
        "dataset.max_length": d.max_length,
        "precision.loss_scale.growth_interval": c.precision.loss_scale.growth_interval,
    }
    limits = d.max_samples if isinstance(d.max_samples, dict) else {"": d.max_samples}
    at_least_one |= {f"dataset.max_samples{'.' + n if n else ''}": v for n, v in limits.items()}
    at_least_one |= {f"dataset.sources.{n}.max_samples": x.max_samples for n, x in d.sources.items()}
    shares = {
        "schedule.warmup_ratio": s.warmup_ratio,
        "schedule.decay_ratio": s.decay_ratio,
        "schedule.min_lr_ratio": s.min_lr_ratio,
    }
    positive = {
        "schedule.num_train_epochs": s.num_train_epochs,
        "schedule.power": s.power,
        "optim.eps": c.optim.eps,
        "clip.max_grad_norm": c.clip.max_grad_norm,
        "clip.clip_value": c.clip.clip_value,
        "lora.lora_alpha": c.lora.lora_alpha,
    }
    not_negative = {
        "optim.weight_decay": c.optim.weight_decay,
        "checkpoint.early_stopping_threshold": k.early_stopping_threshold,
        "schedule.warmup_steps": s.warmup_steps,
        "seed": c.seed,
        "dataset.preview": d.preview,
        "precision.loss_scale.initial_power": c.precision.loss_scale.initial_power,
    }
    half_open = {"lora.lora_dropout": c.lora.lora_dropout, "dataset.validation.fraction": d.validation.fraction}
    half_open |= {f"optim.betas[{i}]": v for i, v in enumerate(c.optim.betas)}
    wrong = [f"{n}={v} must be 1 or more (or null where that is allowed)" for n, v in at_least_one.items() if v is not None and v < 1]
    wrong += [f"{n}={v} must lie in 0..1" for n, v in shares.items() if v is not None and not 0 <= v <= 1]
    wrong += [f"{n}={v} must be a positive number" for n, v in positive.items() if v is not None and not 0 < v < math.inf]
    wrong += [f"{n}={v} must be 0 or more" for n, v in not_negative.items() if v is not None and not 0 <= v < math.inf]
    wrong += [f"{n}={v} must be at least 0 and below 1" for n, v in half_open.items() if not 0 <= v < 1]
    if s.max_steps == -1:
        wrong = [w.replace("must be 1 or more (or null where that is allowed)", "is transformers' way to say none; write schedule.max_steps=null") if w.startswith("schedule.max_steps") else w for w in wrong]
    if c.seed >= 2**32:
        wrong.append(f"seed={c.seed} must be below 2**32")
    return "; ".join(wrong) or None


def learning_rate(c: Config) -> str | None:
    """A rate that is zero, negative or not finite."""
    rate = c.optim.learning_rate
    if rate is None or 0 < rate < math.inf:
        return None
    return f"optim.learning_rate={rate} must be a positive number; null takes the method's default"


def optimizer_name(c: Config) -> str | None:
    """A name transformers does not know."""
    names = optimizer_names()
    if not names or c.optim.name in names:
        return None
    near = nearest(c.optim.name, names, 0.4)
    return f"optim.name={c.optim.name} is no optimizer of transformers" + (f"; did you mean {near}?" if near else "") + f" Known: {', '.join(names)}"


def eval_steps(c: Config) -> str | None:
    """steps without a number."""
    if c.evaluation.eval_strategy == "steps" and c.evaluation.eval_steps is None:
        return "evaluation.eval_strategy=steps needs evaluation.eval_steps=100 or another count"
    return None


def save_steps(c: Config) -> str | None:
    """steps without a number."""
    if c.checkpoint.save_strategy == "steps" and c.checkpoint.save_steps is None:
        return "checkpoint.save_strategy=steps needs checkpoint.save_steps=100 or another count"
    return None


def best_model(c: Config) -> str | None:
    """The best model needs an evaluation at every save."""
    k, e = c.checkpoint, c.evaluation
    if not k.load_best_model_at_end:
        return None
    if e.eval_strategy == "no":
        return "checkpoint.load_best_model_at_end=true needs evaluations; set evaluation.eval_strategy=epoch"
    if k.save_strategy != e.eval_strategy:
        return f"checkpoint.load_best_model_at_end=true needs a checkpoint per evaluation, but save_strategy={k.save_strategy} and eval_strategy={e.eval_strategy}; set checkpoint.save_strategy={e.eval_strategy}"
    if k.save_strategy == "steps" and k.save_steps and e.eval_steps and k.save_steps % e.eval_steps:
        return f"checkpoint.load_best_model_at_end=true needs save_steps to be a multiple of eval_steps, but {k.save_steps} is no multiple of {e.eval_steps}; set checkpoint.save_steps={e.eval_steps}"
    return None


def early_stopping(c: Config) -> str | None:
    """Patience counts evaluations of the best model."""
    if c.checkpoint.early_stopping_patience is not None and not c.checkpoint.load_best_model_at_end:
        return "checkpoint.early_stopping_patience needs checkpoint.load_best_model_at_end=true"
    return None


def metric_name(c: Config) -> str | None:
    """Metrics the task does not report."""
    name = c.checkpoint.metric_for_best_model
    name = name if name.startswith("eval_") else "eval_" + name
    known = ["eval_loss"] + (["eval_accuracy", "eval_macro_f1"] if c.task.name == "classification" else [])
    if name in known or not c.checkpoint.load_best_model_at_end:
        return None
    return f"checkpoint.metric_for_best_model={name} is not reported by task={c.task.name}; it reports {', '.join(known)}"


def held_out_twice(c: Config) -> str | None:
    """fraction and source exclude each other."""
    v = c.dataset.validation
    if v.fraction and v.source:
        return f"dataset.validation.fraction={v.fraction} and dataset.validation.source={v.source} exclude each other; set fraction=0 or source=null"
    return None


def held_out_source(c: Config) -> str | None:
    """A source for validation that is not there, or the only one."""
    v, names = c.dataset.validation, source_names(c)
    if v.source is None:
        return None
    if v.source not in names:
        return f"dataset.validation.source={v.source} is no source; there are {', '.join(names) or 'none'}"
    return f"dataset.validation.source={v.source} is the only source: nothing is left to train on" if len(names) == 1 else None


def nothing_held_out(c: Config) -> str | None:
    """Evaluation without rows to evaluate on."""
    v = c.dataset.validation
    if c.evaluation.eval_strategy != "no" and not v.fraction and not v.source:
        return f"evaluation.eval_strategy={c.evaluation.eval_strategy} needs held-out rows; set dataset.validation.fraction=0.05, or evaluation.eval_strategy=no"
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
        return f"dataset.weights must name every source once: {', '.join(training)}" + (f"; unknown: {', '.join(unknown)}" if unknown else "") + (f"; missing: {', '.join(absent)}" if absent else "")
    if any(not 0 <= x < math.inf for x in w.values()) or sum(w.values()) <= 0:
        return "dataset.weights must be numbers of 0 or more, not all 0"
    return None


def max_samples_names(c: Config) -> str | None:
    """A limit for a source that is not there."""
    limits = c.dataset.max_samples
    unknown = [n for n in limits if n not in source_names(c)] if isinstance(limits, dict) else []
    return f"dataset.max_samples names {', '.join(unknown)}, but the sources are {', '.join(source_names(c))}" if unknown else None


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
    return f"task.class_weights and task.labels must name the same labels; they differ in {', '.join(wrong)}" if wrong else None


def classification_source(c: Config) -> str | None:
    """Instruction data under a classifier."""
    if c.task.name != "classification":
        return None
    wrong = [n for n, s in c.dataset.sources.items() if s.format not in ("auto", "classification")]
    if not wrong:
        return None
    formats = ", ".join(f"{n} ({c.dataset.sources[n].format})" for n in wrong)
    return f"task=classification needs a text and a label per row, but these sources are instructions: {formats}; choose dataset=sentiment_zh or dataset=file dataset.path=..."


def sft_source(c: Config) -> str | None:
    """Labelled texts under SFT."""
    wrong = [n for n, s in c.dataset.sources.items() if s.format == "classification"] if c.task.name == "sft" else []
    return f"task=sft needs instructions with answers, but these sources are labelled texts: {', '.join(wrong)}; add task=classification" if wrong else None


def quantized_training(c: Config) -> str | None:
    """Quantised weights cannot train."""
    if c.model.quantization and c.lora.method != "lora":
        return f"model.quantization={c.model.quantization} freezes the base, and lora={c.lora.method} would train it; set lora=default or model.quantization=null"
    return None


def quantized_gguf(c: Config) -> str | None:
    """Two ways to store weights at once."""
    if c.model.quantization and c.model.gguf_file:
        return "model.gguf_file is dequantised at loading and excludes model.quantization; set one of them to null"
    return None


def batch_twice(c: Config) -> str | None:
    """A global batch that cannot be split."""
    b = c.batch
    if b.global_batch_size is None or b.per_device_train_batch_size < 1:
        return None
    rows = b.per_device_train_batch_size * world_size()
    if b.global_batch_size % rows == 0:
        return None
    return f"batch.global_batch_size={b.global_batch_size} is no multiple of per_device_train_batch_size x processes = {b.per_device_train_batch_size} x {world_size()}; set batch.global_batch_size={max(1, round(b.global_batch_size / rows)) * rows}"


def half_weights(c: Config) -> str | None:
    """fp16 training of fp16 weights: the scaler refuses it, and updates vanish."""
    p = c.precision
    if p.trainable_weights == "fp16":
        return "precision.trainable_weights=fp16 loses small updates, and a loss scaler cannot unscale fp16 gradients; set precision.trainable_weights=fp32"
    if p.compute == "fp16" and p.trainable_weights == "bf16":
        return "precision.trainable_weights=bf16 contradicts precision=fp16; choose precision=bf16, or trainable_weights=fp32"
    return None


def lora_pattern(c: Config) -> str | None:
    """Patterns that do not compile."""
    patterns = list(c.lora.trainable or []) if c.lora.method == "freeze" else []
    if c.lora.method == "lora" and isinstance(c.lora.target_modules, str):
        patterns.append(c.lora.target_modules)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            return f"lora pattern {pattern!r} is no regular expression: {error}"
    return None


def lora_targets(c: Config) -> str | None:
    """Nothing would train."""
    if c.lora.method == "lora" and not c.lora.target_modules:
        return "lora.target_modules is empty: no weight would train; set lora.target_modules=all-linear"
    if c.lora.method == "freeze" and not c.lora.trainable:
        return "lora=freeze needs lora.trainable=[regex, ...]: the parameters that train"
    return None


def engine_alone(c: Config) -> str | None:
    """local under a launcher."""
    if c.engine.name == "local" and world_size() > 1:
        return f"engine=local is one process, but a launcher started {world_size()} (WORLD_SIZE); choose engine=auto"
    return None


def stratified_alone(c: Config) -> str | None:
    """Two orders of rows at once."""
    if c.batch.sampler == "stratified" and c.dataset.mix == "interleave":
        return "batch.sampler=stratified fixes the share of each source per batch, and dataset.mix=interleave draws it; choose dataset.mix=concat or batch.sampler=random"
    return None


_LENGTH = ("dataset.validation.fraction", "dataset.validation.source")
RULES: tuple[Rule, ...] = (
    Rule("schedule.warmup_twice", ("schedule.warmup_ratio", "schedule.warmup_steps"), warmup_twice),
    Rule("schedule.warmup_beyond_end", ("schedule.warmup_steps",), warmup_known_end, allowable=True),
    Rule("config.out_of_range", (), numbers_in_range),
    Rule("optim.learning_rate", ("optim.learning_rate",), learning_rate),
    Rule("optim.unknown_name", ("optim.name",), optimizer_name),
    Rule("evaluation.no_steps", ("evaluation.eval_strategy",), eval_steps),
    Rule("checkpoint.no_steps", ("checkpoint.save_strategy",), save_steps),
    Rule("checkpoint.best_without_evaluation", ("checkpoint.load_best_model_at_end",), best_model),
    Rule("checkpoint.early_stopping", ("checkpoint.early_stopping_patience",), early_stopping),
    Rule("checkpoint.unknown_metric", ("checkpoint.metric_for_best_model",), metric_name),
    Rule("dataset.validation_twice", _LENGTH, held_out_twice),
    Rule("dataset.validation_source", _LENGTH, held_out_source),
    Rule("evaluation.nothing_held_out", ("evaluation.eval_strategy", *_LENGTH), nothing_held_out),
    Rule("dataset.no_source", ("dataset.sources",), no_source),
    Rule("dataset.weights", ("dataset.weights",), weights),
    Rule("dataset.max_samples", ("dataset.max_samples",), max_samples_names),
    Rule("task.labels", ("task.labels",), labels),
    Rule("task.class_weights", ("task.class_weights",), class_weights),
    Rule("task.needs_labels", ("task.name", "dataset.sources"), classification_source),
    Rule("task.needs_answers", ("task.name", "dataset.sources"), sft_source),
    Rule("model.quantized_training", ("model.quantization",), quantized_training),
    Rule("model.quantized_gguf", ("model.gguf_file",), quantized_gguf),
    Rule("batch.not_divisible", ("batch.global_batch_size",), batch_twice),
    Rule("precision.half_weights", ("precision.trainable_weights",), half_weights, allowable=True),
    Rule("lora.pattern", ("lora.trainable", "lora.target_modules"), lora_pattern),
    Rule("lora.nothing_trains", ("lora.target_modules", "lora.trainable"), lora_targets),
    Rule("engine.local_under_launcher", ("engine.name",), engine_alone),
    Rule("batch.stratified_interleave", ("batch.sampler", "dataset.mix"), stratified_alone),
    *(Rule(*entry) for entry in FILE_RULES),
)

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
            remedy = f"; to run all the same: checks.allow={rule.id}" if rule.allowable else ""
            found.append(Broken(rule, f"{sentence} [{rule.id}]{remedy}"))
    return found


def wrong_allowances(c: Config) -> list[str]:
    """Sentences about ids in `checks.allow` that no allowable rule has."""
    ids = {rule.id: rule.allowable for rule in RULES}
    can = [name for name, allowable in ids.items() if allowable]
    found = []
    for name in allowed(c):
        if not ids.get(name, False):
            why = "cannot be allowed" if name in ids else "is no finding"
            near = nearest(name, can, 0.5)
            found.append(f"checks.allow={name} {why}; " + (f"did you mean {near}?" if near else f"there are {', '.join(can)}"))
    return found
