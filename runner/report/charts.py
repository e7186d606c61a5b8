"""The charts of a run, whoever draws them: the page and the PNG files show the same ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from runner.diagnosis.trace import Trace
from runner.report.clip import clipped
from runner.report.series import MOST, Chart, Level, Line, Style, line, of_column, of_steps
from runner.report.summary import for_difficulty, smoothed
from runner.report.thinning import bucket_means
from runner.runfolder import number
from runner.text import Text, same

HELD_OUT = ("held_out", "s3", "s4", "s6", "s5", "s7")
"""Roles of several held-out losses: none looks like the training's."""


def charts(trace: Trace, most: int = MOST) -> list[Chart]:
    """The charts that the trace has data for, in the order in which they are read."""
    made: list[Callable[[Trace, int], Chart | None]] = [
        loss_chart, norm_chart, rate_chart, sources_chart, ratio_chart, scale_chart, noise_scale_chart,
        moment_chart, probe_set_chart, replay_chart, line_probe_chart,
    ]  # fmt: skip
    return [chart for make in made if (chart := make(trace, most)) is not None]


def trend(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(steps, smoothed loss) over the points with a loss, NaN where the loss is not finite; steps that did not reach
    the model do not move it."""
    known = trace.loss.known
    steps, loss = trace.step[known], trace.loss.values[known]
    undone = np.isin(steps, [*trace.marks.get("skipped", []), *trace.marks.get("rollbacks", [])])
    return steps, np.where(np.isfinite(loss), smoothed(np.where(undone, np.nan, loss)), np.nan)


def predicted_spread(trace: Trace) -> float | None:
    """Standard deviation of a point of the loss that sampling rows alone predicts; None where unknown. A point of
    telemetry is one step, a point of a log is a mean over its window."""
    noise = trace.facts.noise if trace.facts is not None else {}
    found = number(noise.get("sd_step" if (trace.logging_steps or 1) == 1 else "sd_log"))
    return found if found is not None and np.isfinite(found) else None


def loss_chart(trace: Trace, most: int) -> Chart | None:
    """Loss: raw, smoothed with the band of predicted noise, at equal difficulty, held out."""
    drawn: list[Line | None] = []
    about = Text("Lower is better.", "越低越好。")
    if trace.loss.any:
        steps, smooth = trend(trace)
        spread = predicted_spread(trace)
        every = Text("train, as logged", "训练，原始记录")
        drawn.append(of_column(trace, trace.loss, every, "raw", most, faint=True))
        drawn.append(adjusted_line(trace, most))
        if np.isfinite(smooth).sum() > 2:
            if spread is not None:
                about = Text(
                    "Shaded: how far a point moves only because its batch holds other rows (2 standard deviations).",
                    "阴影：仅因 batch 样本不同而产生的起伏范围（2 倍标准差）。",
                )
            width = None if spread is None else np.full(len(steps), 2 * spread)
            made = line(Text("train, smoothed", "训练，平滑"), "smooth", steps, smooth, most // 2, spread=width)
            drawn.append(unmarked(made))
    for i, held in enumerate(trace.evaluations):
        name = Text("held out", "验证集") if not held.name else Text(f"held out: {held.name}", f"验证集：{held.name}")
        role = HELD_OUT[i % len(HELD_OUT)]
        drawn.append(line(name, role, held.step, held.loss, most, "both") if len(held.step) else None)
    lines = [x for x in drawn if x is not None]
    return Chart("loss", same("loss"), about, lines) if lines else None


def adjusted_line(trace: Trace, most: int) -> Line | None:
    """The loss at equal difficulty of the batches: a line where most steps are known, points where a sample is."""
    base = trace.extra.get("base_loss")
    if base is None or not base.any:
        return None
    values, _ = for_difficulty(trace.loss.values, base.values)
    adjusted = np.array(values, dtype=np.float64)
    known = np.isfinite(adjusted)
    if not known.any():
        return None
    style: Style = "line" if known.sum() > trace.loss.finite.sum() / 2 else "points"
    name = Text("train, at equal difficulty of batches", "训练，batch 难度相同时")
    made = line(name, "adjusted", trace.step[known], adjusted[known], most, style)
    return dataclasses.replace(made, derived=True)


def unmarked(made: Line) -> Line:
    """`made` without marks of its own: the line it is derived from has them."""
    return dataclasses.replace(made, lost=[], derived=True)


def norm_chart(trace: Trace, most: int) -> Chart | None:
    """Gradient norm before clipping, the clip, and the steps it acted on."""
    name = Text("gradient norm, before clipping", "梯度范数（裁剪前）")
    drawn = of_column(trace, trace.grad_norm, name, "neutral", most)
    if drawn is None:
        return None
    limit = trace.max_grad_norm or None
    factors, norms = trace.extra.get("clip_coef"), trace.grad_norm
    if factors is not None and factors.any:
        hit = clipped(factors.values) & norms.finite
    else:
        hit = norms.finite & (norms.values > limit if limit else False)
    lines = [drawn]
    if hit.any():
        n = int(hit.sum())
        cut = Text(f"clipped ({n:,} {'point' if n == 1 else 'points'})", f"被裁剪（{n:,} 个点）")
        lines.append(line(cut, "clipped", trace.step[hit], norms.values[hit], most // 2, "points"))
    levels = [Level(limit, Text(f"clip at {limit:g}", f"裁剪阈值 {limit:g}"))] if limit else []
    about = Text("The size of the gradient as it came, before any clipping.", "裁剪之前的梯度大小。")
    return Chart("grad_norm", Text("gradient norm", "梯度范数"), about, lines, levels, "log")


def rate_chart(trace: Trace, most: int) -> Chart | None:
    """Learning rate as applied."""
    drawn = of_column(trace, trace.learning_rate, Text("learning rate", "学习率"), "neutral", most)
    if drawn is None:
        return None
    about = Text("As applied to each step.", "每一步实际使用的值。")
    return Chart("learning_rate", Text("learning rate", "学习率"), about, [drawn])


def sources_chart(trace: Trace, most: int) -> Chart | None:
    """Loss of each source, smoothed over its own points."""
    lines = []
    for i, (name, column) in enumerate(trace.sources.items()):
        raw = of_column(trace, column, same(name), f"s{i}", most // 4, faint=True)
        if raw is None:
            continue
        finite = column.finite
        if finite.sum() <= 8:
            lines.append(dataclasses.replace(raw, style="both", faint=False))
            continue
        x, y = bucket_means(trace.step[finite], column.values[finite], 5000)
        smooth = line(same(name), f"s{i}", x, smoothed(y), most // 4)
        lines.append(dataclasses.replace(smooth, lost=raw.lost, of=int(finite.sum()), derived=True))
    about = Text("Smoothed. A source that stands apart moves the total whenever a batch holds more of it.",
                 "已平滑。某个来源明显偏离时，batch 中它的占比一变，总 loss 就会起伏。")  # fmt: skip
    return Chart("sources", Text("loss per source", "各数据来源的 loss"), about, lines) if lines else None


def ratio_chart(trace: Trace, most: int) -> Chart | None:
    """Size of an update relative to the weights."""
    update, weight = trace.extra.get("update_rms"), trace.extra.get("weight_rms")
    if update is None or weight is None:
        return None
    known = update.known & weight.known & (weight.values != 0)
    if not known.any():
        return None
    ratio = update.values[known] / weight.values[known]
    name = Text("update / weights", "更新量 / 权重")
    about = Text("Root mean square of the update over that of the weights that train.",
                 "更新量的均方根除以可训练权重的均方根。")  # fmt: skip
    lines = [line(name, "neutral", trace.step[known], ratio, most)]
    return Chart("update_ratio", Text("relative size of an update", "更新的相对大小"), about, lines, scale="log")


def scale_chart(trace: Trace, most: int) -> Chart | None:
    """fp16's loss scale."""
    drawn = of_column(trace, trace.extra.get("loss_scale"), same("loss scale"), "neutral", most, "step")
    if drawn is None:
        return None
    about = Text("fp16 only. It halves at every overflow; the step is then skipped.",
                 "仅 fp16。每次溢出减半，并跳过该步。")  # fmt: skip
    return Chart("loss_scale", same("loss scale"), about, [drawn], scale="log")


def noise_scale_chart(trace: Trace, most: int) -> Chart | None:
    """Simple gradient noise scale, and the batch."""
    name = Text("noise scale, rows", "噪声尺度（样本数）")
    drawn = of_column(trace, trace.extra.get("b_simple"), name, "neutral", most)
    if drawn is None:
        return None
    batch = number(trace.facts.noise.get("batch")) if trace.facts is not None else None
    levels = [Level(batch, Text(f"rows per step: {batch:g}", f"每步样本数：{batch:g}"))] if batch else []
    about = Text("Batches far below this many rows give mostly noise, far above it little more.",
                 "batch 远小于它时梯度以噪声为主；远大于它时收益很小。")  # fmt: skip
    return Chart("noise_scale", Text("gradient noise scale", "梯度噪声尺度"), about, [drawn], levels, "log")


def moment_chart(trace: Trace, most: int) -> Chart | None:
    """How well Adam's second moment fits the gradients."""
    drawn = of_column(trace, trace.extra.get("rms_t"), same("RMS_t"), "neutral", most)
    if drawn is None:
        return None
    about = Text("Near 1 in quiet training; well above 2, Adam's second moment lags behind the gradients.",
                 "平稳训练时接近 1；远大于 2 表示 Adam 的二阶矩跟不上梯度。")  # fmt: skip
    title = Text("gradient against Adam's second moment", "梯度与 Adam 二阶矩之比")
    return Chart("second_moment", title, about, [drawn], [Level(1.0, same("1"), "zero")])


def of_probe(name: Text, rows: list[tuple[int, float, float | None]], most: int, style: Style) -> Line:
    """A line of (step, value, half height of its error bar)."""
    x = np.array([r[0] for r in rows], dtype=np.int64)
    y = np.array([r[1] for r in rows], dtype=np.float64)
    spread = np.array([np.nan if r[2] is None else r[2] for r in rows], dtype=np.float64)
    return line(name, "neutral", x, y, most, style, spread=spread if np.isfinite(spread).any() else None)


ZERO = Level(0.0, same("0"), "zero")


def probe_set_chart(trace: Trace, most: int) -> Chart | None:
    """Change of the loss of the same rows since the first measurement."""
    rows = []
    for row in of_steps(trace, "probes", "probe_set"):
        change = row.get("change")
        mean = number(change.get("mean")) if isinstance(change, dict) else None
        if isinstance(change, dict) and mean is not None:
            error = number(change.get("se"))
            rows.append((int(row["step"]), mean, None if error is None else 2 * error))
    if not rows:
        return None
    name = Text("change since the start, ± 2 standard errors", "相对起点的变化，± 2 倍标准误")
    about = Text("The same rows each time, so no batch noise: a bar wholly below 0 has learnt beyond chance.",
                 "每次都测同一批样本，没有 batch 噪声：误差条完全低于 0，即确实学到了东西。")  # fmt: skip
    title = Text("loss of the probe rows", "探针样本的 loss")
    return Chart("probes", title, about, [of_probe(name, rows, most, "both")], [ZERO], "linear_only")


def replay_chart(trace: Trace, most: int) -> Chart | None:
    """Loss of a step's own batch after its update, less before."""
    rows: list[tuple[int, float, float | None]] = []
    for row in of_steps(trace, "probes", "replay"):
        before, after = number(row.get("before")), number(row.get("after"))
        if before is not None and after is not None:
            rows.append((int(row["step"]), after - before, None))
    if not rows:
        return None
    name = Text("after the update, less before", "更新后减更新前")
    about = Text("Above 0 the step made its own batch worse: it was too large.",
                 "大于 0：这一步使自己的 batch 变差，步子过大。")  # fmt: skip
    title = Text("a step's effect on its own batch", "一步对自身 batch 的作用")
    return Chart("replay", title, about, [of_probe(name, rows, most, "points")], [ZERO], "linear_only")


def line_probe_chart(trace: Trace, most: int) -> Chart | None:
    """Length of the update as a multiple of the best one along its direction."""
    found = [(int(r["step"]), number(r.get("s"))) for r in of_steps(trace, "probes", "line")]
    rows: list[tuple[int, float, float | None]] = [(step, s, None) for step, s in found if s is not None]
    if not rows:
        return None
    levels = [
        Level(1.0, Text("1: at the minimum", "1：恰在最低点"), "zero"),
        Level(2.0, Text("2: higher than before", "2：比之前更高"), "clipped"),
    ]
    name = Text("length of the update, 1 = to the minimum", "更新长度，1 = 到最低点")
    about = Text("Below 1 is safe, above 2 the step climbs; NaN = no descent on this batch.",
                 "小于 1 安全，大于 2 反而上升；NaN = 在该 batch 上不下降。")  # fmt: skip
    title = Text("curvature along the update", "沿更新方向的曲率")
    return Chart("line_probe", title, about, [of_probe(name, rows, most, "points")], levels, "linear_only")
