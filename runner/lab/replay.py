"""`python -m runner replay RUN/incident-12`: the recorded step once more, as it was or with other settings.

The step runs through the very code that trained: the same trainer, number format, loss scale, random numbers and
number of threads. Nothing is trained and nothing is written.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import UserError
from runner.report.replayed import HELP, Replayed, lines, next_command, verdict
from runner.runfolder import read_json, to_json, versions
from runner.training.incident import Incident, read_incident

if TYPE_CHECKING:
    from runner.config.schema import Config
    from runner.data.prepare import PreparedData

KEYS = (
    "precision",
    "precision.compute",
    "precision.frozen_weights",
    "precision.trainable_weights",
    "model.path",
    "model.attn_implementation",
    "model.gradient_checkpointing",
    "lora.adapter",
    "stability.deterministic",
    "planted.fault",
    "hub",
)
"""What may be set for a replay: what can make a difference to a recorded batch, and where the base is."""

WORDS = {"true": True, "false": False, "null": None}


def main(given: Sequence[str]) -> int:
    """The verb: replay the incident that `given` names, print what came of it. Raises `UserError`."""
    if any(a in ("-h", "--help") for a in given):
        print(HELP.format(keys="\n".join(f"  {key}" for key in KEYS)))
        return 0
    options = [a for a in given if a.startswith("-")]
    unknown = [a for a in options if a != "--json"]
    if unknown:
        raise UserError(f"replay has no option {unknown[0]}; it has --json and --help.")
    rest = [a for a in given if not a.startswith("-")]
    # A path may hold an equals sign, as the folders of a sweep do.
    paths = [a for a in rest if "=" not in a or Path(a).exists()]
    if len(paths) != 1:
        found = f"{len(paths)} were given" if paths else f"none was given{newest()}"
        raise UserError(f"replay takes the folder of one incident, python -m runner replay RUN/incident-12: {found}")
    overrides = [a for a in rest if a not in paths]
    path = Path(paths[0])
    refuse_run_folder(path)
    incident = read_incident(path)
    result = replay(incident, overrides)
    if options:
        print(json.dumps(to_json(result.as_dict()), ensure_ascii=False, indent=2))
    else:
        print("\n".join(lines(result)))
    return 0


def newest() -> str:
    """A clause that names the newest incidents below `outputs/`; "" where there is none."""
    found = sorted(Path("outputs").glob("*/*/incident-*"), key=lambda p: p.stat().st_mtime)[-5:]
    return f". The newest here: {', '.join(map(str, reversed(found)))}" if found else ""


def refuse_run_folder(path: Path) -> None:
    """Raise `UserError` that lists its incidents where `path` is the folder of a run."""
    if (path / "incident.json").exists() or not any((path / n).exists() for n in ("run.json", "telemetry.jsonl")):
        return
    found = sorted((p for p in path.glob("incident-*") if p.is_dir()), key=lambda p: int(p.name[9:] or 0))
    if not found:
        raise UserError(
            f"{path} is a run, and it left no incident: no step was called broken, or stability.incident.save=false."
        )
    rows = []
    for folder in found:
        facts = read_json(folder / "incident.json")
        rows.append(f"  {folder}   {facts.get('sentence', '') if facts else 'cut short while it was written'}")
    raise UserError("\n".join([f"{path} is a run. Replay one of its incidents:", *rows]))


def settings(recorded: dict[str, Any], overrides: Sequence[str]) -> Config:
    """The recorded configuration with `overrides` (KEY=VALUE, keys of `KEYS`). `ConfigError` for what does not fit."""
    from runner.config.build import config_from_dict
    from runner.config.names import nearest

    values = copy.deepcopy(recorded)
    for line in overrides:
        key, _, text = line.lstrip("+").partition("=")
        if key not in KEYS:
            near = nearest(key, list(KEYS), 0.6)
            hint = f"; did you mean {near}?" if near else "."
            raise UserError(
                f"{line}: a replay keeps the recorded settings, except {', '.join(KEYS)}{hint} Other settings need a "
                "run of their own."
            )
        value = WORDS.get(text, text)
        if key == "precision":
            # The group's options differ in this one key; formats of weights that were set by hand are left behind.
            kept = values.get("precision", {}).get("loss_scale")
            values["precision"] = {"compute": value, **({"loss_scale": kept} if kept else {})}
            continue
        group, _, name = key.partition(".")
        if name:
            values.setdefault(group, {})[name] = value
        else:
            values[key] = value
    return config_from_dict(values)


def replay(incident: Incident, overrides: Sequence[str] = ()) -> Replayed:
    """Run the step of `incident` again with `overrides`, and judge what came of it."""
    cfg = settings(incident.config, overrides)
    from runner.training.environment import prepare_environment, set_early

    set_early(cfg)
    prepare_environment(cfg)
    check_base(cfg, incident.path)
    ranks = [incident.batches(rank) for rank in range(int(incident.facts.get("processes") or 1))]
    with recorded_threads(ranks[0].get("num_threads")):
        now = run_step(cfg, incident, ranks)
    changed = [o for o in overrides if o.partition("=")[0] not in ("model.path", "lora.adapter", "hub")]
    result = Replayed(
        path=incident.path,
        recorded=incident.facts,
        now=now,
        overrides=list(overrides),
        notes=notes(cfg, incident, ranks),
    )
    result.kind, result.sentence = verdict(incident.facts, now, changed)
    result.next = next_command(result, compute_of(incident))
    return result


def check_base(cfg: Config, path: Path) -> None:
    """Raise `UserError` where the start model or adapter is a local folder that is not there (any more)."""
    from runner.config.nearby import looks_local, near

    for key, value in (("model.path", cfg.model.path), ("lora.adapter", cfg.lora.adapter)):
        if value is not None and looks_local(value) and not Path(value).expanduser().exists():
            raise UserError(
                f"{path} was recorded with {key}={value}, and there is no such folder{near(Path(value))}. If it moved, "
                f"say where to: {key}=FOLDER"
            )


def compute_of(incident: Incident) -> str:
    """Compute dtype of the recorded run, as far as this machine resolves `auto` alike."""
    from runner.config.build import config_from_dict
    from runner.model.formats import resolve_formats

    return resolve_formats(config_from_dict(incident.config)).compute


@contextlib.contextmanager
def recorded_threads(count: int | None) -> Iterator[None]:
    """Inside, torch uses `count` threads: how a sum is split over threads decides its last digits."""
    import torch

    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def notes(cfg: Config, incident: Incident, ranks: list[dict[str, Any]]) -> list[str]:
    """What may make a difference, and what could not be checked, one sentence each."""
    import socket

    import torch

    said = []
    if len(ranks) > 1:
        said.append(f"{len(ranks)} processes ran one after the other in one: sums may differ in the last digits.")
    run = read_json(incident.path.resolve().parent / "run.json") or {}
    if run.get("host") not in (None, socket.gethostname()):
        said.append(f"the run was on the machine {run['host']}; on another one the last digits may differ.")
    here = versions()
    other = [f"{k} {v} (now {here[k]})" for k, v in (run.get("versions") or {}).items() if here.get(k, v) != v]
    if other:
        said.append(f"the run had other versions: {', '.join(other)}.")
    if "cuda" in (ranks[0].get("rng") or [{}])[0] and not torch.cuda.is_available():
        said.append("the run was on a GPU and this machine has none: numbers differ, and precision auto means fp32.")
    if cfg.lora.method != "none":
        said.append(f"that {cfg.model.path} still holds the weights of the run is taken for granted: no hash is kept.")
    return said


def run_step(cfg: Config, incident: Incident, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """The step of all processes, one after the other: loss, grad_norm, loss_scale, and what `examine` finds."""
    with tempfile.TemporaryDirectory(prefix="runner-replay-") as folder:
        trainer = rebuild(cfg, ranks, Path(folder))
        trainer.state.global_step = int(incident.facts["step"]) - 1
        if cfg.planted.fault != "none":
            from runner.lab.faults import plant

            plant(cfg, trainer)
        found: dict[str, Any] = {}
        # All that `train` does around its loop (checkpointing of activations, NEFTune noise, ...) stays as it was.
        trainer._inner_training_loop = lambda **_: found.update(step_of(trainer, incident, ranks))
        trainer.train()
        return found


def rebuild(cfg: Config, ranks: list[dict[str, Any]], folder: Path) -> Any:
    """The trainer of the run over the rows of the incident, its model built as the run built it."""
    from transformers import set_seed

    from runner.model.adapt import adapt
    from runner.model.formats import resolve_formats
    from runner.model.load import load_model
    from runner.model.tokenizer import load_tokenizer
    from runner.training.build import build_trainer
    from runner.training.plan import Plan, accumulation_for

    cfg = quiet(cfg)
    tokenizer = load_tokenizer(cfg)
    data = rows_as_data(ranks, cfg)
    set_seed(cfg.seed)
    formats = resolve_formats(cfg)
    model, _ = adapt(cfg, load_model(cfg, tokenizer, data.labels, formats), formats)
    per_device, steps = cfg.batch.per_device_train_batch_size, accumulation_for(cfg.batch, len(ranks))
    plan = Plan(len(data.train), per_device, steps, 1, 1, 1, 0)
    trainer: Any = build_trainer(
        cfg, plan, formats, 0.0, model, tokenizer, data, folder, lambda row: None, callbacks=[]
    )  # fmt: skip
    # One process uses one GPU, as each process of the run did.
    trainer.args._n_gpu = min(trainer.args.n_gpu, 1)
    if ranks[0].get("class_weights") is not None:
        trainer.class_weights = ranks[0]["class_weights"]
    return trainer


def quiet(cfg: Config) -> Config:
    """`cfg` without what belongs to a whole run: evaluation, checkpoints, trackers, probes, guard."""
    from runner.config.schema import Checkpoint, Evaluation, Tracking
    from runner.config.schema.stability import Guard, Probes

    stability = replace(
        cfg.stability,
        telemetry=True,
        guard=Guard(on_nonfinite="ignore", on_spike="ignore"),
        probes=Probes(line=None, replay=None, lost_updates=None, probe_set=None),
    )
    return replace(
        cfg,
        stability=stability,
        evaluation=Evaluation(eval_strategy="no"),
        checkpoint=Checkpoint(save_strategy="no"),
        tracking=Tracking(report_to="none"),
    )


def rows_as_data(ranks: list[dict[str, Any]], cfg: Config) -> PreparedData:
    """The incident's rows as training data: only their names matter, the batches themselves are recorded."""
    from datasets import Dataset

    from runner.data.prepare import PreparedData
    from runner.data.report import DataReport

    batches = [batch for rank in ranks for batch in rank["batches"]]
    count = [len(batch["input_ids"]) for batch in batches]

    def column(name: str, otherwise: Any) -> list[Any]:
        return [x for batch, n in zip(batches, count, strict=True) for x in list(batch.get(name) or [otherwise] * n)]

    names = {name: column(name, other) for name, other in (("row_id", "?"), ("source", "?"), ("length", 0))}
    tensors = {key: [row for batch in batches for row in batch[key].tolist()] for key in ("input_ids", "labels")}
    labels = None
    if cfg.task.name == "classification":
        labels = ranks[0].get("labels") or cfg.task.labels
        if labels is None:
            raise UserError("the incident was recorded without the labels of the run, and task.labels is not set.")
    return PreparedData(Dataset.from_dict({**tensors, **names}), None, labels, DataReport(task=cfg.task.name), "")


def step_of(trainer: Any, incident: Incident, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Prepare the model as training did, put the recorded weights in, run every micro-batch, and look for the cause."""
    import torch

    from runner.stability.clipping import total_norm
    from runner.training import rng
    from runner.training.investigate import chosen, examine
    from runner.training.step import Step

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

    A process of several multiplies its loss by their number, because the gradient is averaged over them afterwards; here
    gradients are summed, so that the scale takes the factor: every gradient is as large before it is unscaled.
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
    import torch

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


def finite(value: float | None) -> bool:
    """Whether a number is there and neither NaN nor infinite."""
    return value is not None and math.isfinite(value)
