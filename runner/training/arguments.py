"""From the config to the arguments of TRL's SFTConfig and HF's TrainingArguments. Every field is named here once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from runner.config.schema import Config
from runner.errors import ConfigError
from runner.model.formats import Formats
from runner.training.plan import Plan

SCHEDULERS = {"constant": "constant_with_warmup", "wsd": "warmup_stable_decay"}


def scheduler_arguments(cfg: Config, plan: Plan) -> dict[str, Any]:
    """`lr_scheduler_type` and its keyword arguments, by transformers' names."""
    schedule = cfg.schedule
    kind = schedule.lr_scheduler_type
    extra: dict[str, Any] = {}
    if kind == "polynomial":
        extra = {"power": schedule.power, "lr_end": 0.0}
    elif kind == "wsd":
        decay = math.ceil(schedule.decay_ratio * plan.total_steps)
        extra = {"num_decay_steps": decay, "min_lr_ratio": schedule.min_lr_ratio}
    return {"lr_scheduler_type": SCHEDULERS.get(kind, kind), "lr_scheduler_kwargs": extra}


def common_arguments(
    cfg: Config, plan: Plan, formats: Formats, learning_rate: float, folder: Path, evaluates: bool
) -> dict[str, Any]:
    """Arguments that both trainers share. `evaluates` is False where no rows are held out."""
    evaluation, checkpoint, optim = cfg.evaluation, cfg.checkpoint, cfg.optim
    strategy = evaluation.eval_strategy if evaluates else "no"
    on_gpu = torch.cuda.is_available()
    arguments: dict[str, Any] = {
        "output_dir": str(folder / "checkpoints"),
        "seed": cfg.seed,
        "use_cpu": not on_gpu and not torch.backends.mps.is_available(),
        "full_determinism": cfg.stability.deterministic,
        "per_device_train_batch_size": plan.per_device,
        "per_device_eval_batch_size": evaluation.per_device_eval_batch_size,
        "gradient_accumulation_steps": plan.accumulation,
        "num_train_epochs": cfg.schedule.num_train_epochs,
        "max_steps": cfg.schedule.max_steps or -1,
        "learning_rate": learning_rate,
        **scheduler_arguments(cfg, plan),
        "warmup_steps": plan.warmup_steps,
        "optim": optim.name,
        "optim_args": ",".join(f"{k}={v}" for k, v in optim.args.items()) or None,
        "weight_decay": optim.weight_decay,
        "adam_beta1": optim.betas[0],
        "adam_beta2": optim.betas[1],
        "adam_epsilon": optim.eps,
        # Trainer measures the norm in `_clip_grad_norm` only where this is above 0; what clips is runner.stability.
        "max_grad_norm": cfg.clip.max_grad_norm if cfg.clip.method == "norm" else math.inf,
        # TRL switches both on by default, Trainer does not: said for each, so that the tasks behave alike.
        "bf16": formats.compute == "bf16",
        "fp16": formats.compute == "fp16",
        "gradient_checkpointing": cfg.model.gradient_checkpointing,
        "gradient_checkpointing_kwargs": {"use_reentrant": False} if cfg.model.gradient_checkpointing else None,
        # The filter replaces a NaN loss in the log by an average, which reads 0.0.
        "logging_nan_inf_filter": False,
        "logging_steps": cfg.tracking.logging_steps,
        "report_to": [] if cfg.tracking.report_to == "none" else [cfg.tracking.report_to],
        "run_name": f"{cfg.name}-{folder.name}",
        "project": cfg.tracking.project or "runner",
        "disable_tqdm": True,
        "eval_strategy": strategy,
        "eval_steps": evaluation.eval_steps,
        "eval_on_start": evaluation.eval_on_start and evaluates,
        "save_strategy": checkpoint.save_strategy,
        "save_steps": checkpoint.save_steps or 500,
        "save_total_limit": checkpoint.save_total_limit,
        "load_best_model_at_end": checkpoint.load_best_model_at_end,
        "metric_for_best_model": checkpoint.metric_for_best_model,
        "greater_is_better": checkpoint.greater_is_better
        if checkpoint.greater_is_better is not None
        else not checkpoint.metric_for_best_model.endswith("loss"),
        "dataloader_pin_memory": on_gpu,
        # Every weight that trains takes part in every forward pass; looking for others costs a pass over the graph.
        "ddp_find_unused_parameters": False,
        "prediction_loss_only": cfg.task.name == "sft",
    }
    if strategy != "steps":
        arguments.pop("eval_steps")
    return arguments | cfg.trainer


def build_arguments(
    cfg: Config, plan: Plan, formats: Formats, learning_rate: float, folder: Path, evaluates: bool
) -> TrainingArguments:
    """SFTConfig for sft, TrainingArguments for classification. Raises `ConfigError` for what they refuse."""
    checkpoint = cfg.checkpoint
    if not evaluates and (checkpoint.load_best_model_at_end or checkpoint.early_stopping_patience is not None):
        raise ConfigError(
            [
                "checkpoint.load_best_model_at_end and early stopping compare evaluations, and no row is held out: set "
                "dataset.validation.fraction higher, bring more rows, or switch both off"
            ]
        )
    arguments = common_arguments(cfg, plan, formats, learning_rate, folder, evaluates)
    try:
        if cfg.task.name == "classification":
            return TrainingArguments(**arguments)
        from trl import SFTConfig

        return SFTConfig(
            **arguments,
            max_length=cfg.dataset.max_length,
            packing=False,
            dataset_kwargs={"skip_prepare_dataset": True},
        )
    except (ValueError, TypeError) as error:
        raise ConfigError([f"the trainer refuses these settings: {' '.join(str(error).split())}"]) from error
