"""Signs that compare a run with its plan or with itself: schedule, factor between train and eval loss, plateau."""

from __future__ import annotations

import numpy as np

from runner.causes import thresholds as t
from runner.diagnosis.sign import Signs, short
from runner.diagnosis.signs_shape import sound
from runner.diagnosis.trace import Trace
from runner.runfolder import number
from runner.signals.hidden_nan import accumulated_log_classes
from runner.signals.schedule import against_plan
from runner.signals.train_eval import train_eval
from runner.signals.trend import fall


def plan_signs(trace: Trace, signs: Signs) -> None:
    """schedule_off_plan, loss_times_accumulation, plateau."""
    _schedule(trace, signs)
    _factor(trace, signs)
    _, loss, _ = sound(trace)
    if len(loss) < t.PLATEAU_POINTS:
        return
    down = fall(loss)
    signs.say(
        "plateau", signs.has("falls") and abs(down.late) < t.PLATEAU and abs(down.late_z) < 2,
        f"the second half no longer falls: the loss stays at {short(down.last)}",
        f"后半段不再下降：loss 停在 {short(down.last)}",
    )  # fmt: skip


def _schedule(trace: Trace, signs: Signs) -> None:
    """The rate as applied against the scheduler that the configuration names."""
    if trace.facts is None or trace.max_steps is None:
        return
    rate, plan = trace.learning_rate, trace.facts.config.get("schedule", {})
    kept = rate.finite & ~np.isin(trace.step, trace.marks.get("skipped", []))
    # A roll-back lowers the rate on purpose, and a skipped step delays it.
    if kept.sum() < 10 or trace.marks.get("rollbacks") or trace.marks.get("skipped"):
        return
    warmup, ratio = number(plan.get("warmup_steps")), number(plan.get("warmup_ratio"))
    steps = warmup if warmup is not None else float(np.ceil((ratio or 0.0) * trace.max_steps))
    name = str(plan.get("lr_scheduler_type"))
    found = against_plan(rate.values[kept], trace.step[kept], name, steps, trace.max_steps)
    if found is None:
        return
    signs.numbers |= {"schedule_worst": found.worst}
    fast = found.speed is not None and found.speed > 1
    signs.say(
        "schedule_off_plan", fast,
        f"the learning rate moves {found.speed:g} times as fast as planned from step {found.first_off} on"
        if fast else "",
        f"自第 {found.first_off} 步起学习率变化是计划的 {found.speed:g} 倍" if fast else "",
        [found.first_off or 0],
    )  # fmt: skip


def _factor(trace: Trace, signs: Signs) -> None:
    """A train loss that is a whole multiple of what it should be: accumulation that nobody divided by."""
    times, classes = None, 0
    first = np.flatnonzero(trace.loss.finite)
    if trace.family == "classification" and trace.labels and len(first):
        found = accumulated_log_classes(float(trace.loss.values[first[0]]), trace.labels)
        if found:
            times, classes = found[0].times, found[0].classes
    for evaluations in trace.evaluations:
        if len(evaluations.loss) < 2 or trace.family in ("reinforcement", "preference"):
            continue
        loss = np.where(trace.loss.known, trace.loss.values, np.nan)
        beside = train_eval(trace.step, loss, evaluations.step, evaluations.loss)
        if beside.factor is not None and beside.factor > 1:
            times = int(beside.factor)
    why = ("the held-out loss", "验证 loss") if not classes else (f"ln {classes}", f"ln {classes}")
    signs.say(
        "loss_times_accumulation", times is not None,
        f"the training loss is about {times} times {why[0]}: gradient accumulation that was not divided by",
        f"训练 loss 约为{why[1]}的 {times} 倍：梯度累积没有被除掉",
        times=times,
    )  # fmt: skip
