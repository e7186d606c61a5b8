"""Signs that need more than a loss curve: predicted noise, start model, probes, clipping, sources."""

from __future__ import annotations

from typing import Any

import numpy as np

from runner.causes import thresholds as t
from runner.diagnosis.sign import Sign, Signs, short
from runner.diagnosis.signs_shape import sound
from runner.diagnosis.trace import Trace
from runner.runfolder import number
from runner.signals.difficulty import r_squared, slope
from runner.signals.kappa import kappa
from runner.signals.paired import paired_change
from runner.signals.saturation import clipping, clipping_by_norm, logged_after_clipping
from runner.signals.source_bumps import source_bumps
from runner.signals.trend import noise_of

LEAST = 8
"""Points with a known start-model loss from which R^2 is taken."""


def run_signs(trace: Trace, signs: Signs) -> None:
    """kappa_high, kappa_fits, foreseen, not_foreseen, replay_rises, overshoots, lost_updates, second_moment_lags,
    clipped_always, sources_in_blocks, slow_waves; probe_set changes go to `numbers`."""
    _clip(trace, signs)
    _sources(trace, signs)
    if trace.facts is None:
        return
    _kappa(trace, signs)
    _start_model(trace, signs)
    _probes(trace, signs)
    lag = trace.extra.get("rms_t")
    if lag is not None and lag.finite.any():
        values = lag.values[lag.finite]
        # Before the second moment has seen some steps, RMS_t is no measure of a lag.
        late = values[min(len(values) - 1, 20) :]
        share = float(np.mean(late > t.RMS))
        signs.numbers |= {"rms_t_largest": float(late.max()), "rms_t_share": share}
        signs.say(
            "second_moment_lags", share > 0.05,
            f"Adam's second moment lags behind the gradient at {100 * share:.0f} % of the steps (RMS_t up to "
            f"{late.max():.1f})",
            f"{100 * share:.0f} % 的步中 Adam 二阶矩落后于梯度（RMS_t 最高 {late.max():.1f}）",
        )  # fmt: skip


def _kappa(trace: Trace, signs: Signs) -> None:
    assert trace.facts is not None
    sd = number(trace.facts.noise.get("sd_independent"))
    logged = number(trace.facts.noise.get("sd_log"))
    _, loss, _ = sound(trace)
    if sd is None or not sd > 0 or len(loss) < LEAST:
        return
    found = kappa(loss, sd, trace.logging_steps or 1)
    if signs.has("oscillates"):
        # The sentence below says it with the prediction beside it.
        signs.found["oscillates"] = Sign(True)
    signs.numbers |= {"kappa": found.value, "kappa_low": found.low, "kappa_high": found.high, "sd_step": sd}
    if logged is not None:
        signs.numbers["sd_log"] = logged
    signs.say(
        "kappa_high", found.low > t.KAPPA_HIGH,
        f"the loss moves {np.sqrt(found.value):.1f} times as much as drawing rows explains",
        f"loss 的波动是抽样所能解释的 {np.sqrt(found.value):.1f} 倍",
        kappa=found.value,
    )  # fmt: skip
    signs.say(
        "kappa_fits", found.low <= t.KAPPA_HIGH,
        f"the loss moves by +/- {short(found.sd)} per step; drawing these rows predicts +/- {short(sd)}",
        f"loss 每步波动 ±{short(found.sd)}；按这批数据抽样，预期 ±{short(sd)}",
        measured=found.sd, predicted=sd, kappa=found.value,
    )  # fmt: skip


def _start_model(trace: Trace, signs: Signs) -> None:
    base = trace.extra.get("base_loss")
    if base is None:
        return
    both = base.finite & trace.loss.finite
    if both.sum() < LEAST:
        return
    loss, start = trace.loss.values[both], base.values[both]
    share, b = r_squared(loss, start), slope(loss, start)
    if not np.isfinite(share):
        return
    left = loss - b * (start - start.mean())
    smoother = noise_of(loss) / max(noise_of(left), 1e-12)
    tenth = max(3, len(left) // 5)
    first, last = float(np.median(left[:tenth])), float(np.median(left[-tenth:]))
    signs.numbers |= {"r_squared": share, "difficulty_slope": b, "smoother": smoother, "adjusted_first": first,
                      "adjusted_last": last}  # fmt: skip
    # Of few points a high R^2 may be chance: the lower end of its 95 % interval (Fisher's z) has to hold as well.
    surely = np.tanh(np.arctanh(min(np.sqrt(share), 1 - 1e-12)) - 1.645 / np.sqrt(max(int(both.sum()) - 4, 1)))
    signs.numbers |= {"r_squared_points": int(both.sum()), "r_squared_low": max(float(surely), 0.0) ** 2}
    shown = min(99, round(100 * share))
    signs.say(
        "foreseen", share >= t.R_SQUARED and surely**2 >= t.R_SQUARED / 4 and surely > 0,
        f"the untrained model goes up and down in the same places on the same batches: {shown} % of the "
        "movement",
        f"未训练的原模型在同样的 batch 上同样起伏：解释 {shown} % 的波动",
        r_squared=share,
    )  # fmt: skip
    signs.say(
        "not_foreseen", share < t.R_SQUARED / 2,
        f"the untrained model on the same batches explains only {100 * share:.0f} % of the movement",
        f"未训练的原模型在同样的 batch 上只能解释 {100 * share:.0f} % 的波动",
        r_squared=share,
    )  # fmt: skip


def _probes(trace: Trace, signs: Signs) -> None:
    assert trace.facts is not None
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in trace.facts.probes:
        rows.setdefault(str(row.get("probe")), []).append(row)
    pairs = [(number(r.get("before")), number(r.get("after"))) for r in rows.get("replay", [])]
    up = [float(a > b) for b, a in pairs if a is not None and b is not None and np.isfinite(a - b)]
    if len(up) >= 3:
        share = float(np.mean(up))
        signs.numbers |= {"replay_share": share, "replay_points": len(up)}
        # A share of few probes is only high where most of them rise.
        signs.say(
            "replay_rises", share >= t.REPLAY and sum(up) >= 3,
            f"{sum(up):.0f} of {len(up)} updates raised the loss of the very batch they were made from",
            f"{len(up)} 次更新中有 {sum(up):.0f} 次使自己 batch 的 loss 上升",
        )  # fmt: skip
    lengths = [s for r in rows.get("line", []) if (s := number(r.get("s"))) is not None and np.isfinite(s)]
    if len(lengths) >= 3:
        middle = float(np.median(lengths))
        signs.numbers |= {"line_s": middle}
        signs.say(
            "overshoots",
            middle > t.LINE,
            f"the steps are {middle:.1f} times as long as the way to the lowest point ahead",
            f"步长是到最低点距离的 {middle:.1f} 倍",
        )
    shares = [s for r in rows.get("lost_updates", []) if (s := number(r.get("share"))) is not None]
    if shares:
        lost = float(np.median(shares))
        signs.numbers |= {"lost_updates": lost}
        dtype = rows["lost_updates"][-1].get("dtype")
        signs.say(
            "lost_updates",
            lost > t.LOST,
            f"{100 * lost:.0f} % of the updates are rounded away ({dtype} weights)",
            f"{100 * lost:.0f} % 的更新被舍入丢失（{dtype} 权重）",
        )
    sets = rows.get("probe_set", [])
    if len(sets) >= 2:
        before = {i: x for i, x in zip(sets[0].get("row_ids", []), sets[0].get("losses", []), strict=False)}
        after = {i: x for i, x in zip(sets[-1].get("row_ids", []), sets[-1].get("losses", []), strict=False)}
        common = [i for i in before if i in after]
        losses = [[number(d[i]) for i in common] for d in (before, after)]
        a, b = (np.array([np.nan if x is None else x for x in side]) for side in losses)
        change = paired_change(a, b)
        if np.isfinite(change.mean):
            signs.numbers |= {"probe_change": change.mean, "probe_change_se": change.se, "probe_rows": len(common)}
            signs.numbers["probe_held_out"] = bool(sets[-1].get("held_out"))
            if change.learning:
                # The same rows before and after see what the noise of a loss curve hides.
                signs.found["flat"] = Sign(False)


def _clip(trace: Trace, signs: Signs) -> None:
    coefficient = trace.extra.get("clip_coef")
    norms = np.where(trace.grad_norm.known, trace.grad_norm.values, np.nan)
    if coefficient is not None and coefficient.finite.sum() >= 10:
        found = clipping(np.where(coefficient.known, coefficient.values, np.nan))
    elif trace.max_grad_norm and trace.grad_norm.finite.sum() >= 10:
        if logged_after_clipping(norms, trace.max_grad_norm):
            return
        found = clipping_by_norm(norms, trace.max_grad_norm)
    else:
        return
    finite = norms[np.isfinite(norms)]
    middle = float(np.median(finite)) if len(finite) else float("nan")
    signs.numbers |= {"clipped_share": found.share, "median_norm": middle}
    signs.say(
        "clipped_always",
        found.share >= t.CLIPPED,
        f"{100 * found.share:.0f} % of the steps are clipped (median norm {short(middle)}): the clip sets the length "
        "of every update",
        f"{100 * found.share:.0f} % 的步被裁剪（范数中位数 {short(middle)}）：更新长度由裁剪阈值决定",
    )


def _sources(trace: Trace, signs: Signs) -> None:
    if len(trace.sources) < 2 or trace.points < 40:
        return
    tokens = {k: np.where(c.known, c.values, 0.0) for k, c in trace.source_tokens.items()}
    found = source_bumps(np.where(trace.loss.finite, trace.loss.values, np.nan), tokens)
    if not np.isfinite(found.r_squared):
        return
    signs.numbers |= {"source_r_squared": found.r_squared, "source_order_z": found.order_z}
    # The share of a source may follow the loss within single batches too; blocks only where its order is no chance.
    blocks = found.order_z <= -6 and found.order < 1.0
    signs.say(
        "sources_in_blocks",
        blocks,
        f"the source {found.order_source!r} comes in blocks instead of being mixed",
        f"数据源 {found.order_source!r} 成块出现，没有打散",
    )
    signs.say(
        "slow_waves",
        blocks and found.r_squared > 0.3 and found.p < 1e-3,
        f"the slow waves of the loss follow the sources ({100 * found.r_squared:.0f} % of them)",
        f"loss 的缓慢起伏跟随数据源变化（解释其中 {100 * found.r_squared:.0f} %）",
    )
