"""What a curve shows where its shape alone does not name the cause, and what is normal."""

from __future__ import annotations

from runner.causes.catalogue.changes import AFTER, AGAIN, AT_A_TENTH, AT_ZERO, CLIP_AT_MEDIAN, EVERY_STEP, both
from runner.causes.cause import Cause
from runner.text import Text

CAUSES = (
    Cause(
        id="clip.saturated",
        code=None,
        title=Text(
            "The clip acts on nearly every step; with AdamW that changes almost nothing",
            "几乎每一步都被裁剪；用 AdamW 时这几乎没有影响",
        ),
        severity="note",
        remedy=Text(
            "Nothing: AdamW divides by the gradient's own size. With SGD, raise the limit.",
            "无需处理：AdamW 会除以梯度自身的大小。用 SGD 则提高阈值。",
        ),
        would_change=Text("The optimizer is SGD.", "优化器是 SGD。"),
        check=AFTER,
        changes=CLIP_AT_MEDIAN,
    ),
    Cause(
        id="learning.plateau",
        code=None,
        title=Text(
            "The loss has levelled off: the run has learnt what it will at this rate",
            "loss 已走平：以这个学习率能学的都学到了",
        ),
        severity="note",
        remedy=Text("Stop here, or add data; more epochs bring little.", "可以停下，或增加数据；再多训练收益很小。"),
        would_change=Text("The evaluation loss is still falling.", "验证 loss 仍在下降。"),
        check=AGAIN,
    ),
    Cause(
        id="stability.spikes_recovered",
        code=None,
        title=Text(
            "Isolated spikes, each back at its level within a few steps",
            "有孤立的尖峰，几步之内都回到原来的水平",
        ),
        severity="warning",
        remedy=Text(
            "Skip such steps or clip at the usual norm; look at their rows first.",
            "跳过这些步，或按平常的范数裁剪；先看这些步的样本。",
        ),
        would_change=Text(
            "With another data order the spikes move with their rows: then the rows are the cause.",
            "换数据顺序后尖峰跟着样本走：那原因就是样本。",
        ),
        check=AT_A_TENTH,
        changes=both(CLIP_AT_MEDIAN, runner=("stability=guarded",)),
    ),
    Cause(
        id="stability.periodic",
        code=None,
        title=Text(
            "The loss repeats with a fixed period that nothing in the log explains",
            "loss 以固定周期重复，日志里找不到原因",
        ),
        severity="warning",
        remedy=Text(
            "Compare the period with steps per epoch, evaluation and saving interval, and shard length.",
            "把周期与每 epoch 步数、验证间隔、保存间隔、分片长度对比。",
        ),
        would_change=Text(
            "With shuffled data the period is gone: then the data order is the cause.",
            "打乱数据后周期消失：那原因是数据顺序。",
        ),
        check=AT_ZERO,
        changes=EVERY_STEP,
    ),
    Cause(
        id="stability.level_jump",
        code=None,
        title=Text(
            "The loss jumps to a higher level and stays there",
            "loss 跳到更高的水平，没有回来",
        ),
        severity="error",
        remedy=Text(
            "Go back to the last checkpoint before the jump; replay those steps at a tenth of the rate.",
            "回到跳变之前的 checkpoint；用十分之一学习率重跑这几步。",
        ),
        would_change=Text(
            "The data change at that step: another source, longer rows, a new stage.",
            "这一步恰好换了数据：另一个来源、更长的样本或新阶段。",
        ),
        check=AT_A_TENTH,
        changes=both(
            {},
            runner=("optim.learning_rate={learning_rate_tenth}", "stability=guarded"),
            transformers=("learning_rate={learning_rate_tenth}",),
            llamafactory=("learning_rate: {learning_rate_tenth}",),
            ms_swift=("--learning_rate {learning_rate_tenth}",),
        ),
    ),
    Cause(
        id="unknown.several",
        code=None,
        title=Text(
            "Several causes fit and this log cannot tell them apart",
            "有几种原因都说得通，这份日志分不出来",
        ),
        severity="error",
        remedy=Text(
            "Run the one experiment that separates them, with every step logged.",
            "做一次能区分它们的实验，并每步记录。",
        ),
        would_change=Text("Gradient norms, or the first ten steps one by one.", "补上梯度范数，或前 10 步的逐步记录。"),
        check=AFTER,
        changes=EVERY_STEP,
    ),
)
