"""What the tests of the training room share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, set_seed

from runner.config.schema import Config
from runner.data.prepare import prepare_data
from runner.model.adapt import adapt
from runner.model.formats import resolve_formats
from runner.model.load import load_model
from runner.model.tokenizer import load_tokenizer
from runner.training.build import build_trainer
from runner.training.environment import prepare_environment
from runner.training.plan import learning_rate_for, make_plan


class Gradients(TrainerCallback):
    """Keeps a copy of every gradient just before each optimizer step."""

    def __init__(self) -> None:
        self.steps: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        parts = [p.grad.detach().flatten().clone() for p in model.parameters() if p.grad is not None]
        self.steps.append(torch.cat(parts))


def trainer_for(cfg: Config, callbacks: list[TrainerCallback] | None = None) -> tuple[Any, list[dict[str, Any]]]:
    """The instrumented trainer of `cfg` and the list its telemetry rows will go to."""
    prepare_environment(cfg)
    tokenizer = load_tokenizer(cfg)
    data = prepare_data(cfg, tokenizer)
    set_seed(cfg.seed)
    formats = resolve_formats(cfg)
    start = load_model(cfg, tokenizer, data.labels, formats)
    rate, _ = learning_rate_for(cfg, start.config.hidden_size)
    model, _ = adapt(cfg, start, formats)
    rows: list[dict[str, Any]] = []
    plan = make_plan(cfg, len(data.train), 1)
    trainer = build_trainer(
        cfg, plan, formats, rate, model, tokenizer, data, Path(cfg.output_dir), rows.append, callbacks or []
    )
    return trainer, rows
