"""Every statistic behind the verdict, each with one plain sentence."""

from __future__ import annotations

import re
from typing import Any

from runner.report.page.html import both, element, escape, shown
from runner.text import Text

MEANINGS = {
    "kappa": Text(
        "How far the loss moves from point to point, as variance over what sampling alone predicts: 0.6 to 1.5 is "
        "noise of the data, and too much is where the whole interval lies above 1.5.",
        "loss 逐点起伏的方差除以纯抽样预期：0.6 到 1.5 属数据噪声，整个区间都高于 1.5 才算过大。",
    ),
    "r_squared": Text(
        "Share of the ups and downs that the untrained model shows on the same batches: the difficulty of the data.",
        "未训练的模型在同样的 batch 上也会出现的起伏所占的比例，即数据本身的难易。",
    ),
    "r_squared_points": Text("Points that R² rests on.", "R² 所依据的点数。"),
    "smoother": Text(
        "How many times calmer the loss is once all batches count as equally hard.",
        "按同等难度折算后，loss 平稳了多少倍。",
    ),
    "adjusted_first": Text(
        "Loss at the start, as if all batches were equally hard.", "开始时的 loss（按同等难度折算）。"
    ),
    "adjusted_last": Text("Loss at the end, as if all batches were equally hard.", "结束时的 loss（按同等难度折算）。"),
    "difficulty_slope": Text(
        "How strongly the loss follows the difficulty of its batch; 1 = one to one.",
        "loss 随 batch 难度变化的幅度；1 = 一比一。",
    ),
    "control_r_squared": Text(
        "Share of the ups and downs that the control shows on the same batches.",
        "对照在同样的 batch 上也有的起伏所占比例。",
    ),
    "control_variance_ratio": Text(
        "Variance of this run's movement over the control's; near 1 = the same movement.",
        "本次起伏的方差除以对照的方差；接近 1 = 同样的起伏。",
    ),
    "probe_change": Text(
        "Change of the loss on the same rows since the start, free of batch noise; below 0 = it learns.",
        "同一批样本 loss 相对起点的变化，没有 batch 噪声；小于 0 = 在学习。",
    ),
    "probe_change_se": Text(
        "Standard error of the change on the same rows; a fall of more than 2 of them is no chance.",
        "同一批样本 loss 变化的标准误；下降超过 2 个标准误即非偶然。",
    ),
    "probe_rows": Text("Rows whose loss was measured again and again.", "反复测量 loss 的样本数。"),
    "probe_held_out": Text("Whether those rows are held out from training.", "这些样本是否未参与训练。"),
    "noise_relative": Text(
        "How far the loss moves from point to point, as a share of its level; from 0.04 on it is called oscillation.",
        "loss 逐点起伏占其水平的比例；0.04 以上称为震荡。",
    ),
    "noise_sd": Text(
        "Standard deviation of the loss from point to point, its trend left out.", "loss 逐点的标准差（不含趋势）。"
    ),
    "noise_factor": Text(
        "Noise of the second half over that of the first; from 1.4 on it may grow.",
        "后半段噪声除以前半段；1.4 以上可能在增大。",
    ),
    "level": Text("Median of the loss in the last quarter.", "最后四分之一的 loss 中位数。"),
    "sd_step": Text(
        "Standard deviation of one step's loss that drawing rows alone predicts.",
        "仅由抽样引起的单步 loss 标准差（预期）。",
    ),
    "sd_log": Text(
        "Standard deviation of one logged loss that drawing rows alone predicts.",
        "仅由抽样引起的单个记录点 loss 标准差（预期）。",
    ),
    "fall_relative": Text("How far the loss fell, as a share of its start.", "loss 下降的比例（相对起点）。"),
    "fall_z": Text(
        "How far the loss fell, in standard errors; from 3 on it is no chance.",
        "loss 下降的幅度，以标准误计；3 以上即非偶然。",
    ),
    "first": Text("Loss at the start, noise averaged out.", "开始时的 loss（已平均掉噪声）。"),
    "last": Text("Loss at the end, noise averaged out.", "结束时的 loss（已平均掉噪声）。"),
    "rise_relative": Text(
        "Largest rise of the loss, as a share of the level before; 0 = none that counts.",
        "loss 最大的上升，占此前水平的比例；0 = 没有明显上升。",
    ),
    "rise_z": Text("Largest rise of the loss, in standard errors.", "loss 最大的上升，以标准误计。"),
    "eval_rise": Text(
        "Rise of the held-out loss above its best, as a share; from 0.05 on it overfits.",
        "验证 loss 高出最低点的比例；0.05 以上即过拟合。",
    ),
    "eval_best": Text("Lowest held-out loss.", "最低验证 loss。"),
    "eval_best_step": Text("Step of the lowest held-out loss.", "最低验证 loss 所在的步。"),
    "eval_end": Text("Held-out loss at the end.", "结束时的验证 loss。"),
    "rate_peak": Text("Largest learning rate that was applied.", "实际使用过的最大学习率。"),
    "rate_default": Text("Default learning rate of this method for this model.", "此方法在该模型上的默认学习率。"),
    "rate_integral": Text(
        "Mean learning rate over its peak: what the run got of it.", "平均学习率除以峰值：训练实际得到的份额。"
    ),
    "warmup_share": Text(
        "Share of the run until the learning rate is at its peak.", "达到学习率峰值前所占的训练比例。"
    ),
    "schedule_worst": Text(
        "Largest distance between the learning rate and its plan, as a share of the peak.",
        "学习率与计划的最大偏差（占峰值的比例）。",
    ),
    "clipped_share": Text(
        "Share of the steps whose gradient was cut down; with AdamW, a clip that hits nearly every step changes almost "
        "nothing.",
        "梯度被裁剪的步所占比例；用 AdamW 时，几乎每步都裁剪等于几乎没有作用。",
    ),
    "median_norm": Text("Median of the gradient norm, before clipping.", "梯度范数的中位数（裁剪前）。"),
    "replay_share": Text(
        "Share of the replayed updates that raised the loss of their own batch; below 0.1 is harmless, 0.3 too much.",
        "重放时使自身 batch 变差的更新所占比例；低于 0.1 无害，0.3 过多。",
    ),
    "replay_points": Text("Updates that were replayed.", "重放的更新次数。"),
    "line_s": Text(
        "Median length of an update, 1 = to the minimum along its direction; above 1 it overshoots, above 2 the loss "
        "climbs.",
        "更新长度的中位数，1 = 到该方向最低点；大于 1 即越过，大于 2 则 loss 反而上升。",
    ),
    "lost_updates": Text(
        "Share of the weights whose update their number format rounds away; above 0.2 is an alarm.",
        "更新因数值格式舍入而丢失的权重比例；高于 0.2 需警惕。",
    ),
    "rms_t_largest": Text(
        "Largest RMS_t: near 1 in quiet training; well above 2, Adam's second moment lags behind.",
        "最大的 RMS_t：平稳时接近 1；远大于 2 表示 Adam 二阶矩滞后。",
    ),
    "rms_t_share": Text("Share of the steps with an RMS_t above 2.3.", "RMS_t 大于 2.3 的步所占比例。"),
    "skipped_share": Text(
        "Share of the steps that the fp16 loss scale skipped.", "被 fp16 loss scale 跳过的步所占比例。"
    ),
    "non_finite_losses": Text("Points whose loss is NaN or infinite.", "loss 为 NaN 或无穷的点数。"),
    "non_finite_norms": Text("Points whose gradient norm is NaN or infinite.", "梯度范数为 NaN 或无穷的点数。"),
    "source_r_squared": Text(
        "Share of the slow waves of the loss that follows the sources of the rows.", "loss 缓慢起伏中跟随数据源的比例。"
    ),
    "source_order_z": Text(
        "How far the order of the sources is from well mixed; -6 and below = blocks.",
        "数据源顺序偏离充分打散的程度；-6 以下为成块。",
    ),
    "stair_drop": Text(
        "Drop of the loss at the end of an epoch, as a share of its level.", "每个 epoch 末 loss 下降的比例。"
    ),
    "stair_z": Text(
        "Drop of the loss at the end of an epoch, in standard errors.", "每个 epoch 末 loss 的下降，以标准误计。"
    ),
    "stair_kept": Text(
        "Share of those drops that the run keeps; near 0 = it climbs up again inside every epoch.",
        "这些下降保留下来的比例；接近 0 = 每个 epoch 内又升回去。",
    ),
    "unnamed_period": Text(
        "Length in steps of the strongest period that nothing in the run has: a number, no alarm.",
        "最强的无名周期（步）：仅供参考，不报警。",
    ),
    "fisher_g": Text(
        "Share of the movement at the single strongest period that nothing in the run has.",
        "集中在最强的无名周期上的起伏所占比例。",
    ),
    "von_neumann": Text(
        "2 = neighbouring points are unrelated, as noise is; far below 2 the loss wanders, far above it alternates.",
        "2 = 相邻点互不相关（白噪声）；远小于 2 为缓慢漂移，远大于则来回交替。",
    ),
    "von_neumann_z": Text(
        "Distance of the von Neumann ratio from 2, in standard deviations of white noise.",
        "von Neumann 比与 2 的距离，以白噪声标准差计。",
    ),
}
"""Name in `verdict.numbers` -> meaning, the most telling first; `x_low` and `x_high` are shown with `x`."""

PERIOD = Text("Length of a period that the loss swings with, in steps.", "loss 摆动的周期（步）。")
"""Meaning of every `period_...`: the diagnosis names them after what has that period."""

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
    order = {name: n for n, name in enumerate(MEANINGS)}
    for name, value in sorted(numbers.items(), key=lambda item: order.get(item[0], len(order))):
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
    """ "0.71 … 1.34"; "≥ 0.71" or "≤ 1.34" where only one end is known; "" where there is none."""
    pair = numbers.get(f"{name}_interval") or [numbers.get(f"{name}_low"), numbers.get(f"{name}_high")]
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return ""
    low, high = pair
    if low is None:
        return "" if high is None else f"≤ {shown(high)}"
    return f"≥ {shown(low)}" if high is None else f"{shown(low)} … {shown(high)}"


def as_shown(name: str, value: Any) -> str:
    """A share also as per cent, a list of numbers with four digits each."""
    if isinstance(value, float) and name.endswith("share") and 0 <= value <= 1:
        return f"{value:.1%}"
    if isinstance(value, list | tuple) and all(isinstance(v, int | float | str) for v in value):
        words = [shown(v) for v in value[:12]]
        return ", ".join(words) + (f", … ({len(value)})" if len(value) > 12 else "")
    return shown(value)


def meaning_of(name: str) -> Text | None:
    """What a number of the diagnosis means; None if unknown."""
    return PERIOD if name.startswith("period_") else MEANINGS.get(name)
