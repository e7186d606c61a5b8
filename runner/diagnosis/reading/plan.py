"""What a log lets one infer about its run: the plan, the length of an epoch, what is trained, whether it ended."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.diagnosis.reading.log import Record, numbers
from runner.diagnosis.trace import Family, Tool, Trace

UNPLANNED = 1e6
"""More epochs than this (Trainer's 2 ** 63 - 1) mean that max_steps rules."""

PREFERENCE = re.compile(
    r"(eval_)?(rewards/(chosen|rejected|margins|accuracies)|logps/(chosen|rejected)|logits/(chosen|rejected))"
)
REINFORCEMENT = re.compile(
    r"(reward|reward_std|kl|completion_length|objective/.*|policy/.*|completions/.*|frac_reward_zero_std)"
)
TOKENS = re.compile(
    r"(eval_)?(mean_token_accuracy|num_tokens|token_acc|entropy|perplexity)|eval_(bleu|roug|gen_len|wer|cer).*"
)
CLASSES = re.compile(r"eval_(.*_)?(accuracy|f1|precision|recall|matthews_correlation|mcc|roc_auc|auc)(_.*|-.*)?")


def family_of(records: list[Record], keys: list[str], tool: Tool) -> Family | None:
    """What the run trains, by the names of what it logs; None where they do not tell."""
    filled = [k.removeprefix("train/") for k in keys if any(r.get(k) is not None for r in records)]
    if any(PREFERENCE.fullmatch(k) for k in filled) or (tool == "llamafactory" and "accuracy" in filled):
        return "preference"
    if any(REINFORCEMENT.fullmatch(k) for k in filled):
        return "reinforcement"
    if any(TOKENS.fullmatch(k) for k in filled):
        return (
            "sft"
            if any(re.fullmatch(r"(eval_)?(mean_token_accuracy|num_tokens|token_acc)", k) for k in filled)
            else None
        )
    if tool != "llamafactory" and any(CLASSES.fullmatch(k) for k in filled):
        return "classification"
    return None


def fill_plan(trace: Trace, state: dict[str, Any], records: list[Record], summary: bool) -> None:
    """Fill in max_steps, steps_per_epoch, epochs_planned, logging_steps, ended of `trace`.

    `state` is what the file says beside its records, `summary` whether they end with a training's summary.
    """
    trace.max_steps = _whole(state.get("max_steps")) or _total(records)
    reached = _whole(state.get("global_step")) or _last_step(records)
    at = _number(state.get("epoch"))
    trace.steps_per_epoch = steps_per_epoch(trace.step, trace.epoch, None if trace.steps_counted else (reached, at))
    trace.logging_steps = None
    if not trace.steps_counted:
        trace.logging_steps = usual_spacing(trace.step) or _whole(state.get("logging_steps"))
    planned = _number(state.get("num_train_epochs"))
    trace.epochs_planned = planned if planned is not None and 0 < planned < UNPLANNED else None
    if trace.max_steps and not trace.steps_counted:
        if trace.steps_per_epoch:
            trace.epochs_planned = trace.max_steps / trace.steps_per_epoch
        elif trace.epochs_planned:
            trace.steps_per_epoch = trace.max_steps / trace.epochs_planned
        if reached is not None:
            # LLaMA-Factory's last record may be one step short of the end (gradient accumulation that does not divide).
            short = 1 if trace.tool == "llamafactory" and trace.max_steps >= 1000 else 0
            trace.ended = reached + short >= trace.max_steps
    elif summary:
        trace.ended = True


def _number(value: Any) -> float | None:
    found = numbers([value])
    return float(found.values[0]) if found.finite[0] else None


def _whole(value: Any) -> int | None:
    """`value` where it is a number of at least 1."""
    found = _number(value)
    return int(found) if found is not None and 1 <= found < 2**53 else None


def _total(records: list[Record]) -> int | None:
    """total_steps of LLaMA-Factory, the second part of ms-swift's "601/2161", of the last record that has one."""
    for record in reversed(records):
        both = record.get("global_step/max_steps")
        total = both.partition("/")[2] if isinstance(both, str) else record.get("total_steps")
        if total is not None and (found := _whole(total)):
            return found
    return None


def _last_step(records: list[Record]) -> int | None:
    """The last step that a record without a loss names too."""
    for record in reversed(records):
        both = record.get("global_step/max_steps")
        step = both.partition("/")[0] if isinstance(both, str) else record.get("current_steps", record.get("step"))
        if step is not None and (found := _whole(step)):
            return found
    return None


def usual_spacing(step: NDArray[np.int64]) -> int | None:
    """The distance between most neighbouring points, in steps; None for fewer than three points or no usual one."""
    if step.size < 3:
        return None
    distances, counts = np.unique(np.diff(step), return_counts=True)
    best = int(counts.argmax())
    return int(distances[best]) if counts[best] >= 0.5 * (step.size - 1) else None


def steps_per_epoch(
    step: NDArray[np.int64], epoch: NDArray[np.float64], end: tuple[int | None, float | None] | None = None
) -> float | None:
    """Steps in one epoch, from points that have both, shape (n,); None where they do not tell within 5 %.

    Old versions of transformers round the epoch of a point to two decimals, but not that of `end`, the last step and
    its epoch as trainer_state.json has them. Where the steps of an excerpt do not begin with the run, the slope counts.
    """
    good = np.isfinite(epoch) & (epoch > 0) & (step > 0)
    rounded = bool(np.all(np.abs(epoch[good] * 100 - np.round(epoch[good] * 100)) < 1e-6))
    if end and end[0] and end[1] and end[1] > 0 and (rounded or not good.any()):
        return end[0] / end[1]
    if not good.any():
        return None
    error = 0.005 if rounded else 1e-9
    s, e = step[good].astype(np.float64), epoch[good]
    ends = (e >= 1) & (np.abs(e - np.round(e)) < 1e-9)
    if ends.any() and not rounded:
        # Inside an epoch whose last step has fewer micro-batches, the ratio is below the number of its steps.
        s, e = (s[ends], e[ends]) if s[ends][-1] / e[ends][-1] > 0.9 * s[-1] / e[-1] else (s, e)
    late = e >= 0.5 * e.max()
    ratio = float(np.median(s[late] / e[late]))
    span = float(e[-1] - e[0])
    if s.size >= 2 and span > 0:
        slope = float((s[-1] - s[0]) / span)
        if abs(slope / ratio - 1) > 0.1 + 2 * error / span:
            return slope if slope > 0 and span > 20 * error else None
    return ratio if e.max() > 20 * error else None
