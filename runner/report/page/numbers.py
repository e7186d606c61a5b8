"""Every statistic behind the verdict, each with one plain sentence."""

from __future__ import annotations

import re
from typing import Any

from runner.report.page.html import both, element, escape, shown
from runner.text import Text

MEANINGS = {
    "kappa": Text(
        "How far the loss moves from point to point, as variance over what sampling alone predicts: 0.6 to "
        "1.5 is noise of the data, more is not.",
        "loss 逐点起伏的方差除以纯抽样预期：0.6 到 1.5 属数据噪声，更大则不是。",
    ),
    "r_squared": Text(
        "Share of the ups and downs that the untrained model shows on the same batches: the difficulty of the data.",
        "未训练的模型在同样的 batch 上也会出现的起伏所占的比例，即数据本身的难易。",
    ),
    "slope": Text(
        "How strongly the loss follows the difficulty of its batch; 1 = one to one.",
        "loss 随 batch 难度变化的幅度；1 = 一比一。",
    ),
    "predicted_noise": Text(
        "Standard deviation of a logged loss that comes from sampling rows alone.",
        "仅由抽样引起的 loss 标准差（预期）。",
    ),
    "observed_noise": Text(
        "Standard deviation of a logged loss around its own trend.",
        "loss 围绕自身趋势的标准差（实测）。",
    ),
    "noise": Text(
        "Standard deviation of a logged loss around its own trend.",
        "loss 围绕自身趋势的标准差。",
    ),
    "variation": Text(
        "That deviation as a share of the loss.",
        "该标准差占 loss 的比例。",
    ),
    "von_neumann": Text(
        "2 = neighbouring points are unrelated, as noise is; far below 2 = the loss wanders, far above = it "
        "alternates.",
        "2 = 相邻点互不相关（白噪声）；远小于 2 = 缓慢漂移；远大于 2 = 来回交替。",
    ),
    "fisher_g": Text(
        "Share of the movement at one single period; large = something repeats.",
        "集中在单一周期上的起伏所占比例；大 = 有东西在周期性重复。",
    ),
    "period": Text(
        "Length of a repeating pattern, in steps.",
        "周期性现象的长度（步）。",
    ),
    "trend": Text(
        "Change of the loss over the run, noise averaged out.",
        "整个训练中 loss 的变化（已平均掉噪声）。",
    ),
    "fall": Text(
        "How far the loss fell, noise averaged out.",
        "loss 下降了多少（已平均掉噪声）。",
    ),
    "first_loss": Text(
        "Loss at the start of the run.",
        "训练开始时的 loss。",
    ),
    "last_loss": Text(
        "Loss at the end of the log.",
        "日志末尾的 loss。",
    ),
    "lowest_loss": Text(
        "Lowest loss that was logged.",
        "记录到的最低 loss。",
    ),
    "non_finite": Text(
        "Points whose loss or gradient norm is NaN or infinite.",
        "loss 或梯度范数为 NaN 或无穷的点数。",
    ),
    "skipped": Text(
        "Steps whose update was not made.",
        "没有执行更新的步数。",
    ),
    "skipped_share": Text(
        "Share of the steps whose update was not made.",
        "没有执行更新的步所占比例。",
    ),
    "clipped": Text(
        "Steps whose gradient was cut down.",
        "梯度被裁剪的步数。",
    ),
    "clipped_share": Text(
        "Share of the steps whose gradient was cut down. With AdamW, a clip that hits nearly every step "
        "changes almost nothing.",
        "梯度被裁剪的步所占比例。用 AdamW 时，几乎每步都裁剪等于几乎没有作用。",
    ),
    "clip_share": Text(
        "Share of the steps whose gradient was cut down.",
        "梯度被裁剪的步所占比例。",
    ),
    "spikes": Text(
        "Points far above their neighbours.",
        "远高于邻近点的数量。",
    ),
    "grad_norm_median": Text(
        "Usual size of the gradient, before clipping.",
        "梯度的典型大小（裁剪前）。",
    ),
    "grad_norm_largest": Text(
        "Largest gradient norm, before clipping.",
        "最大的梯度范数（裁剪前）。",
    ),
    "ascent_share": Text(
        "Share of the replayed steps that made their own batch worse; below 0.1 is harmless.",
        "重放时使自身 batch 变差的步所占比例；低于 0.1 无害。",
    ),
    "replay_share": Text(
        "Share of the replayed steps that made their own batch worse; below 0.1 is harmless.",
        "重放时使自身 batch 变差的步所占比例；低于 0.1 无害。",
    ),
    "line_s": Text(
        "Length of an update, 1 = to the minimum along its direction; above 2 the step climbs.",
        "更新的长度，1 = 到该方向最低点；大于 2 反而上升。",
    ),
    "probe_change": Text(
        "Change of the loss on the same rows since the start, free of batch noise.",
        "同一批样本 loss 相对起点的变化，没有 batch 噪声。",
    ),
    "probe_se": Text(
        "Standard error of that change; beyond twice this it is no chance.",
        "该变化的标准误；超过两倍即非偶然。",
    ),
    "probe_z": Text(
        "That change in standard errors; below -2 the model has learnt beyond chance.",
        "该变化相当于多少个标准误；低于 -2 说明确实学到了。",
    ),
    "noise_scale": Text(
        "Rows per step beyond which a larger batch brings little.",
        "每步样本数超过它以后，加大 batch 收益很小。",
    ),
    "b_simple": Text(
        "Rows per step beyond which a larger batch brings little.",
        "每步样本数超过它以后，加大 batch 收益很小。",
    ),
    "lost_updates": Text(
        "Share of the weights that an update left as they were, because their number format rounds it away; "
        "above 0.2 is an alarm.",
        "因数值格式舍入而没有变化的权重比例；高于 0.2 需警惕。",
    ),
    "between_share": Text(
        "Share of the sampling noise that lies between sources; stratified batches remove it.",
        "抽样噪声中来源之间的部分；分层采样可以去掉它。",
    ),
    "eval_first": Text(
        "First held-out loss.",
        "第一次验证 loss。",
    ),
    "eval_last": Text(
        "Last held-out loss.",
        "最后一次验证 loss。",
    ),
    "eval_best": Text(
        "Lowest held-out loss.",
        "最低验证 loss。",
    ),
    "update_ratio": Text(
        "Size of an update relative to the weights.",
        "更新量相对权重的大小。",
    ),
    "rms_t": Text(
        "Near 1 in quiet training; well above 2, Adam's second moment lags behind.",
        "平稳时接近 1；远大于 2 表示 Adam 二阶矩滞后。",
    ),
    "learning_rate": Text(
        "Largest learning rate that was applied.",
        "实际使用过的最大学习率。",
    ),
    "points": Text(
        "Points with a loss.",
        "有 loss 的点数。",
    ),
    "steps": Text(
        "Last step of the log.",
        "日志的最后一步。",
    ),
    "variance_ratio": Text(
        "Variance of this run's movement over the control's; near 1 = the same movement.",
        "本次起伏的方差除以对照的方差；接近 1 = 同样的起伏。",
    ),
}
"""Name -> meaning, for the names a verdict may use."""

SYNONYMS = {
    "r2": "r_squared", "sd_pred": "predicted_noise", "sigma_pred": "predicted_noise", "sd_step": "predicted_noise",
    "sd_log": "predicted_noise", "sd_observed": "observed_noise", "noise_sd": "noise", "nonfinite": "non_finite",
    "non_finite_steps": "non_finite", "skipped_steps": "skipped", "clipped_steps": "clipped", "cv": "variation",
}  # fmt: skip

LABELS = {"kappa": "κ (kappa)", "r_squared": "R²"}


def numbers_table(numbers: dict[str, Any]) -> str:
    """A table of name, value (with its interval), meaning; names without a known meaning are shown all the same."""
    rows = rows_of(numbers)
    if not rows:
        return ""
    cells = []
    for name, value, note in rows:
        meaning = meaning_of(name)
        told = both(meaning) if meaning else ""
        extra = f' <span class="interval">{escape(note)}</span>' if note else ""
        label = escape(LABELS.get(name, name.replace("_", " ")))
        cells.append(
            f'<tr><th scope="row">{label}</th><td class="value">{escape(value)}{extra}</td><td>{told}</td></tr>'
        )
    return element("table", element("tbody", "".join(cells)), "numbers")


def rows_of(numbers: dict[str, Any], prefix: str = "") -> list[tuple[str, str, str]]:
    """(name, value, interval) of each number; nested names are joined by a dot, `x_low` and `x_high`, or `x_interval`,
    stand beside `x`."""
    made = []
    for name, value in numbers.items():
        stem = re.sub(r"_(low|high|interval)$", "", name)
        if stem != name and stem in numbers:
            continue
        if isinstance(value, dict):
            if "value" in value:
                inner = {prefix + name: value["value"]}
                inner |= {f"{prefix}{name}_{k}": v for k, v in value.items() if k != "value"}
                made += rows_of(inner)
            else:
                made += rows_of(value, f"{prefix}{name}.")
            continue
        made.append((prefix + name, as_shown(name, value), interval(name, numbers)))
    return made


def interval(name: str, numbers: dict[str, Any]) -> str:
    """ "0.71 to 1.34", or "" where there is none."""
    pair = numbers.get(f"{name}_interval") or [numbers.get(f"{name}_low"), numbers.get(f"{name}_high")]
    if not isinstance(pair, list | tuple) or len(pair) != 2 or None in pair:
        return ""
    return f"{shown(pair[0])} … {shown(pair[1])}"


def as_shown(name: str, value: Any) -> str:
    """A share also as per cent, a list of numbers with four digits each."""
    if isinstance(value, float) and name.endswith("share") and 0 <= value <= 1:
        return f"{value:.1%}"
    if isinstance(value, list | tuple) and all(isinstance(v, int | float | str) for v in value):
        words = [shown(v) for v in value[:12]]
        return ", ".join(words) + (f", … ({len(value)})" if len(value) > 12 else "")
    return shown(value)


def meaning_of(name: str) -> Text | None:
    """What a number means: by its whole name, by its last part, or by the part before an index."""
    for key in (name, name.rpartition(".")[2], name.rpartition(".")[0].rpartition(".")[2]):
        known = MEANINGS.get(SYNONYMS.get(key, key))
        if known is not None:
            return known
    return None
