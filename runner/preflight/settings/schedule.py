"""The learning rate over the run as it is planned: how much of it the weights will see."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from runner.causes.thresholds import LEAST_POINTS, MEMORISED_EPOCHS, WARMUP
from runner.config.rules_data import source_names
from runner.config.rules_train import warmup_known_end, world_size
from runner.config.schema import Config, Schedule
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, not_needed
from runner.preflight.settings.rules import MENDS
from runner.signals.schedule import Applied, applied, planned
from runner.training.plan import Plan, make_plan, warmup_steps_for

LEAST_INTEGRAL = 0.2
"""sum(lr) / (peak x steps) below which the weights see next to nothing of the rate that was set (catalogue B5). Linear
and cosine have 0.5."""

_ID = "schedule.warmup_beyond_end"


def known_end(c: Context) -> Result:
    """The curve of a run whose steps are known, or bounded, before anything is loaded."""
    schedule = c.cfg.schedule
    total = schedule.max_steps or too_few_at_most(c.cfg)
    if total is None:
        return not_needed("epochs: steps are known once the rows are counted")
    warmup = warmup_steps_for(schedule, total)
    curve = applied(factors(schedule, total, warmup), max_steps=total, peak=1.0)
    most = "" if schedule.max_steps else "at most "
    # A rule of the configuration has said it already where max_steps is set and warmup_steps reaches it.
    findings = [] if warmup_known_end(c.cfg) else curve_findings(schedule, total, warmup, curve, most)
    return found(most + summary(total, warmup, curve), *findings, *(few_steps(total) if schedule.max_steps else []))


def integral(c: Context) -> Result:
    """The curve of a run whose steps follow from its rows; epochs, and what an epoch is made of."""
    schedule, plan = c.cfg.schedule, c.plan
    total, warmup = plan.total_steps, plan.warmup_steps
    curve = applied(factors(schedule, total, warmup), max_steps=total, peak=1.0)
    findings = []
    if schedule.max_steps is None:
        findings += few_steps(total)
        findings += curve_findings(schedule, total, warmup, curve) if too_few_at_most(c.cfg) is None else []
    findings += nothing_left(plan, bool(c.cfg.trainer.get("dataloader_drop_last")))
    return found(summary(total, warmup, curve) + epoch_line(plan), *findings, *staircase(plan))


def too_few_at_most(cfg: Config) -> int | None:
    """`most_steps` where warmup_steps is longer than that; None elsewhere. Then no row has to be read to know it."""
    most = most_steps(cfg)
    return most if most is not None and (cfg.schedule.warmup_steps or 0) >= most else None


def most_steps(cfg: Config) -> int | None:
    """Optimizer steps that a run over epochs has at most, where max_samples limits every source; None elsewhere."""
    limits = cfg.dataset.max_samples
    names = [name for name in source_names(cfg) if name != cfg.dataset.validation.source]
    rows = 0
    for name in names:
        own = cfg.dataset.sources[name].max_samples if name in cfg.dataset.sources else None
        limit = own or (limits.get(name) if isinstance(limits, dict) else limits)
        if limit is None:
            return None
        rows += limit
    return make_plan(cfg, rows, world_size()).total_steps if rows else None


def factors(schedule: Schedule, total: int, warmup: int) -> NDArray[np.float64]:
    """Planned rate / peak at each of `total` optimizer steps, shape (total,): transformers' schedulers in numpy."""
    step = np.arange(total, dtype=np.float64)
    kind = schedule.lr_scheduler_type
    name = "constant_with_warmup" if kind == "constant" else kind
    curve = planned(name, step, warmup, total, 1.0)
    if curve is not None:
        return curve
    rising = step / max(1.0, warmup)
    if kind == "polynomial":
        rest = np.clip((step - warmup) / max(1.0, total - warmup), 0.0, 1.0)
        return np.where(step < warmup, rising, (1 - rest) ** schedule.power)
    decay, least = math.ceil(schedule.decay_ratio * total), schedule.min_lr_ratio
    stable = total - warmup - decay
    through = (step - warmup - stable) / max(1, decay)
    falling = np.clip(0.5 * (1 + np.cos(np.pi * through)), 0.0, None)
    shape = np.select([step < warmup, through < 0, through < 1], [rising, np.ones(total), falling], 0.0)
    return np.where((step >= warmup) & (through < 0), 1.0, shape * (1 - least) + least)


def curve_findings(schedule: Schedule, total: int, warmup: int, curve: Applied, most: str = "") -> list[Finding]:
    """What there is to say about a planned curve, measured with peak=1; `most` stands before `total`."""
    share = 0.0 if math.isnan(curve.integral) else curve.integral
    numbers = {"steps": total, "warmup_steps": warmup, "integral": round(share, 4)}
    key = "schedule.warmup_steps" if schedule.warmup_steps is not None else "schedule.warmup_ratio"
    if warmup >= total:
        sentence = (
            f"warmup takes {warmup} steps and the run has {most}{total}: the rate never reaches its peak, and the "
            f"weights see {100 * share:.2g} % of it on average"
        )
        return [Finding(_ID, "error", sentence, (key,), numbers, MENDS[_ID])]
    if warmup > WARMUP * total:
        sentence = f"warmup takes {warmup} of {total} steps: the rate is at its peak for the last {total - warmup} only"
        return [Finding(_ID, "warning", sentence, (key,), numbers, MENDS[_ID])]
    if share < LEAST_INTEGRAL:
        where = ("schedule.power",) if schedule.lr_scheduler_type == "polynomial" else ("schedule.lr_scheduler_type",)
        mend = ("schedule.power=1.0",) if schedule.lr_scheduler_type == "polynomial" else ("schedule=cosine",)
        sentence = (
            f"the rate falls so early that the weights see {100 * share:.2g} % of its peak on average (linear and "
            "cosine: 50 %)"
        )
        return [Finding("schedule.advances_too_fast", "warning", sentence, where, numbers, mend)]
    return []


def few_steps(total: int) -> list[Finding]:
    """A note where the run is too short to say anything about it afterwards."""
    if total >= LEAST_POINTS:
        return []
    steps = "1 optimizer step" if total == 1 else f"{total} optimizer steps"
    where = ("schedule.max_steps", "schedule.num_train_epochs")
    return [Finding("log.too_short", "note", f"the run has {steps}: a test that it starts", where, {"steps": total})]


def nothing_left(plan: Plan, drops: bool) -> list[Finding]:
    """An epoch of 0 steps: `drops` says that incomplete batches are dropped, and there is no complete one."""
    needed = plan.per_device * plan.processes
    if not drops or plan.rows >= needed:
        return []
    sentence = (
        f"an epoch has 0 steps: {plan.rows} rows fill no batch of {plan.per_device} x {plan.processes} processes, and "
        "trainer.dataloader_drop_last=true drops what is left"
    )
    numbers = {"rows": plan.rows, "batch": needed}
    mend = ("trainer.dataloader_drop_last=false",)
    return [Finding("learning.stuck", "error", sentence, ("trainer.dataloader_drop_last",), numbers, mend)]


def staircase(plan: Plan) -> list[Finding]:
    """A note where the rows are seen so often that the training loss falls in steps at the ends of epochs."""
    epochs = plan.total_steps / plan.steps_per_epoch
    if epochs < MEMORISED_EPOCHS:
        return []
    sentence = (
        f"{epochs:.3g} epochs of {plan.steps_per_epoch} steps: where the rows are learnt by heart, the training loss "
        f"drops at every multiple of {plan.steps_per_epoch} steps; judge by the held-out loss"
    )
    numbers = {"epochs": round(epochs, 3), "steps_per_epoch": plan.steps_per_epoch}
    return [Finding("data.epoch_staircase", "note", sentence, ("schedule.num_train_epochs",), numbers)]


def summary(total: int, warmup: int, curve: Applied) -> str:
    """ "30 steps, warmup 2, mean rate 50 % of the peak"."""
    share = 0.0 if math.isnan(curve.integral) else curve.integral
    return f"{total} step{'' if total == 1 else 's'}, warmup {warmup}, mean rate {100 * share:.2g} % of the peak"


def epoch_line(plan: Plan) -> str:
    """ ", 1 step an epoch: 26 rows, global batch 64" where an epoch is one step; else nothing."""
    if plan.steps_per_epoch > 1:
        return ""
    return f", 1 step an epoch ({plan.rows} rows, global batch {plan.global_batch})"
