"""Memory, disk and time of a run, estimated before its first step."""

from __future__ import annotations

import shutil
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, not_needed, ok
from runner.preflight.resources.checkpoints import RECORD, Writes, kept, limit_that_fits, saves
from runner.preflight.resources.machine import device_free
from runner.preflight.resources.memory import Parts, optimizer_state
from runner.preflight.resources.needs import (
    Need,
    Needs,
    cheaper,
    overrides,
    planned_orders,
    stored_bytes,
    trained_shapes,
)
from runner.preflight.resources.traced import Untraceable
from runner.training.base_loss import FORWARD_OF_STEP, wanted_rows

FULL = 0.9
"""Share of the free memory above which a run that fits is warned of: the estimate is good to about 15 %."""


def memory(c: Context, free: int | None = None) -> Result:
    """What the run will need at its largest moment against what the device has. `free` is for tests, in bytes."""
    trainer: Any = c.trainer
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return not_needed("DeepSpeed and FSDP hold the weights in shards until training starts")
    needs = Needs(c)
    if free is None:
        free = device_free(needs.device, held=0 if needs.on_gpu else needs.weights)
    try:
        need = needs.of(needs.setting)
    except Untraceable as error:
        known = Parts(needs.weights, needs.gradients, needs.optimizer)
        return _judge(c, needs, Need("", known, None), free, f"; activations not known ({error})")
    return _judge(c, needs, need, free, "")


def _judge(c: Context, needs: Needs, need: Need, free: int, doubt: str) -> Result:
    summary = sentence(need, free) + doubt
    if not needs.optimizer_known:
        summary += f"; optim.name={c.cfg.optim.name} taken for AdamW"
    if need.total <= FULL * free:
        return ok(summary)
    mended = None if doubt else cheaper(needs, FULL * free)
    change = overrides(needs.setting, mended[0], c.cfg.batch.global_batch_size is not None) if mended else ()
    said = f"The run {summary}."
    if mended:
        said += f" With {' '.join(change)} it needs about {size(mended[1].total)}."
    numbers = {
        "needed": need.total,
        "free": free,
        "moment": need.moment,
        **need.parts.as_dict(),
        "with_overrides": mended[1].total if mended else None,
    }
    severity: Any = "error" if need.total > free else "warning"
    keys = ("batch.per_device_train_batch_size", "dataset.max_length")
    if need.moment == "evaluation":
        keys = ("evaluation.per_device_eval_batch_size", "dataset.max_length")
    return found(summary, Finding("resources.memory", severity, said, keys, numbers, change))


def sentence(need: Need, free: int) -> str:
    """ "needs about 1.9 GB of 23 GB free: weights 0.54, gradients 0.54, optimizer 1.08, activations 0.3 (4 x 256
    tokens)"; parts in the unit of the total, the ones of no account left out."""
    unit = 1e9 if need.total >= 1e9 else 1e6
    parts = []
    for name, value in need.parts.as_dict().items():
        if value < 0.005 * need.total:
            continue
        shape = f" ({need.batch.rows} x {need.batch.length} tokens)" if name == "activations" and need.batch else ""
        parts.append(f"{name} {value / unit:.{2 if unit == 1e9 else 0}f}{shape}")
    where = f", most in {need.moment}" if need.moment not in ("", "training") else ""
    return f"needs about {size(need.total)} of {size(free)} free{where}: {', '.join(parts)}"


def size(count: float) -> str:
    """ "840 MB", "1.9 GB", "23 GB"."""
    if count < 1e9:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e9:.1f} GB" if count < 10e9 else f"{count / 1e9:.0f} GB"


def disk(c: Context, free: int | None = None) -> Result:
    """Checkpoints and final model against the free space of the run folder's disk. `free` is for tests, in bytes."""
    writes = planned_writes(c)
    place = Path(c.cfg.output_dir)
    if free is None:
        there = next(p for p in (place, *place.absolute().parents) if p.exists())
        free = shutil.disk_usage(there).free
    each = f"{writes.kept} x {size(writes.checkpoint)} for checkpoints" if writes.kept else "no checkpoint"
    summary = f"{each}, {size(writes.final)} for the model, {size(free)} free"
    if writes.peak <= free:
        return ok(summary)
    numbers = {"needed": writes.peak, "free": free, "checkpoint": writes.checkpoint, "final": writes.final}
    limit = limit_that_fits(writes, free) if writes.kept else None
    change: tuple[str, ...] = ()
    if limit is not None:
        change = (f"checkpoint.save_total_limit={limit}",)
    elif writes.kept and writes.final + writes.beside <= free and not c.cfg.checkpoint.load_best_model_at_end:
        change = ("checkpoint.save_strategy=no",)
    said = (
        f"The run writes up to {size(writes.peak)} ({summary}): an old checkpoint is deleted only when the new one is "
        f"written. Saving would fail at a checkpoint."
    )
    severity: Any = "error" if writes.least > free else "warning"
    return found(summary, Finding("resources.disk", severity, said, ("output_dir",), numbers, change))


def planned_writes(c: Context) -> Writes:
    """The bytes that this run will write."""
    trainer, cfg, plan = c.trainer, c.cfg, c.plan
    model: Any = trainer.model
    trained = trained_shapes(c)
    moving = sum(prod(sizes) * element for sizes, element in trained)
    if cfg.lora.method == "lora":
        weights, tensors = moving, len(trained)
    else:
        weights, tensors = stored_bytes(model), len(list(model.parameters()))
    text = tokenizer_bytes(c.tokenizer)
    final = weights + RECORD * tensors + text
    args: Any = trainer.args
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    written = saves(strategy, plan.total_steps, plan.steps_per_epoch, int(args.save_steps))
    state = optimizer_state(cfg.optim.name, cfg.optim.args, trained)[0] + 3 * RECORD * len(trained)
    rolls_back = trainer.guard.may_roll_back
    snapshot = moving + state if rolls_back else 0
    on_disk = snapshot if rolls_back and trainer.decider.snapshots.where == "disk" else 0
    limit = cfg.checkpoint.save_total_limit
    return Writes(final + state + snapshot, kept(written, limit), final, on_disk)


def tokenizer_bytes(tokenizer: Any) -> int:
    """Bytes of a saved tokenizer: its vocabulary and merges as JSON."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return 0
    return len(backend.to_str(pretty=True).encode("utf-8"))


def time(c: Context) -> Result:
    """How long the run will take, from the seconds that one micro-batch took."""
    taken = c.facts.get("seconds")
    if not taken or not taken["tokens"]:
        return not_needed("no batch was timed")
    per_token = float(taken["seconds"]) / float(taken["tokens"])
    lengths = list(c.data.train["length"])
    rows = c.trainer.args.per_device_train_batch_size
    order = next(iter(planned_orders(c, lengths)))
    steps = c.plan.total_steps
    planned = min(steps, c.plan.steps_per_epoch)
    step = per_token * padded_tokens([lengths[i] for i in order], rows) / max(planned * c.plan.processes, 1)
    forward = per_token * FORWARD_OF_STEP[c.cfg.lora.method == "lora"]
    said = [f"about {clock(step * steps)} for {steps} step{'' if steps == 1 else 's'} ({step:.2g} s a step)"]
    eval_rows = c.trainer.args.per_device_eval_batch_size
    times = evaluations(c)
    if times and c.data.validation is not None:
        once = forward * padded_tokens(list(c.data.validation["length"]), eval_rows) / c.plan.processes
        said.append(f"evaluation {clock(once * times)}{f' ({times} times)' if times > 1 else ''}")
    if c.cfg.stability.base_loss != "off":
        first = [lengths[i] for i in wanted_rows(c.cfg, c.plan, c.data)]
        said.append(f"start model's loss {clock(forward * padded_tokens(first, eval_rows) / c.plan.processes)}")
    return ok(", ".join(said))


def evaluations(c: Context) -> int:
    """How often the held-out rows are measured."""
    args: Any = c.trainer.args
    strategy = str(getattr(args.eval_strategy, "value", args.eval_strategy))
    if strategy == "no" or c.data.validation is None:
        return 0
    times = saves(strategy, c.plan.total_steps, c.plan.steps_per_epoch, int(args.eval_steps or 1))
    return times + int(args.eval_on_start)


def padded_tokens(lengths: list[int], rows: int) -> int:
    """Tokens of all batches of `rows` consecutive rows, each row padded to the longest of its batch."""
    return sum(len(part) * int(np.max(part)) for part in (lengths[i : i + rows] for i in range(0, len(lengths), rows)))


def clock(seconds: float) -> str:
    """ "0.4 s", "12 s", "5 min", "3.2 h"."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
