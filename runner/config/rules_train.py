"""Rules about steps, rates, batches and checkpoints."""

from __future__ import annotations

import math
import os
from dataclasses import fields

from runner.config.advice import by_value
from runner.config.names import nearest
from runner.config.schema import Config
from runner.config.trainer_fields import optimizer_names

GUARD_COUNTS = ("spike_window", "spike_min_steps", "max_consecutive")


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
        return (
            f"schedule.warmup_ratio={s.warmup_ratio} and "
            f"schedule.warmup_steps={s.warmup_steps} exclude each other; set one of them to "
            "null"
        )
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
        "clip.warmup_steps": c.clip.warmup_steps,
        **{f"stability.guard.{k}": getattr(c.stability.guard, k) for k in GUARD_COUNTS},
        **{f"stability.probes.{f.name}": getattr(c.stability.probes, f.name) for f in fields(c.stability.probes)},
        "stability.weight_statistics_every": c.stability.weight_statistics_every,
        "stability.module_norms_every": c.stability.module_norms_every,
        "stability.rollback.every": c.stability.rollback.every,
        "planted.step": c.planted.step,
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
        "clip.percentile / 100": c.clip.percentile / 100,
        "stability.rollback.lr_backoff": c.stability.rollback.lr_backoff,
    }
    positive = {
        "schedule.num_train_epochs": s.num_train_epochs,
        "schedule.power": s.power,
        "optim.eps": c.optim.eps,
        "clip.max_grad_norm": c.clip.max_grad_norm,
        "clip.clip_value": c.clip.clip_value,
        "clip.z_threshold": c.clip.z_threshold,
        "clip.clipping": c.clip.clipping,
        "clip.agc_eps": c.clip.agc_eps,
        "clip.lambda_abs": c.clip.lambda_abs,
        "clip.lambda_rel": c.clip.lambda_rel,
        "lora.lora_alpha": c.lora.lora_alpha,
        "stability.guard.spike_z": c.stability.guard.spike_z,
        "stability.guard.min_loss_scale": c.stability.guard.min_loss_scale,
        "stability.rollback.lr_backoff": c.stability.rollback.lr_backoff,
    }
    not_negative = {
        "optim.weight_decay": c.optim.weight_decay,
        "checkpoint.early_stopping_threshold": k.early_stopping_threshold,
        "schedule.warmup_steps": s.warmup_steps,
        "seed": c.seed,
        "stability.rollback.max_rollbacks": c.stability.rollback.max_rollbacks,
        "stability.incident.max_incidents": c.stability.incident.max_incidents,
        "dataset.preview": d.preview,
        "precision.loss_scale.initial_power": c.precision.loss_scale.initial_power,
    }
    half_open = {
        "lora.lora_dropout": c.lora.lora_dropout,
        "dataset.validation.fraction": d.validation.fraction,
        "clip.alpha": c.clip.alpha,
        "clip.beta": c.clip.beta,
    }
    half_open |= {f"optim.betas[{i}]": v for i, v in enumerate(c.optim.betas)}
    wrong = [
        f"{n}={v} must be 1 or more (or null where that is allowed)"
        for n, v in at_least_one.items()
        if v is not None and v < 1
    ]
    wrong += [f"{n}={v} must lie in 0..1" for n, v in shares.items() if v is not None and not 0 <= v <= 1]
    wrong += [
        f"{n}={v} must be a positive number" for n, v in positive.items() if v is not None and not 0 < v < math.inf
    ]
    wrong += [f"{n}={v} must be 0 or more" for n, v in not_negative.items() if v is not None and not 0 <= v < math.inf]
    wrong += [f"{n}={v} must be at least 0 and below 1" for n, v in half_open.items() if not 0 <= v < 1]
    if s.max_steps == -1:
        wrong = [
            w.replace(
                "must be 1 or more (or null where that is allowed)",
                "is transformers' way to say none; write schedule.max_steps=null",
            )
            if w.startswith("schedule.max_steps")
            else w
            for w in wrong
        ]
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
    known = by_value("optim", c.optim.name)
    if known is not None:
        return f"optim.name={c.optim.name}: use {known.today} ({known.text.en})"
    near = nearest(c.optim.name, names, 0.4)
    return (
        f"optim.name={c.optim.name} is no optimizer of transformers"
        + (f"; did you mean {near}?" if near else "")
        + f" Known: {', '.join(names)}"
    )


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
        return (
            "checkpoint.load_best_model_at_end=true needs a checkpoint per evaluation, but "
            f"save_strategy={k.save_strategy} and eval_strategy={e.eval_strategy}; set "
            f"checkpoint.save_strategy={e.eval_strategy}"
        )
    if k.save_strategy == "steps" and k.save_steps and e.eval_steps and k.save_steps % e.eval_steps:
        return (
            "checkpoint.load_best_model_at_end=true needs save_steps to be a multiple of "
            f"eval_steps, but {k.save_steps} is no multiple of {e.eval_steps}; set "
            f"checkpoint.save_steps={e.eval_steps}"
        )
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
    return (
        f"checkpoint.metric_for_best_model={name} is not reported by task={c.task.name}; it reports {', '.join(known)}"
    )


def batch_twice(c: Config) -> str | None:
    """A global batch that cannot be split."""
    b = c.batch
    if b.global_batch_size is None or b.per_device_train_batch_size < 1:
        return None
    rows = b.per_device_train_batch_size * world_size()
    if b.global_batch_size % rows == 0:
        return None
    return (
        f"batch.global_batch_size={b.global_batch_size} is no multiple of "
        f"per_device_train_batch_size x processes = {b.per_device_train_batch_size} x "
        f"{world_size()}; set "
        f"batch.global_batch_size={max(1, round(b.global_batch_size / rows)) * rows}"
    )


WHOLE_GRADIENTS = ("value", "agc", "adagc")
"""Clipping methods that look at single elements or tensors."""


def clip_needs_whole_gradients(c: Config) -> str | None:
    """A per-element or per-tensor clip where the launcher splits the gradient over processes."""
    split = splitting_launcher()
    if split is None or c.clip.method not in WHOLE_GRADIENTS:
        return None
    return (
        f"clip.method={c.clip.method} looks at whole gradients, but engine.name={c.engine.name} runs under {split}, "
        f"which splits them over processes; set clip=norm, or launch without {split}"
    )


def splitting_launcher() -> str | None:
    """DeepSpeed or FSDP where `accelerate launch` announces it in the environment."""
    flags = {"DeepSpeed": "ACCELERATE_USE_DEEPSPEED", "FSDP": "ACCELERATE_USE_FSDP"}
    found = [name for name, flag in flags.items() if os.environ.get(flag, "").lower() in ("1", "true")]
    return found[0] if found else None


def guard_needs_whole_steps(c: Config) -> str | None:
    """A guard that acts where the engine takes the step before anybody has seen the gradient."""
    split, guard = splitting_launcher(), c.stability.guard
    acting = [k for k in ("on_nonfinite", "on_spike") if getattr(guard, k) in ("skip", "rollback", "stop")]
    if split is None or not acting:
        return None
    return (
        f"stability.guard.{acting[0]}={getattr(guard, acting[0])} acts before the optimizer's step, but "
        f"engine.name={c.engine.name} runs under {split}, which steps by itself; set stability=observe"
    )


FROM_THE_START = ("none", "nan_embedding_row", "fp16_forward_overflow", "fp16_backward_overflow")
"""Planted faults that are there before the first step."""


def planted_late(c: Config, total_steps: int | None) -> str | None:
    """A fault that would come after the last step; the sentence, or None. run.py asks again with the real count."""
    planted = c.planted
    if planted.fault in FROM_THE_START or total_steps is None or planted.step <= total_steps:
        return None
    return (
        f"planted.step={planted.step} comes after the last step of the run, {total_steps}: nothing would happen; set "
        f"planted.step={total_steps} or less"
    )


def planted_beyond_end(c: Config) -> str | None:
    """A fault at a step that the run does not reach."""
    return planted_late(c, c.schedule.max_steps)


def spike_window(c: Config) -> str | None:
    """A window that can never hold the steps a spike needs."""
    g = c.stability.guard
    if g.spike_min_steps <= g.spike_window:
        return None
    return (
        f"stability.guard.spike_min_steps={g.spike_min_steps} is more than spike_window={g.spike_window} holds, so no "
        f"spike would ever be called; set stability.guard.spike_window={g.spike_min_steps} or more"
    )


def engine_alone(c: Config) -> str | None:
    """local under a launcher."""
    if c.engine.name == "local" and world_size() > 1:
        return f"engine=local is one process, but a launcher started {world_size()} (WORLD_SIZE); choose engine=auto"
    return None
