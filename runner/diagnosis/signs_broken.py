"""Signs in values that are no numbers: NaN, infinite, exactly 0, exactly ln K, frozen."""

from __future__ import annotations

import numpy as np

from runner.causes.thresholds import ISOLATED, ISOLATED_SHARE
from runner.diagnosis.sign import Signs, short
from runner.diagnosis.trace import Trace
from runner.signals.hidden_nan import at_log_classes, constant_norm, nan_inside_window, non_finite, zero_loss
from runner.signals.skips import loss_scale, skips
from runner.text import Text

HARMLESS = Text(
    " and the loss goes on: the fp16 loss scale skipped those steps", "，loss 未受影响：fp16 的 loss scale 跳过了这些步"
)
"""What an isolated overflow is called unless the loss has blown up."""


def broken_signs(trace: Trace, signs: Signs) -> None:
    """nan_loss, hidden_nan, broken_from_start, finite_before_nan, frozen_norm, nan_norm, isolated_nan_norm,
    zero_loss_zero_norm, zero_norm, log_classes_zero_norm, eval_nan, fp16, skips_later, scale_exhausted."""
    loss, norm, step = trace.loss, trace.grad_norm, trace.step
    learning_by_reward = trace.family == "reinforcement"
    skipped = np.isin(step, trace.marks.get("skipped", []))
    zeros = zero_loss(loss.values, norm.values, loss.known, norm.known)
    hidden = np.zeros(len(step), dtype=bool)
    if not learning_by_reward:
        hidden[zeros.hidden] = True
        fell_to_zero = np.isfinite(zeros.before) and zeros.before < 0.05
        if len(zeros.no_norm) and zeros.to_the_end and not fell_to_zero:
            hidden[zeros.no_norm] = True
        if zeros.to_the_end and np.isfinite(zeros.before) and not fell_to_zero:
            # Cross-entropy is never exactly 0: after a loss of this size it is a NaN behind the filter.
            hidden[zeros.zero_norm] = hidden[zeros.other] = True
    at = np.flatnonzero(hidden)
    frozen = None if learning_by_reward else constant_norm(norm.values, loss.values, norm.known, loss.known)
    reached = loss.broken & ~skipped
    bad = reached | hidden
    kinds = non_finite(np.where(skipped, 0.0, loss.values), loss.known & ~skipped, hidden & ~skipped)
    lasting = kinds.total > 0 and (not kinds.recovers or kinds.share > ISOLATED_SHARE)
    signs.numbers["non_finite_losses"] = int(loss.broken.sum())
    signs.numbers["non_finite_norms"] = int(norm.broken.sum())
    first = int(step[np.argmax(bad)]) if bad.any() else None
    shown = np.flatnonzero(reached)
    signs.say(
        "nan_loss", bool(len(shown)),
        f"the loss is {_what(loss.values[shown])} at {len(shown)} of {trace.points} points, first at step "
        f"{step[shown[0]] if len(shown) else 0}",
        f"loss 在 {trace.points} 个记录点中有 {len(shown)} 个为 {_what(loss.values[shown])}，首次在第 "
        f"{step[shown[0]] if len(shown) else 0} 步",
        step[shown], count=len(shown), lasting=lasting,
    )  # fmt: skip
    signs.say("nan_lasts", lasting)
    norms = norm.values[at] if len(at) else np.zeros(0)
    beside = "" if not len(at) or not norm.known[at[0]] else f", grad_norm {short(float(norms[0]))}"
    signs.say(
        "hidden_nan", bool(len(at)),
        f"step {first}: loss 0.0{beside}: the loss is NaN, and the Trainer's NaN filter prints it as 0.0 "
        f"({len(at)} points)",
        f"第 {first} 步 loss 0.0{beside}：真实 loss 是 NaN，被 Trainer 的 NaN 过滤器显示成 0.0（{len(at)} 个点）",
        step[at], count=len(at), first=first,
    )  # fmt: skip
    known = np.flatnonzero(loss.known)
    bad_norm = norm.broken & ~np.isin(step, trace.marks.get("loss_scale_overflow", []))
    start_bad = len(known) > 0 and bool(bad[known[0]])
    any_nan = bool(bad.any()) or (bool(bad_norm.any()) and len(known) <= 3)
    signs.say(
        "broken_from_start", start_bad if any_nan else False,
        f"it is so from the first point on (step {step[known[0]] if len(known) else 0})",
        f"从第一个记录点（第 {step[known[0]] if len(known) else 0} 步）起就是如此",
        count=int(bad.sum()),
    )  # fmt: skip
    before = known[: int(np.argmax(bad[known]))] if len(known) and bad.any() else np.zeros(0, dtype=int)
    inside = nan_inside_window(loss.values, norm.values, loss.known, norm.known)
    en = f"finite losses up to step {step[before[-1]]}" if len(before) else ""
    zh = f"直到第 {step[before[-1]]} 步 loss 都是有限值" if len(before) else ""
    if inside is not None and en:
        en += ", the last of them with a NaN gradient: the backward pass broke first"
        zh += "，最后一步的梯度已是 NaN：先坏在反向传播"
    signs.say("finite_before_nan", bool(bad.any()) and len(before) > 0, en, zh, step[before[-1:]])
    signs.say(
        "frozen_norm", frozen is not None,
        "" if frozen is None else
        f"grad_norm stays at {frozen.value:.6g} = sqrt({frozen.k}) for {frozen.points} points: {frozen.k} parameter "
        "group(s) whose norm is NaN, as DeepSpeed writes it",
        "" if frozen is None else
        f"grad_norm 在 {frozen.points} 个点上固定为 {frozen.value:.6g} = sqrt({frozen.k})：DeepSpeed 对 {frozen.k} "
        "个参数组的 NaN 范数的写法",
        () if frozen is None else step[[frozen.first, frozen.last]],
    )  # fmt: skip
    _norms(trace, signs, bad, bad_norm)
    supervised = zeros.zero_norm
    share = len(supervised) / max(trace.points, 1)
    signs.say(
        "zero_loss_zero_norm", not learning_by_reward and share > 0.9 and trace.points >= 2,
        f"loss and grad_norm are exactly 0 at {len(supervised)} of {trace.points} points: no token is supervised",
        f"{trace.points} 个点中有 {len(supervised)} 个 loss 与 grad_norm 恰为 0：没有任何 token 参与监督",
        step[supervised], count=len(supervised),
    )  # fmt: skip
    _guarded(trace, signs)
    _dead(trace, signs)
    _evaluations(trace, signs)
    _half(trace, signs)


def _norms(trace: Trace, signs: Signs, bad: np.ndarray, bad_norm: np.ndarray) -> None:
    """Norms that are not finite while the loss is."""
    step, norm = trace.step, trace.grad_norm
    alone = bad_norm & ~bad & ~np.isin(step, trace.marks.get("skipped", []))
    known = np.flatnonzero(norm.known)
    at = np.flatnonzero(alone)
    recovers = bool(len(at)) and bool(len(known)) and at[-1] < known[-1]
    few = len(at) <= max(ISOLATED, int(ISOLATED_SHARE * len(known)))
    # The search for the loss scale: a row of overflows at the very start.
    start_up = bool(len(at)) and at[-1] < max(10, 0.1 * len(known))
    harmless = recovers and (few or start_up) and not bad.any() and len(known) - at[-1] > 1 if len(at) else False
    value = float(norm.values[at[0]]) if len(at) else 0.0
    where = ", ".join(str(s) for s in step[at[:4]])
    signs.say(
        "isolated_nan_norm", bool(harmless),
        f"grad_norm is {short(value)} at {len(at)} point(s) (step {where}){HARMLESS.en}",
        f"grad_norm 在 {len(at)} 个点（第 {where} 步）为 {short(value)}{HARMLESS.zh}",
        step[at], count=len(at),
    )  # fmt: skip
    signs.say(
        "nan_norm", bool(len(at)) and not harmless,
        f"grad_norm is {short(value)} at {len(at)} of {len(known)} points while the loss is finite, first at step "
        f"{step[at[0]] if len(at) else 0}",
        f"loss 有限而 grad_norm 在 {len(known)} 个点中有 {len(at)} 个为 {short(value)}，首次在第 "
        f"{step[at[0]] if len(at) else 0} 步",
        step[at], count=len(at),
    )  # fmt: skip


def _guarded(trace: Trace, signs: Signs) -> None:
    """Steps that the guard kept from the model."""
    if trace.facts is None:
        return
    overflow = set(trace.marks.get("loss_scale_overflow", []))
    kept_away = sorted((set(trace.marks.get("skipped", [])) | set(trace.marks.get("rollbacks", []))) - overflow)
    back = len(trace.marks.get("rollbacks", []))
    first = kept_away[0] if kept_away else 0
    signs.say(
        "guard_acted", bool(kept_away),
        f"the guard kept {len(kept_away)} step(s) from the model ({back} roll-back(s)), the first at step {first}",
        f"guard 拦下了 {len(kept_away)} 步（回滚 {back} 次），首次在第 {first} 步",
        kept_away, count=len(kept_away), rollbacks=back,
    )  # fmt: skip


def _dead(trace: Trace, signs: Signs) -> None:
    """A gradient that is exactly 0, with a loss that is not."""
    loss, norm, step = trace.loss, trace.grad_norm, trace.step
    finite = loss.finite & norm.finite
    zero = finite & (np.abs(norm.values) < 1e-12) & (np.abs(np.nan_to_num(loss.values)) > 1e-12)
    all_zero = finite.sum() >= 2 and zero.sum() > 0.9 * finite.sum() and trace.family != "reinforcement"
    exact = at_log_classes(
        loss.values, norm.values, loss.known, norm.known, least=2, classes=trace.labels if trace.labels else None
    )
    dead = bool(all_zero) and exact is not None and exact.zero_norm and exact.classes <= 100
    # A preference loss starts at ln 2 whatever the model: there it only says that nothing moves.
    dead = dead and trace.family != "preference"
    at = np.flatnonzero(zero)
    k = exact.classes if exact is not None else 0
    level = float(np.median(loss.values[at])) if len(at) else float("nan")
    signs.say(
        "log_classes_zero_norm", dead,
        f"loss {level:.4f} = ln {k} and grad_norm 0.0 at {len(at)} points: all classes score the same and no "
        "parameter receives a gradient",
        f"{len(at)} 个点 loss {level:.4f} = ln {k} 且 grad_norm 0.0：所有 logits 相同，没有任何参数收到梯度",
        step[at], classes=k,
    )  # fmt: skip
    signs.say(
        "zero_norm", bool(all_zero) and not dead,
        f"grad_norm is exactly 0 at {len(at)} of {int(finite.sum())} points while the loss is {short(level)}",
        f"{int(finite.sum())} 个点中有 {len(at)} 个 grad_norm 恰为 0，而 loss 为 {short(level)}",
        step[at], count=len(at),
    )  # fmt: skip


def _evaluations(trace: Trace, signs: Signs) -> None:
    bad = [(e, int((~np.isfinite(e.loss)).sum())) for e in trace.evaluations]
    worst = max(bad, key=lambda item: item[1], default=(None, 0))
    found, count = worst
    if found is None or not count:
        signs.say("eval_nan", False if trace.evaluations else None)
        return
    first = int(found.step[np.argmax(~np.isfinite(found.loss))])
    of_all = len(found.loss)
    # Where the training loss is NaN too, the held-out one says nothing of its own.
    alone = not signs.has("nan_loss", "hidden_nan")
    signs.say(
        "eval_nan", alone,
        f"eval_loss is not finite at {count} of {of_all} evaluations (first at step {first}) although the training "
        "loss is",
        f"{of_all} 次评估中有 {count} 次 eval_loss 不是有限值（首次在第 {first} 步），而训练 loss 正常",
        [first], count=count, evaluations=of_all,
    )  # fmt: skip


def _half(trace: Trace, signs: Signs) -> None:
    """fp16 and its loss scale."""
    scale = trace.extra.get("loss_scale")
    skipped = np.isin(trace.step, trace.marks.get("loss_scale_overflow", []))
    fp16: bool | None = None
    if trace.facts is not None:
        fp16 = trace.facts.config.get("precision", {}).get("compute") == "fp16"
    elif signs.has("isolated_nan_norm"):
        fp16 = True
    signs.say("fp16", fp16, "the run computes in fp16", "计算精度为 fp16")
    if scale is None or not scale.finite.any():
        signs.say("skips_later", None)
        signs.say("scale_exhausted", None)
        return
    seen, run = skips(skipped), loss_scale(scale.values)
    signs.numbers["skipped_share"] = seen.share
    later = seen.later > 3 and seen.later_share > 0.05
    signs.say(
        "skips_later",
        later,
        f"{seen.later} steps after the start were skipped by the loss scale ({100 * seen.later_share:.0f} %)",
        f"启动之后有 {seen.later} 步被 loss scale 跳过（{100 * seen.later_share:.0f} %）",
    )
    signs.say(
        "scale_exhausted", run.exhausted and seen.later > 3,
        f"the loss scale ends at {run.last:g}: nothing is left to lower",
        f"loss scale 已降到 {run.last:g}，无法再降",
    )  # fmt: skip


def _what(values: np.ndarray) -> str:
    if not len(values):
        return "NaN"
    kinds = {"NaN" if np.isnan(v) else "infinite" for v in values}
    return " or ".join(sorted(kinds))
