"""Signs in the shape of the training loss: rises, spikes, noise, periods, stairs, resumes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runner.causes import thresholds as t
from runner.config.schema.batch import MEGA
from runner.diagnosis.sign import Signs, short
from runner.diagnosis.trace import Trace
from runner.signals.level import NO_RISE, above_start, climb, step_up
from runner.signals.period import Period, detrended, fishers_g, named_periods
from runner.signals.resume import jumps
from runner.signals.spikes import bursts, spikes
from runner.signals.spread import noise_growth
from runner.signals.staircase import ramp_share, staircase
from runner.signals.trend import noise_of
from runner.signals.whiteness import von_neumann


def sound(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """(step, loss, epoch) of the points whose loss is a number that the log did not put in place of a NaN."""
    kept = trace.loss.finite & ~np.isin(trace.step, trace.marks.get("skipped", []))
    zero = np.abs(np.where(trace.loss.finite, trace.loss.values, 1.0)) < 1e-12
    hidden = zero & (trace.grad_norm.broken | ~trace.grad_norm.known)
    kept &= ~hidden
    # Beyond this, squares overflow; nothing is learnt from how much beyond.
    return trace.step[kept], np.clip(trace.loss.values[kept], -1e100, 1e100), trace.epoch[kept]


def shape_signs(trace: Trace, signs: Signs) -> None:
    """level_rises, rise_stays, ends_above_start, rises_before_nan, norm_rises_too, spikes, bursts, norm_spikes,
    noise_grows, periodic, period_is_epoch, period_is_rate, staircase, resume_jump, oscillates."""
    step, loss, epoch = sound(trace)
    if len(loss) < t.LEAST_POINTS:
        return
    level = float(np.median(loss[-max(3, len(loss) // 4) :]))
    sd = noise_of(loss[len(loss) // 3 :])
    signs.numbers |= {"noise_sd": sd, "noise_relative": sd / abs(level) if level else float("nan"), "level": level}
    _stairs(trace, signs, loss, epoch)
    _rises(trace, signs, step, loss)
    _spikes(trace, signs, step, loss)
    _noise(signs, loss)
    _periods(trace, signs, step, loss, epoch)
    _resumes(trace, signs, step, loss)
    moves = signs.numbers["noise_relative"]
    signs.say(
        "oscillates", bool(moves >= t.OSCILLATES) if np.isfinite(moves) else None,
        f"the loss moves by +/- {short(sd)} from point to point ({100 * moves:.0f} % of its level)",
        f"loss 逐点波动 ±{short(sd)}（约为其水平的 {100 * moves:.0f} %）",
        sd=sd,
    )  # fmt: skip


def _rises(trace: Trace, signs: Signs, step: NDArray[np.int64], loss: NDArray[np.float64]) -> None:
    sudden, slow = step_up(loss), climb(loss)
    found = None
    least = t.RISE_OF_START * abs(float(np.median(loss[:3])))
    slow, sudden = (r if r.high - r.low >= least else NO_RISE for r in (slow, sudden))
    if (
        slow.z >= t.CLIMB_Z
        and max(slow.unusual / t.UNUSUAL, slow.in_sd / t.FAR_SD) >= 1
        and slow.in_sd >= t.STEP_SD
        and slow.relative >= t.RISE
    ):
        found = slow
    clear = sudden.unusual >= t.UNUSUAL or sudden.in_sd >= t.FAR_SD
    if sudden.z >= t.STEP_Z and sudden.in_sd >= t.STEP_SD and sudden.relative >= t.RISE and clear:
        found = sudden if found is None or sudden.z > found.z else found
    signs.numbers |= {"rise_z": max(sudden.z, slow.z), "rise_relative": found.relative if found else 0.0}
    ratio, error = above_start(loss)
    above = ratio > max(t.ABOVE_START, t.ABOVE_START_Z * error)
    if found is None:
        signs.say("level_rises", False)
        signs.say("rise_stays", False)
        signs.say("diverges", above)
    else:
        at, stays = int(step[found.at]), found.kept >= t.KEPT
        signs.say(
            "level_rises", True,
            f"the loss rises from {short(found.low)} to {short(found.high)} at step {at} "
            f"(+{short(100 * found.relative)} %)" + ("" if stays else ", and comes back down"),
            f"loss 在第 {at} 步附近从 {short(found.low)} 升到 {short(found.high)}（+{short(100 * found.relative)} %）"
            + ("" if stays else "，之后回落"),
            [at], low=found.low, high=found.high, in_sd=found.in_sd, z=found.z, kept=found.kept,
        )  # fmt: skip
        signs.say("rise_stays", stays)
        middle = (found.low + found.high) / 2
        high_share = float(np.mean(loss[found.at :] > middle)) * (1 - found.at / len(loss))
        lasts = found.relative >= t.DOUBLES and high_share >= t.LONG
        signs.say("diverges", above or lasts or (stays and found.relative >= t.DIVERGES))
    start, end = float(np.median(loss[:3])), float(np.median(loss[-max(3, len(loss) // 4) :]))
    start = min(start, float(loss[0]))
    signs.say(
        "ends_above_start", above,
        f"it ends at {short(end)}, above its start at {short(start)}",
        f"结束时 {short(end)}，高于开始时的 {short(start)}",
        start=start, end=end,
    )  # fmt: skip
    _before_nan(trace, signs, step, loss, start)
    norm = trace.grad_norm
    if found is None and not above:
        signs.say("norm_rises_too", None)
        return
    finite = norm.finite
    if finite.sum() < 6:
        signs.say("norm_rises_too", None)
        return
    near = int(step[found.at]) if found is not None else int(step[len(step) // 8])
    window = norm.values[finite & (np.abs(trace.step - near) <= max(3, 0.15 * (step[-1] - step[0])))]
    factor = float(window.max() / np.median(norm.values[finite])) if len(window) else 0.0
    signs.say(
        "norm_rises_too", factor > 5,
        f"the gradient norm reaches {factor:.0f} times its median around that step",
        f"此处梯度范数达到中位数的 {factor:.0f} 倍",
        factor=factor,
    )  # fmt: skip


def _before_nan(trace: Trace, signs: Signs, step: NDArray[np.int64], loss: NDArray[np.float64], start: float) -> None:
    """Did the loss climb before the first value that is no number?"""
    bad = trace.loss.broken | trace.grad_norm.broken
    later = trace.step[bad]
    early = max(10, 0.02 * len(step))
    later = later[later > (step[int(min(early, len(step) - 1))] if len(step) else 0)] if len(step) > 20 else later
    if not len(later):
        signs.say("rises_before_nan", None if not bad.any() else False)
        return
    before = loss[step < later[0]]
    rose = len(before) >= 3 and start > 0 and float(before[-3:].max()) > 1.5 * float(np.median(before[:3]))
    signs.say(
        "rises_before_nan", bool(rose),
        f"the loss had already risen to {short(float(before[-3:].max()) if len(before) else 0)} before the first value "
        f"that is no number (step {later[0]})",
        f"在首个非有限值（第 {later[0]} 步）之前 loss 已升到 {short(float(before[-3:].max()) if len(before) else 0)}",
        [later[0]],
    )  # fmt: skip


def _spikes(trace: Trace, signs: Signs, step: NDArray[np.int64], loss: NDArray[np.float64]) -> None:
    high = spikes(loss, t.SPIKE_Z, t.SPIKE_RATIO)
    i = int(np.argmax(high.z)) if len(high.at) else 0
    top, peak = (high.at[i], high.ratio[i]) if len(high.at) else (0, 0.0)
    signs.say(
        "spikes", bool(len(high.at)),
        f"{len(high.at)} loss spike(s), the largest {short(float(loss[top]))} at step {step[top]} ({peak:.1f} times "
        "the level)",
        f"{len(high.at)} 个 loss 尖峰，最大在第 {step[top]} 步：{short(float(loss[top]))}（{peak:.1f} 倍）",
        step[high.at], count=len(high.at),
    )  # fmt: skip
    rows = bursts(loss, t.BURST_Z)
    where = ", ".join(str(step[r]) for r in rows[:4])
    signs.say(
        "bursts", bool(len(rows)),
        f"several points in a row far above the level (from step {where})",
        f"连续多个点远高于水平（自第 {where} 步起）",
        step[rows], count=len(rows),
    )  # fmt: skip
    norm = trace.grad_norm
    finite = np.flatnonzero(norm.finite & (norm.values > 0))
    if len(finite) < t.LEAST_POINTS:
        signs.say("norm_spikes", None)
        return
    values = norm.values[finite]
    third = len(values) // 3
    growth = float(np.median(values[-third:]) / np.median(values[:third]))
    typical = float(np.median(values))
    grows = growth >= t.NORM_EXPLODES
    signs.say(
        "norm_explodes", grows or typical >= t.NORM_ABSURD,
        f"the gradient norm grows {growth:,.0f} times from the first third of the run to the last"
        if grows else f"the gradient norm is {typical:.1e}, far beyond any sound one",
        f"梯度范数从前三分之一到后三分之一增大 {growth:,.0f} 倍"
        if grows else f"梯度范数为 {typical:.1e}，远超正常范围",
        factor=growth,
    )  # fmt: skip
    ratio = values / np.median(values)
    # The first points of a run are high, and a clip catches single ones: only what is far beyond both counts.
    first = max(1, int(0.05 * len(values)))
    found = np.flatnonzero((ratio >= t.NORM_SPIKE) & (np.arange(len(values)) >= first))
    largest = float(ratio[found].max()) if len(found) else 0.0
    at = finite[found]
    signs.say(
        "norm_spikes", bool(len(found)),
        f"the gradient norm jumps to {largest:,.0f} times its median (step {', '.join(map(str, trace.step[at[:4]]))})",
        f"梯度范数跳到中位数的 {largest:,.0f} 倍（第 {', '.join(map(str, trace.step[at[:4]]))} 步）",
        trace.step[at], count=len(found), largest=largest,
    )  # fmt: skip


def _noise(signs: Signs, loss: NDArray[np.float64]) -> None:
    grown = noise_growth(loss)
    if not np.isfinite(grown.factor):
        signs.say("noise_grows", None)
        return
    signs.numbers |= {"noise_factor": grown.factor}
    present = min(grown.factor, grown.relative) >= t.NOISE_FACTOR and grown.z >= t.NOISE_Z
    signs.say(
        "noise_grows", present and not signs.has("staircase"),
        f"the noise grows {grown.factor:.1f} times, from +/- {short(grown.before)} in the first half to "
        f"+/- {short(grown.after)} in the second",
        f"噪声增大到 {grown.factor:.1f} 倍：前半段 ±{short(grown.before)}，后半段 ±{short(grown.after)}",
        factor=grown.factor, z=grown.z,
    )  # fmt: skip


def _periods(
    trace: Trace, signs: Signs, step: NDArray[np.int64], loss: NDArray[np.float64], epochs: NDArray[np.float64]
) -> None:
    if len(loss) < 20:
        return
    left = detrended(loss)
    spacing = float(np.median(np.diff(step))) if len(step) > 1 else 1.0
    found = {n: p for n, p in named_periods(left, periods(trace), spacing).items()
             if p.found and p.amplitude >= t.PERIOD_SD}  # fmt: skip
    loudest, white = fishers_g(left), von_neumann(left)
    signs.numbers |= {"von_neumann": white.ratio, "von_neumann_z": white.z}
    if not found and loudest.p < t.PERIOD_P and loudest.g >= t.PERIOD_SHARE:
        # A period that nothing in the run has: worth a number, no alarm.
        signs.numbers |= {"unnamed_period": loudest.period * spacing, "fisher_g": loudest.g}
    epoch = any(n == "epoch" for n in found)
    rate = any(n == "scheduler cycle" for n in found)
    ramp = ramp_share(left, epochs) if epoch else float("nan")
    few = found["epoch"].period < t.FEW_PER_EPOCH if epoch else False
    stairs = few and signs.numbers.get("stair_kept", 0.0) >= t.STAIRS_ONLY
    explained = epoch and signs.has("staircase") and (stairs or not ramp < t.RAMP)
    name, period = next(iter(found.items()), ("", Period(0.0, 0.0, 0.0, 1.0, 1.0, 0.0)))
    words = {
        "epoch": "一个 epoch",
        "scheduler cycle": "学习率周期",
        "evaluation interval": "评估间隔",
        "length block": "按长度分组的块",
        "save interval": "保存间隔",
    }
    length = period.period * spacing
    signs.numbers |= {f"period_{n}".replace(" ", "_"): p.period * spacing for n, p in found.items()}
    signs.say(
        "periodic", bool(found) and not explained,
        f"the loss swings with a period of {length:.4g} steps" + (f" (one {name})" if name else "")
        + f", {period.amplitude:.1f} times the noise",
        f"loss 以 {length:.4g} 步为周期摆动" + (f"（{words.get(name, name)}）" if name else "")
        + f"，幅度为噪声的 {period.amplitude:.1f} 倍",
        period=length, amplitude=period.amplitude,
    )  # fmt: skip
    signs.say("period_is_epoch", epoch)
    signs.say("period_is_rate", rate)
    signs.say("period_is_length", "length block" in found)


def periods(trace: Trace) -> dict[str, float]:
    """Lengths in steps that something in the run repeats with: epoch, evaluation interval, scheduler cycle."""
    known: dict[str, float] = {}
    if trace.steps_per_epoch:
        known["epoch"] = float(trace.steps_per_epoch)
    for evaluations in trace.evaluations[:1]:
        gaps = np.diff(evaluations.step)
        if len(gaps) >= 3 and np.median(gaps) > 0:
            known["evaluation interval"] = float(np.median(gaps))
    if trace.facts is not None:
        config = trace.facts.config
        if config.get("batch", {}).get("sampler") == "length_grouped":
            known["length block"] = float(MEGA)
        saves = config.get("checkpoint", {}).get("save_steps")
        if saves:
            known["save interval"] = float(saves)
    rate = trace.learning_rate
    kept = rate.finite
    if kept.sum() >= 20:
        turns = np.diff(np.sign(np.diff(rate.values[kept])))
        tops = trace.step[kept][1:-1][turns < 0]
        if len(tops) >= 3:
            known["scheduler cycle"] = float(np.median(np.diff(tops)))
    return known


def _stairs(trace: Trace, signs: Signs, loss: NDArray[np.float64], epoch: NDArray[np.float64]) -> None:
    found = staircase(loss, epoch)
    if found is None:
        signs.say("staircase", None)
        return
    signs.numbers |= {"stair_drop": found.drop, "stair_z": found.z, "stair_kept": found.kept}
    most = found.falling > found.boundaries / 2
    signs.say(
        "staircase", found.z >= t.STAIR_Z and found.drop >= t.STAIR_DROP and most
        and found.kept >= t.STAIR_KEPT,
        f"the loss drops by {100 * found.drop:.0f} % at the end of an epoch ({found.falling} of {found.boundaries})",
        f"每过一个 epoch loss 下降 {100 * found.drop:.0f} %（{found.boundaries} 处中有 {found.falling} 处）",
        drop=found.drop, boundaries=found.boundaries,
    )  # fmt: skip


def _resumes(trace: Trace, signs: Signs, step: NDArray[np.int64], loss: NDArray[np.float64]) -> None:
    places = [int(np.searchsorted(step, r.step)) for r in trace.restarts]
    found = [j for j in jumps(loss, places) if np.isfinite(j.z) and j.z >= t.RESUME_Z] if places else []
    worst = max(found, key=lambda j: j.z, default=None)
    at, height = (int(step[min(worst.point, len(step) - 1)]), short(worst.jump)) if worst is not None else (0, "")
    signs.say(
        "resume_jump", bool(found),
        f"the loss jumps by {height} where the run was resumed (step {at})",
        f"恢复训练处（第 {at} 步）loss 跳升 {height}",
        [at],
    )  # fmt: skip
