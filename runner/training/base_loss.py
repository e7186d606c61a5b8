"""The start model's loss on the rows of planned steps, measured before training: what makes a batch hard or easy.

The sampler is seeded, so the batches of a run are known before it starts (DESIGN 7.3).
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import broadcast_object_list

from runner.config.schema import Config
from runner.data.loss_cache import Loss, load_losses, model_key, row_key, starts_as_base, store_losses
from runner.data.prepare import PreparedData
from runner.data.sampler import epoch_order
from runner.model.formats import resolve_formats
from runner.runfolder import SCHEMA, number, read_json, write_json
from runner.signals.noise import between_sources, predicted_noise
from runner.training.plan import Plan

FILE = "base_loss.json"
MOST_STEPS = 200
LEAST_EXAMPLES = 64
SHARE_OF_RUN = 0.02
FORWARD_OF_STEP = {True: 1 / 2, False: 1 / 3}
"""Cost of a forward pass, in training steps on the same rows, with LoRA (the base has no weight gradients) or not."""


def planned_steps(total_steps: int, wanted: int) -> list[int]:
    """At most `wanted` of the optimizer steps 0 .. total_steps - 1, evenly spaced, first and last included."""
    if total_steps < 1 or wanted < 1:
        return []
    return [int(t) for t in np.unique(np.linspace(0, total_steps - 1, min(wanted, total_steps)).round())]


def sampled_count(total_steps: int, lora: bool, global_batch: int) -> int:
    """How many planned steps `base_loss=sampled` measures: at most 200, within 2 % of the run.

    A forward pass costs about a third of a full step and half of a LoRA step, so 2 % buy `0.02 T x 3` (or x 2) steps.
    But a band needs 64 examples: a run below some hundred steps pays more than 2 %, and the header prints how much.
    """
    affordable = math.floor(SHARE_OF_RUN * total_steps / FORWARD_OF_STEP[lora] + 1e-9)
    needed = math.ceil(LEAST_EXAMPLES / global_batch)
    return min(max(min(MOST_STEPS, affordable), needed), total_steps)


def rows_of_steps(
    order: Callable[[int], Sequence[int]],
    steps: Iterable[int],
    steps_per_epoch: int,
    global_batch: int,
    rows: int,
    round_of_processes: int = 1,
) -> dict[int, list[int]]:
    """{step: row indices} of exactly those optimizer steps (0-based).

    `order(epoch)` gives all `rows` indices in the order of that epoch; the last window of an epoch may be short.
    `round_of_processes` is per-device batch x processes where there are several: accelerate fills the last round of an
    epoch with rows from its start, so that every process has a full batch (`BatchSamplerShard`, even_batches).
    """
    length = math.ceil(rows / round_of_processes) * round_of_processes
    orders: dict[int, Sequence[int]] = {}
    found = {}
    for step in steps:
        epoch, k = divmod(step, steps_per_epoch)
        if epoch not in orders:
            orders[epoch] = order(epoch)
        window = range(k * global_batch, min((k + 1) * global_batch, length))
        found[step] = [int(orders[epoch][i % rows]) for i in window]
    return found


@dataclass
class BaseLoss:
    """What is known of the start model's losses."""

    mode: str
    """off, sampled or all, as configured."""

    rows: dict[str, Loss] = field(default_factory=dict)
    """row_id -> (summed loss in nats, supervised tokens)."""

    noise: dict[str, Any] = field(default_factory=dict)
    """See `expected_noise`; empty where no row is known."""

    resumed: bool = False
    """The run goes on from a checkpoint, so its loss is no longer the start model's."""

    def of(self, row_ids: Sequence[str]) -> tuple[float, int, int]:
        """(summed loss, supervised tokens, rows known) over those of `row_ids` that are known."""
        known = [self.rows[row] for row in row_ids if row in self.rows]
        return sum(s for s, _ in known), sum(n for _, n in known), len(known)

    def line(self) -> str:
        """For the header: the band in which the loss is expected to move; "" where nothing is known."""
        noise = self.noise
        if not noise:
            return ""
        parts = []
        if noise["non_finite"]:
            parts.append(
                f"the start model's loss is NaN or infinite on {noise['non_finite']} of {noise['examples']} rows "
                f"(first: {noise['first_non_finite']}), before any training"
            )
        if math.isfinite(noise["mean"]):
            parts.append(self._band())
        return f"{'expect':<10} {'; apart from those: '.join(parts)}"

    def _band(self) -> str:
        noise = self.noise
        level = f"loss about {noise['mean']:.3g}"
        if self.resumed:
            level = f"loss was about {noise['mean']:.3g} under the start model, and moves"
        cached, examples, seconds = noise["from_cache"], noise["examples"], f"{noise['seconds']:.1f} s"
        if noise["share_of_run"] > SHARE_OF_RUN:
            seconds += f", about {100 * noise['share_of_run']:.0f} % of the run"
        origin = {0: seconds, examples: "known from before"}.get(cached, f"{cached} known from before, {seconds}")
        basis = f"batch {noise['batch']}; {examples} rows under the start model, {origin}"
        if math.isnan(noise["sd_step"]):
            return f"{level}; too few rows to say how far it moves ({basis})"
        band = f"{level} +/- {noise['sd_step']:.2g} per step from sampling alone ({basis})"
        if noise["log_steps"] == 1:
            return band
        return f"{band}; a log line is the mean of {noise['log_steps']} steps: +/- {noise['sd_log']:.2g}"


def compute_base_loss(
    cfg: Config,
    plan: Plan,
    data: PreparedData,
    trainer: Any,
    folder: Path,
    note: Callable[[str], None],
    resumed: bool = False,
) -> BaseLoss:
    """The start model's losses that `stability.base_loss` asks for. Every process calls it, before training.

    Taken from the run folder (of a resumed run), else from the cache of earlier runs, else measured with
    `trainer.row_losses`, and kept in both. A resumed run never measures a model that may be trained already: only where
    a new LoRA adapter can be switched off is the start model still there. What stays unknown is said through `note`.
    """
    mode = cfg.stability.base_loss
    if mode == "off":
        return BaseLoss(mode, resumed=resumed)
    leader = bool(trainer.is_world_process_zero())
    chosen = data.train.select(wanted_rows(cfg, plan, data))
    ids: list[str] = list(chosen["row_id"])
    key, keys = "", dict[str, bytes]()
    known: dict[str, Loss] = {}
    if leader:
        key = key_of_start(cfg, data, trainer)
        pairs = zip(ids, chosen["input_ids"], chosen["labels"], strict=True)
        keys = {row: row_key(input_ids, labels) for row, input_ids, labels in pairs}
        known = read_file(folder, data.fingerprint) if resumed else {}
        cached = load_losses(key, keys.values(), note)
        known = {**{row: cached[k] for row, k in keys.items() if k in cached}, **known}
    if trainer.accelerator.num_processes > 1:
        # Another process's disk may know other rows, and all have to measure the same ones.
        known = broadcast_object_list([known])[0]

    length = list(chosen["length"])
    missing = [i for i, row in enumerate(ids) if row not in known]
    # Longest first: running out of memory shows at once, and rows of one batch need little padding.
    missing.sort(key=lambda i: -length[i])
    measured: dict[str, Loss] = {}
    started = time.perf_counter()
    if missing and (not resumed or start_is_there(cfg)):
        with without_adapter(trainer) if resumed else contextlib.nullcontext():
            found = trainer.row_losses(chosen.select(missing))
        measured = {ids[i]: found[ids[i]] for i in missing}
    elif missing:
        note(
            f"The start model's losses of {len(missing)} of {len(ids)} rows are unknown and are not measured now: this "
            "run was resumed, so its model is a trained one. The difficulty-adjusted loss has gaps on those rows."
        )
    seconds = time.perf_counter() - started

    result = BaseLoss(mode, {**known, **measured}, resumed=resumed)
    rows = [row for row in ids if row in result.rows]
    if rows:
        cost = len(measured) * FORWARD_OF_STEP[cfg.lora.method == "lora"] / (plan.total_steps * plan.global_batch)
        result.noise = {
            **expected_noise(cfg, plan, rows, result.rows, *traits(chosen, trainer)),
            "from_cache": len(rows) - len(measured),
            "seconds": seconds,
            "share_of_run": cost,
        }
    if leader:
        store_losses(key, {keys[row]: loss for row, loss in measured.items()}, note)
        write_json(
            folder / FILE,
            {
                "schema": SCHEMA,
                "mode": mode,
                "fingerprint": data.fingerprint,
                "rows": {row: list(loss) for row, loss in result.rows.items()},
                "noise": result.noise,
            },
        )
    return result


def wanted_rows(cfg: Config, plan: Plan, data: PreparedData) -> list[int]:
    """Indices of the training rows that `stability.base_loss` asks for, each once, ascending."""
    rows = len(data.train)
    if cfg.stability.base_loss == "all":
        return list(range(rows))
    sources, lengths = list(data.train["source"]), list(data.train["length"])
    filled = plan.per_device * plan.processes if plan.processes > 1 else 1

    @functools.cache
    def order(epoch: int) -> list[int]:
        return epoch_order(cfg.batch.sampler, cfg.seed, epoch, sources, lengths, plan.global_batch)

    first = sampled_count(plan.total_steps, cfg.lora.method == "lora", plan.global_batch)
    wanted: set[int] = set()
    for count in range(first, plan.total_steps + 1):
        steps = planned_steps(plan.total_steps, count)
        found = rows_of_steps(order, steps, plan.steps_per_epoch, plan.global_batch, rows, filled)
        wanted = {i for window in found.values() for i in window}
        # Steps of several epochs share rows, so that it may take more steps to see enough examples.
        if len(wanted) >= min(LEAST_EXAMPLES, rows):
            break
    return sorted(wanted)


def expected_noise(
    cfg: Config,
    plan: Plan,
    rows: Sequence[str],
    losses: dict[str, Loss],
    sources: dict[str, str],
    weights: dict[str, float],
) -> dict[str, Any]:
    """The band of the loss before training, over the known `rows`.

    mean: token-mean loss; sd_step, sd_log: standard deviation of one step's loss and of a mean over `log_steps` steps,
    from sampling alone (DESIGN 7.1; without the part between sources where the sampler is stratified); sd_independent:
    sd_step without the factor (1 - B/N), for kappa (DESIGN 7.2); between_share: share of the variance between sources.
    All in nats, NaN where too few rows are known. `weights` are class weights: the logged loss is a weighted mean too.
    """
    sums = np.array([losses[row][0] * weights.get(row, 1.0) for row in rows])
    tokens = np.array([losses[row][1] * weights.get(row, 1.0) for row in rows])
    names = [sources[row] for row in rows]
    finite = np.isfinite(sums)
    total = float(tokens[finite].sum())
    strata = names if cfg.batch.sampler == "stratified" else None
    batch, window = plan.global_batch, cfg.tracking.logging_steps
    broken = [row for row, fine in zip(rows, finite, strict=True) if not fine]
    return {
        "mean": float(sums[finite].sum()) / total if total > 0 else float("nan"),
        "sd_step": predicted_noise(sums, tokens, batch, 1, plan.rows, strata),
        "sd_log": predicted_noise(sums, tokens, batch, window, plan.rows, strata),
        "sd_independent": predicted_noise(sums, tokens, batch, sources=strata),
        "between_share": between_sources(sums, tokens, names),
        "batch": batch,
        "log_steps": window,
        "examples": len(rows),
        "non_finite": len(broken),
        "first_non_finite": broken[0] if broken else None,
    }


def traits(chosen: Any, trainer: Any) -> tuple[dict[str, str], dict[str, float]]:
    """(source, class weight) of each row of `chosen`, by row_id; no weights where classes are not weighted."""
    ids = list(chosen["row_id"])
    per_class = getattr(trainer, "class_weights", None)
    weights = {} if per_class is None else {i: float(per_class[c]) for i, c in zip(ids, chosen["labels"], strict=True)}
    return dict(zip(ids, chosen["source"], strict=True)), weights


def key_of_start(cfg: Config, data: PreparedData, trainer: Any) -> str:
    """`model_key` of this run's start model."""
    formats = resolve_formats(cfg)
    config = getattr(trainer.accelerator.unwrap_model(trainer.model), "config", None)
    attention = getattr(config, "_attn_implementation", None) or cfg.model.attn_implementation
    commit = getattr(config, "_commit_hash", None)
    classes = len(data.labels) if data.labels else None
    return model_key(cfg, formats.compute, formats.frozen, formats.trainable, attention, classes, commit)


def start_is_there(cfg: Config) -> bool:
    """Whether the start model is at hand in a resumed run: its new LoRA adapter only has to be switched off."""
    return cfg.lora.method == "lora" and starts_as_base(cfg)


def without_adapter(trainer: Any) -> contextlib.AbstractContextManager[Any]:
    """The start model of a LoRA run, for as long as the context lasts."""
    model: contextlib.AbstractContextManager[Any] = trainer.accelerator.unwrap_model(trainer.model).disable_adapter()
    return model


def read_file(folder: Path, fingerprint: str) -> dict[str, Loss]:
    """Rows of the run folder's `base_loss.json`; none where it is absent, torn, or about other data."""
    content = read_json(folder / FILE) or {}
    rows = content.get("rows")
    if content.get("fingerprint") != fingerprint or not isinstance(rows, dict):
        return {}
    losses = {}
    for row, pair in rows.items():
        total, tokens = (number(x) for x in pair) if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if total is not None and tokens is not None:
            losses[row] = (total, int(tokens))
    return losses
