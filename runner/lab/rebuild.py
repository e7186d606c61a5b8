"""The recorded step once more, by the trainer that ran it: same code, number format, loss scale and random numbers."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import set_seed

from runner.config.build import config_from_dict
from runner.config.schema import Checkpoint, Config, Evaluation, Schedule, Tracking
from runner.config.schema.stability import Guard, Probes
from runner.data.prepare import PreparedData, prepare_data
from runner.data.report import DataReport
from runner.errors import UserError
from runner.model.adapt import adapt
from runner.model.formats import resolve_formats
from runner.model.load import load_model
from runner.model.tokenizer import load_tokenizer
from runner.stability.clipping import total_norm
from runner.training import rng
from runner.training.build import build_trainer
from runner.training.incident import Incident
from runner.training.investigate import chosen, examine
from runner.training.plan import learning_rate_for, make_plan
from runner.training.step import Step


def run_step(cfg: Config, incident: Incident, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """The step of all processes, one after the other: loss, grad_norm, loss_scale, and what `examine` finds."""
    with tempfile.TemporaryDirectory(prefix="runner-replay-") as folder:
        trainer = rebuild(quiet(cfg), ranks, Path(folder))
        trainer.state.global_step = int(incident.facts["step"]) - 1
        if cfg.planted.fault != "none":
            from runner.lab.faults import plant

            # As it was planted in the run, also where the replay's own number format would not show it.
            plant(config_from_dict(incident.config), trainer)
        found: dict[str, Any] = {}
        # All that `train` does around its loop (checkpointing of activations, NEFTune noise, ...) stays as it was.
        trainer._inner_training_loop = lambda **_: found.update(step_of(trainer, incident, ranks))
        trainer.train()
        return found


def quiet(cfg: Config) -> Config:
    """`cfg` without what belongs to a whole run: schedule, evaluation, checkpoints, trackers, probes, guard, cache."""
    stability = replace(
        cfg.stability,
        telemetry=True,
        guard=Guard(on_nonfinite="ignore", on_spike="ignore"),
        probes=Probes(line=None, replay=None, lost_updates=None, probe_set=None),
    )
    return replace(
        cfg,
        stability=stability,
        dataset=replace(cfg.dataset, cache=False),
        schedule=Schedule(lr_scheduler_type="constant", max_steps=1, warmup_ratio=None, warmup_steps=0),
        evaluation=Evaluation(eval_strategy="no"),
        checkpoint=Checkpoint(save_strategy="no"),
        tracking=Tracking(report_to="none"),
    )


def rebuild(cfg: Config, ranks: list[dict[str, Any]], folder: Path) -> Any:
    """The trainer of the run over the rows of the incident, its model built as the run built it."""
    tokenizer = load_tokenizer(cfg)
    # A fault is planted by what the training rows hold, so it needs all of them.
    data = rows_as_data(ranks, cfg) if cfg.planted.fault == "none" else prepare_data(cfg, tokenizer)
    set_seed(cfg.seed)
    formats = resolve_formats(cfg)
    start = load_model(cfg, tokenizer, data.labels, formats)
    model, _ = adapt(cfg, start, formats)
    rate, _ = learning_rate_for(cfg, None)
    plan = make_plan(cfg, len(data.train), len(ranks))
    trainer: Any = build_trainer(cfg, plan, formats, rate, model, tokenizer, data, folder, lambda row: None, [])
    # One process uses one GPU, as each process of the run did.
    trainer.args._n_gpu = min(trainer.args.n_gpu, 1)
    if ranks[0].get("class_weights") is not None:
        trainer.class_weights = ranks[0]["class_weights"]
    return trainer


def rows_as_data(ranks: list[dict[str, Any]], cfg: Config) -> PreparedData:
    """The incident's rows as training data: only their names matter, the batches themselves are recorded."""
    batches = [batch for rank in ranks for batch in rank["batches"]]
    columns: dict[str, list[Any]] = {key: [] for key in ("input_ids", "labels", "row_id", "source", "length")}
    for batch in batches:
        for key, column in columns.items():
            rows = batch[key]
            column += rows if isinstance(rows, list) else rows.tolist()
    labels = None
    if cfg.task.name == "classification":
        labels = ranks[0].get("labels") or cfg.task.labels
        if labels is None:
            raise UserError("the incident was recorded without the labels of the run, and task.labels is not set.")
    return PreparedData(Dataset.from_dict(columns), None, labels, DataReport(task=cfg.task.name), "")


def step_of(trainer: Any, incident: Incident, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Prepare the model as training did, put the recorded weights in, run every micro-batch, and look for the cause."""
    model, _ = trainer._prepare_for_training(1, None, None)
    set_scale(trainer, ranks)
    model.zero_grad()
    trainer.control = trainer.callback_handler.on_train_begin(trainer.args, trainer.state, trainer.control)
    trainer.control = trainer.callback_handler.on_step_begin(trainer.args, trainer.state, trainer.control)
    # After a planted fault has done its work at the start: the recorded weights hold what it did to them.
    load_weights(trainer, incident)
    steps = []
    for recorded in ranks:
        trainer.step_now = Step(loss_scale=trainer.scale())
        trainer.current_gradient_accumulation_steps = recorded["accumulation"]
        for batch, state in zip(recorded["batches"], recorded["rng"], strict=True):
            rng.restore(state)
            trainer.training_step(model, dict(batch), recorded["num_items"])
        steps.append(trainer.step_now)
    trainer.accelerator.unscale_gradients()
    norm = float(total_norm([p for _, p in trainer.trainable()]))
    loss = sum(float(torch.stack([x.float().reshape(()) for x in step.losses]).sum()) for step in steps)
    spike = incident.facts.get("reason") == "spike"
    facts = {"step": incident.facts["step"], "reason": incident.facts.get("reason"), "loss": loss, "grad_norm": norm}
    found = []
    for step in steps:
        trainer.step_now = step
        found.append(examine(trainer, spike, facts))
    return {**facts, **chosen(found, spike), "loss_scale": recorded_scale(trainer, ranks)}


def set_scale(trainer: Any, ranks: list[dict[str, Any]]) -> None:
    """fp16: the recorded loss scale.

    A process of several multiplies its loss by their number, because gradients are averaged over them afterwards. Here
    they are summed, so that the scale takes the factor: before it is unscaled, every gradient is as large as it was.
    """
    scaler, recorded = trainer.accelerator.scaler, ranks[0].get("loss_scale")
    if scaler is not None and recorded is not None:
        state = scaler.state_dict()
        scaler.load_state_dict({**state, "scale": float(recorded) * len(ranks)})


def recorded_scale(trainer: Any, ranks: list[dict[str, Any]]) -> float | None:
    """The loss scale as the run would call it."""
    scale = trainer.scale()
    return None if scale is None else scale / (len(ranks) if ranks[0].get("loss_scale") is not None else 1)


def load_weights(trainer: Any, incident: Incident) -> None:
    """Put the recorded weights in, every one; `UserError` where model and incident do not fit."""
    recorded, there = incident.weights(), dict(trainer.trainable())
    missing = sorted(set(there) ^ set(recorded))
    if missing:
        raise UserError(
            f"{incident.path} does not fit this model: {len(missing)} weights that train are only on one side "
            f"({', '.join(missing[:3])}). model.path or lora.adapter is another one than in the run."
        )
    unlike = [name for name, p in there.items() if p.shape != recorded[name].shape]
    if unlike:
        raise UserError(
            f"{incident.path} does not fit this model: {unlike[0]} has shape {tuple(there[unlike[0]].shape)} here and "
            f"{tuple(recorded[unlike[0]].shape)} in the incident. model.path is another one than in the run."
        )
    with torch.no_grad():
        for name, parameter in there.items():
            parameter.copy_(recorded[name])
