"""One trainer out of config, model and data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
)

from runner.config.build import config_to_dict
from runner.config.schema import Config
from runner.data.prepare import PreparedData
from runner.model.formats import Formats
from runner.signals.classification import classification_report, confusion
from runner.training.arguments import build_arguments
from runner.training.instruments import Instruments
from runner.training.plan import Plan
from runner.training.truth import Truth


def build_trainer(
    cfg: Config,
    plan: Plan,
    formats: Formats,
    learning_rate: float,
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    data: PreparedData,
    folder: Path,
    on_row: Callable[[dict[str, Any]], None],
    callbacks: list[TrainerCallback],
    **instruments_too: Any,
) -> Truth:
    """The trainer of `task.name`, instrumented, with early stopping where it is asked for.

    `instruments_too` are further fields of `Instruments`: on_probe, before_training, spoil.
    """
    arguments = build_arguments(cfg, plan, formats, learning_rate, folder, data.validation is not None)
    named = set(data.train["source"]) | (set(data.validation["source"]) if data.validation is not None else set())
    settings = config_to_dict(cfg)  # with the format that auto has become on this machine
    instruments = Instruments(
        clip=cfg.clip,
        stability=cfg.stability,
        loss_scale=cfg.precision.loss_scale,
        sampler=cfg.batch.sampler,
        global_batch=plan.global_batch,
        sources=sorted(named),
        adapters=cfg.lora.method == "lora",
        folder=folder,
        config={**settings, "precision": {**settings["precision"], "compute": formats.compute}},
        decode=tokenizer.decode,
        on_row=on_row,
        **instruments_too,
    )
    callbacks = list(callbacks)
    if cfg.checkpoint.early_stopping_patience is not None:
        callbacks.append(
            EarlyStoppingCallback(cfg.checkpoint.early_stopping_patience, cfg.checkpoint.early_stopping_threshold)
        )
    shared: dict[str, Any] = {
        "model": model,
        "args": arguments,
        "train_dataset": data.train,
        "eval_dataset": data.validation,
        "processing_class": tokenizer,
        "callbacks": callbacks,
        "instruments": instruments,
    }
    trainer: Truth
    if cfg.task.name == "classification":
        from runner.training.classification import Classification

        assert data.labels is not None
        classifier = Classification(
            **shared,
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=class_metrics(data.labels),
        )
        classifier.class_weights = class_weights(cfg, data)
        trainer = classifier
    else:
        from runner.training.sft import Sft

        trainer = Sft(**shared)
    # Trainer prints bare dicts where the progress bar is off; the run has its own lines.
    trainer.remove_callback(PrinterCallback)
    return trainer


def class_weights(cfg: Config, data: PreparedData) -> torch.Tensor | None:
    """Weight of each label, shape (labels,): rows / (labels x rows of the label) for balanced, else as configured."""
    wanted = cfg.task.class_weights
    if wanted is None or data.labels is None:
        return None
    if wanted == "balanced":
        counts = np.bincount(np.asarray(data.train["labels"]), minlength=len(data.labels))
        return torch.tensor(counts.sum() / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)
    return torch.tensor([float(wanted.get(label, 1.0)) for label in data.labels])


def class_metrics(labels: list[str]) -> Callable[[Any], dict[str, float]]:
    """`compute_metrics` for Trainer: accuracy and macro-F1 of the argmax."""

    def measure(prediction: Any) -> dict[str, float]:
        report = classification_report(confusion_of(prediction, len(labels)), labels)
        return {"accuracy": report["accuracy"], "macro_f1": report["macro_f1"]}

    return measure


def confusion_of(prediction: Any, classes: int) -> Any:
    """Confusion matrix of a Trainer `EvalPrediction` or `PredictionOutput`."""
    scores = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    return confusion(prediction.label_ids, np.asarray(scores).argmax(axis=-1), classes)
