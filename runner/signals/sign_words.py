"""What a warning sign is, and how each is said: a few words for the progress line, a sentence with the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from runner.text import Text

Facts = Mapping[str, Any]
"""Fields of a telemetry row; numbers are floats, absent and None = unknown."""


def known(value: Any) -> float:
    """`value` as a float; NaN where it is unknown."""
    return math.nan if value is None else float(value)


LAGS = 2.3
"""RMS_t above which Adam's second moment lags behind the gradients (Wortsman et al. 2023, arXiv 2304.13013)."""


LOSS = ("loss_above_start", "learning_lost", "loss_rising", "adjusted_loss_rising", "worse_than_start")
"""Slugs of the signs that the loss gives."""


class Sign(NamedTuple):
    """One piece of evidence."""

    slug: str
    points: int
    short: Text
    """A few words for the progress line."""

    sentence: Text
    """With the numbers."""

    @property
    def kind(self) -> str:
        """loss, or another kind of evidence."""
        return "loss" if self.slug in LOSS else "steps"


def above_start(points: int, loss: float, start: float, sd: float) -> Sign:
    far = (loss - start) / sd
    return Sign(
        "loss_above_start", points, Text("loss above its start", "损失高于起点"),
        Text(
            f"the loss keeps above the level it started at ({start:.3g}, now {loss:.3g}: {far:.1f} standard "
            "deviations of a step)",
            f"损失持续高于起始水平（起始 {start:.3g}，现在 {loss:.3g}：相当于单步标准差的 {far:.1f} 倍）",
        ),
    )  # fmt: skip


def lost_all(now: float, start: float, lowest: float) -> Sign:
    return Sign(
        "learning_lost", 3, Text("all that was learnt is lost", "已学到的全部丢失"),
        Text(
            f"the loss had fallen from {start:.3g} to {lowest:.3g} and is back at {now:.3g}: all that was learnt is "
            "lost",
            f"损失曾从 {start:.3g} 降到 {lowest:.3g}，现在回到 {now:.3g}：已学到的全部丢失",
        ),
    )  # fmt: skip


def loss_risen(points: int, now: float, lowest: float, sd: float) -> Sign:
    far = (now - lowest) / sd
    return Sign(
        "loss_rising", points, Text("loss rising", "损失在上升"),
        Text(
            f"the loss has risen from its lowest level {lowest:.3g} to {now:.3g} ({far:.1f} standard deviations of a "
            "step) and stays there",
            f"损失从最低水平 {lowest:.3g} 升到 {now:.3g}（单步标准差的 {far:.1f} 倍）并停留在那里",
        ),
    )  # fmt: skip


def worse_on_same_rows(points: int, excess: float) -> Sign:
    return Sign(
        "adjusted_loss_rising", points, Text("loss rising on rows of equal difficulty", "同等难度样本上的损失在上升"),
        Text(
            f"against the start model on the same rows the loss has risen again (now {excess:+.3g})",
            f"与起始模型在相同样本上相比，损失重新上升（现在 {excess:+.3g}）",
        ),
    )  # fmt: skip


def worse_than_start(points: int, excess: float) -> Sign:
    return Sign(
        "worse_than_start", points, Text("worse than the untrained model", "比未训练的模型更差"),
        Text(
            f"three times in a row the loss was above the start model's on the same rows, by {excess:.3g} or more",
            f"在相同样本上，损失连续三次高于起始模型，至少高 {excess:.3g}",
        ),
    )  # fmt: skip


def norm_jumped(points: int, factor: float) -> Sign:
    return Sign(
        "gradient_jumps", points, Text("gradient norm far above calm steps", "梯度范数远高于平稳时"),
        Text(
            f"the gradient norm keeps far above that of calm steps (now {factor:.3g} times)",
            f"梯度范数持续远高于平稳步（现为 {factor:.3g} 倍）",
        ),
    )  # fmt: skip


def norm_grown(points: int, factor: float) -> Sign:
    return Sign(
        "gradient_growing", points, Text("gradient norm growing", "梯度范数在增长"),
        Text(
            f"the gradient norm of the last steps is {factor:.3g} times that of the steps before",
            f"最近几步的梯度范数是此前的 {factor:.3g} 倍",
        ),
    )  # fmt: skip


def weights_replaced(points: int, ratio: float, factor: float) -> Sign:
    grown = points == 3
    return Sign(
        "steps_replace_weights", points, Text("steps as large as the weights", "更新与权重一样大"),
        Text(
            f"an update is {ratio:.2g} times as large as the weights it changes"
            + (f", and the gradient norm is {factor:.3g} times that of calm steps" if grown else ""),
            f"一次更新的大小是权重的 {ratio:.2g} 倍" + (f"，梯度范数是平稳步的 {factor:.3g} 倍" if grown else ""),
        ),
    )  # fmt: skip


def moment_lags(points: int, moment: float) -> Sign:
    return Sign(
        "second_moment_lags", points, Text("second moment lags behind", "二阶矩滞后"),
        Text(
            f"RMS_t is {moment:.2g} (above {LAGS}): Adam's second moment lags behind the gradients, its steps are too "
            "large",
            f"RMS_t 为 {moment:.2g}（高于 {LAGS}）：Adam 的二阶矩滞后于梯度，步长过大",
        ),
    )  # fmt: skip


def overshoots(points: int, s: float) -> Sign:
    no_descent = s >= 10
    how = "the last update did not lead down" if no_descent else f"the last update was {s:.2g} times the best length"
    zh = "上一次更新没有使损失下降" if no_descent else f"上一次更新的长度是最佳长度的 {s:.2g} 倍"
    return Sign(
        "steps_overshoot", points, Text("steps overshoot", "步子过大"),
        Text(f"{how} on its own batch (line probe)", f"{zh}（同一批数据，线探测）"),
    )  # fmt: skip


def raises_own_loss(points: int, share: float) -> Sign:
    return Sign(
        "steps_raise_own_loss", points, Text("steps raise the loss of their own batch", "更新使自身批次的损失上升"),
        Text(
            f"{share:.0%} of the replayed steps raised the loss of their own batch",
            f"回放的步中有 {share:.0%} 使自身批次的损失上升",
        ),
    )  # fmt: skip


def not_finite(points: int, steps: int) -> Sign:
    return Sign(
        "loss_not_finite", points, Text("loss not finite", "损失不是有限值"),
        Text(f"the loss is not finite ({steps} in a row)", f"损失不是有限值（连续 {steps} 步）"),
    )  # fmt: skip


def overflows(points: int, steps: int, scale: Any) -> Sign:
    at = f", the loss scale is {float(scale):g}" if scale is not None else ""
    zh = f"，损失缩放为 {float(scale):g}" if scale is not None else ""
    return Sign(
        "gradients_overflow", points, Text("gradients overflow", "梯度溢出"),
        Text(
            f"the gradient overflows again and again ({steps} steps in a row{at})",
            f"梯度反复溢出（连续 {steps} 步{zh}）",
        ),
    )  # fmt: skip


def updates_lost(points: int, share: float) -> Sign:
    return Sign(
        "updates_lost", points, Text("updates rounded away", "更新被舍入丢失"),
        Text(
            f"{share:.0%} of the weights are left as they were by an update too small for their number format",
            f"更新对权重的数值格式来说太小，{share:.0%} 的权重没有改变",
        ),
    )  # fmt: skip
