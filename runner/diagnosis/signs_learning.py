"""Signs of learning and of its rate: fall, chance, held-out loss, learning rate as applied."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runner.causes import thresholds as t
from runner.diagnosis.sign import Sign, Signs, short
from runner.diagnosis.signs_shape import sound
from runner.diagnosis.trace import Trace
from runner.signals.chance import chance_level
from runner.signals.heldout import turn
from runner.signals.schedule import applied
from runner.signals.trend import fall


def learning_signs(trace: Trace, signs: Signs) -> None:
    """falls, flat, at_chance, starts_above_uniform, memorised, eval_rises, eval_falls, rate_*, warmup_swallows."""
    _fall(trace, signs)
    _heldout(trace, signs)
    _rate(trace, signs)


def _fall(trace: Trace, signs: Signs) -> None:
    _, loss, epoch = sound(trace)
    if len(loss) < t.LEAST_POINTS:
        return
    down = fall(loss)
    signs.numbers |= {"first": down.first, "last": down.last, "fall_relative": down.relative, "fall_z": down.z}
    falls = down.z >= t.FALL_Z and down.relative >= t.FALL
    signs.say(
        "falls", falls,
        f"the loss falls from {short(down.first)} to {short(down.last)}",
        f"loss 从 {short(down.first)} 降到 {short(down.last)}",
        first=down.first, last=down.last, z=down.z,
    )  # fmt: skip
    classifier = trace.family == "classification"
    # Where nobody says that it is a classifier, a language model's loss may pass by ln K: it has to lie still there.
    still = signs.numbers.get("noise_relative", 1.0) < t.STILL and abs(down.relative) < t.STILL_FALL
    k = None
    if classifier or (trace.family != "sft" and still):
        k = chance_level(loss, trace.labels if classifier else None, t.CHANCE if classifier else t.CHANCE / 2)
    evaluated = [e.loss for e in trace.evaluations if len(e.loss)]
    eval_moves = any(np.isfinite(e).sum() >= 2 and 1 - np.nanmin(e) / e[0] > 0.05 for e in evaluated if e[0] > 0)
    stays = k is not None and abs(down.relative) < 0.08 and not eval_moves and len(loss) >= t.FLAT_POINTS
    signs.say(
        "at_chance", stays,
        f"the loss stays at {short(down.last)}, where guessing among {k} classes puts it (ln {k} = "
        f"{np.log(k or 1):.4f})",
        f"loss 停在 {short(down.last)}，等于在 {k} 类中随机猜测（ln {k} = {np.log(k or 1):.4f}）",
        classes=k,
    )  # fmt: skip
    flat = len(loss) >= t.FLAT_POINTS and down.z < t.FALL_Z and down.relative < 0.02 and not eval_moves
    late = np.isfinite(down.late_z) and down.late_z > 2
    signs.say(
        "flat",
        flat and not late and not signs.has("diverges"),
        f"the loss does not move: {short(down.first)} at the start, {short(down.last)} at the end",
        f"loss 没有变化：开始 {short(down.first)}，结束 {short(down.last)}",
    )
    language = trace.family in (None, "sft")
    signs.say(
        "starts_above_uniform", bool(language and down.last > 3.0 and t.UNIFORM < down.first < 1000 * down.last
                                     and down.first < 40 and trace.family != "classification"),
        f"it starts at {short(down.first)} nats per token, worse than guessing among all words, and ends at "
        f"{short(down.last)}",
        f"开始时每 token {short(down.first)} nat，比在全词表中随机猜测还差，结束时 {short(down.last)}",
    )  # fmt: skip
    passed = float(np.nanmax(epoch)) if np.isfinite(epoch).any() else float("nan")
    best = min((float(np.nanmin(e)) for e in evaluated if np.isfinite(e).any()), default=None)
    by_heart = (
        best is None
        and down.first > 0
        and down.last / down.first <= t.MEMORISED
        and np.isfinite(passed)
        and passed >= t.MEMORISED_EPOCHS
        and trace.family != "reinforcement"
    )
    signs.say(
        "memorised", by_heart if best is None else None,
        f"the training loss reaches {short(down.last)} after {passed:.0f} epochs: the rows are known by heart",
        f"{passed:.0f} 个 epoch 后训练 loss 为 {short(down.last)}：数据已被背下来",
        epochs=passed,
    )  # fmt: skip


def _heldout(trace: Trace, signs: Signs) -> None:
    for evaluations in trace.evaluations:
        finite = np.isfinite(evaluations.loss)
        if finite.any():
            _gap(trace, signs, evaluations.loss[finite], _name(evaluations.name))
    turns = [(e, found) for e in trace.evaluations if (found := turn(e.loss)) is not None]
    if not turns:
        signs.found.setdefault("eval_rises", Sign(None))
        signs.say("eval_falls", None)
        return
    worst, found = max(turns, key=lambda item: item[1].relative - 2 * item[1].noise)
    finite = np.isfinite(worst.loss)
    at = int(worst.step[finite][found.best_at])
    name = _name(worst.name)
    training_up = signs.has("diverges")
    rises = found.relative >= max(t.OVERFIT, 1.5 * found.noise) and int(finite.sum()) - found.best_at > 1
    signs.numbers |= {"eval_best": found.best, "eval_best_step": at, "eval_end": found.end, "eval_rise": found.relative}
    if rises or not signs.has("eval_rises"):
        signs.say(
            "eval_rises", rises and not training_up and signs.has("falls"),
            f"{name} was best at step {at} ({short(found.best)}) and rises to {short(found.end)} "
            f"(+{100 * found.relative:.0f} %) while the training loss falls",
            f"{name} 在第 {at} 步最好（{short(found.best)}），之后升到 {short(found.end)}"
            f"（+{100 * found.relative:.0f} %），而训练 loss 仍在下降",
            [at], best=found.best, end=found.end,
        )  # fmt: skip
    first = float(worst.loss[finite][0])
    fell = 1 - found.best / first if first > 0 else 0.0
    signs.say(
        "eval_falls", fell > max(0.01, found.noise) and not rises,
        f"{name} falls from {short(first)} to {short(found.best)}",
        f"{name} 从 {short(first)} 降到 {short(found.best)}",
        first=first, best=found.best,
    )  # fmt: skip


def _name(held_out: str) -> str:
    return f"eval_{held_out}_loss" if held_out else "eval_loss"


def _gap(trace: Trace, signs: Signs, evaluated: NDArray[np.float64], name: str) -> None:
    """A held-out loss far above a low training loss, where there are too few evaluations to see it turn."""
    _, loss, _ = sound(trace)
    if len(loss) < t.LEAST_POINTS or len(evaluated) > 3:
        return
    train, held_out = float(np.median(loss[-max(3, len(loss) // 4) :])), float(evaluated[-1])
    signs.say(
        "eval_rises", 0 < train < t.MEMORISED * 2 and held_out > t.GAP * train,
        f"{name} is {short(held_out)}, {held_out / train if train > 0 else 0:.0f} times the training loss "
        f"({short(train)})",
        f"{name} 为 {short(held_out)}，是训练 loss（{short(train)}）的 {held_out / train if train > 0 else 0:.0f} 倍",
        train=train, held_out=held_out,
    )  # fmt: skip


def _rate(trace: Trace, signs: Signs) -> None:
    rate = trace.learning_rate
    points = int(rate.finite.sum())
    if points < 2:
        for name in ("rate_zero", "rate_hot", "warmup_swallows", "rate_restarts"):
            signs.say(name, None)
        return
    steps, rates = trace.step[rate.finite], rate.values[rate.finite]
    seen = applied(rates, steps, trace.max_steps)
    signs.numbers |= {"rate_peak": seen.peak, "rate_integral": seen.integral, "warmup_share": seen.warmup}
    signs.say(
        # A loss that falls refutes it: such a log rounds small rates to 0.
        "rate_zero",
        seen.zero_throughout and points >= 3 and not signs.has("falls"),
        f"the learning rate is 0 at all {points} points: no weight moves",
        f"{points} 个点的学习率都是 0：权重不会变化",
    )
    hot = bool(np.isfinite(seen.peak) and seen.peak >= t.RATE_TOO_HIGH and not seen.zero_throughout)
    if trace.facts is not None:
        hot = _against_default(trace, seen.peak) > t.RATE_HIGH
    signs.say(
        "rate_hot", hot,
        f"the learning rate reaches {seen.peak:.2g}, above what fine-tuning of pretrained models takes",
        f"学习率达到 {seen.peak:.2g}，高于微调预训练模型的常用范围",
        peak=seen.peak,
    )  # fmt: skip
    known_end = trace.max_steps is not None and points >= 5
    near_end = trace.max_steps is not None and len(steps) and steps[-1] >= 0.8 * trace.max_steps
    signs.say(
        "warmup_swallows", bool(known_end and near_end and seen.still_rising and not seen.constant),
        f"the learning rate still rises at step {steps[-1]} of {trace.max_steps}: the warm-up takes the whole run",
        f"到第 {steps[-1]} 步（共 {trace.max_steps} 步）学习率仍在上升：warmup 占满了整个训练",
        share=seen.warmup,
    )  # fmt: skip
    signs.say("rate_restarts", len(seen.restarts) >= 2)
    low = None
    if trace.facts is not None and np.isfinite(seen.peak):
        share = _against_default(trace, seen.peak)
        low = share < t.RATE_LOW and not seen.zero_throughout
        lora = trace.facts.config.get("lora", {}).get("method", "none") == "lora"
        usual = seen.peak / share if share > 0 else float("nan")
        signs.numbers |= {"rate_default": usual}
        signs.say(
            "rate_low", low,
            f"the learning rate {seen.peak:.2g} is {usual / max(seen.peak, 1e-30):.0f} times below the default of this "
            f"method here ({usual:.2g}{', LoRA' if lora else ''})",
            f"学习率 {seen.peak:.2g} 比此方法的默认值（{usual:.2g}{'，LoRA' if lora else ''}）低 "
            f"{usual / max(seen.peak, 1e-30):.0f} 倍",
            share=share, usual=usual,
        )  # fmt: skip
        return
    signs.say("rate_low", low)


def _against_default(trace: Trace, peak: float) -> float:
    """Peak rate / the default of the method for this model's width; 1 where that is unknown."""
    facts = trace.facts
    if facts is None:
        return 1.0
    usual = facts.summary.get("default_learning_rate") or facts.run.get("default_learning_rate")
    return float(peak) / float(usual) if usual else 1.0
