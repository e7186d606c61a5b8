"""B5, B6, and the rate, the schedule, the clip, Adam's memory."""

from __future__ import annotations

from runner.causes.catalogue.changes import (
    AFTER,
    AGAIN,
    AT_A_TENTH,
    AT_ZERO,
    CLIP_AT_MEDIAN,
    RATE_FOR_THE_METHOD,
    RATE_TENTH,
    RATE_TENTH_AND_WARMUP,
    RATE_TIMES_TEN,
    WARMUP,
    both,
    hf,
)
from runner.causes.cause import Cause
from runner.text import Text

CAUSES = (
    Cause(
        id="optim.learning_rate_too_high",
        code="B6",
        title=Text(
            "The learning rate is too high: steps overshoot, and the loss rises or jumps",
            "学习率太高：每一步都走过头，loss 上升或跳动",
        ),
        severity="error",
        remedy=Text(
            "A tenth of the learning rate, with a short warmup; a run that broke goes back to before the rise.",
            "学习率降到十分之一，加短 warmup；已经坏掉的训练回到上升之前的 checkpoint。",
        ),
        would_change=Text(
            "At a tenth of the rate the same batches rise as much.",
            "学习率降到十分之一，同样的 batch 上升得一样多。",
        ),
        check=AT_A_TENTH,
        changes=RATE_TENTH_AND_WARMUP,
    ),
    Cause(
        id="optim.encoder_destroyed",
        code="B6",
        title=Text(
            "A rate too high destroyed the encoder: the loss sits at chance and does not move",
            "学习率过高毁掉了编码器：loss 停在随机猜测的水平，不再变化",
        ),
        severity="error",
        remedy=Text(
            "Start again from the original weights with a tenth of the rate and a warmup; this run cannot recover.",
            "从原始权重重新开始，学习率降到十分之一并加 warmup；这次训练无法恢复。",
        ),
        would_change=Text(
            "A fresh start at a tenth of the rate stays at chance: then look at labels and head.",
            "以十分之一学习率重新开始仍停在随机水平：那就查标签和分类头。",
        ),
        check=AT_A_TENTH,
        changes=RATE_TENTH_AND_WARMUP,
    ),
    Cause(
        id="optim.learning_rate_low",
        code="B5",
        title=Text(
            "The learning rate is low for this method: it learns, but slowly",
            "学习率对这种训练方式偏低：在学，但很慢",
        ),
        severity="warning",
        remedy=Text(
            "Use the method's usual rate; for LoRA it is about ten times that of full fine-tuning.",
            "使用该方法常用的学习率；LoRA 约为全量微调的 10 倍。",
        ),
        would_change=Text(
            "The higher rate ends with no better evaluation loss.",
            "更高的学习率没有换来更低的验证 loss。",
        ),
        check=AFTER,
        changes=RATE_FOR_THE_METHOD,
    ),
    Cause(
        id="schedule.rate_zero",
        code="B5",
        title=Text(
            "The learning rate is 0: nothing is learnt while the loss goes up and down",
            "学习率为 0：loss 上下波动，但什么也没学到",
        ),
        severity="error",
        remedy=Text(
            "Set a rate; with fp16, look whether every step is skipped: the schedule waits for the first one taken.",
            "设置学习率；若用 fp16，检查是否每步都被跳过，因为调度要等第一次真正的更新。",
        ),
        would_change=Text(
            "The log's learning rate rises above 0 later on.",
            "日志里的学习率后来大于 0。",
        ),
        check=AGAIN,
        changes=RATE_FOR_THE_METHOD,
    ),
    Cause(
        id="schedule.warmup_beyond_end",
        code="B5",
        title=Text(
            "Warmup takes most of the run: the rate hardly reaches its target",
            "warmup 占了大半训练：学习率几乎到不了目标值",
        ),
        severity="error",
        remedy=Text(
            "Warm up for about 3 % of the steps.",
            "warmup 约占总步数的 3 %。",
        ),
        would_change=Text(
            "The run is only the beginning of a longer one.",
            "这只是更长训练的开头。",
        ),
        check=AGAIN,
        changes=WARMUP,
    ),
    Cause(
        id="schedule.advances_too_fast",
        code=None,
        title=Text(
            "The schedule runs ahead: the rate reaches its end before the run does",
            "调度走得太快：训练没结束，学习率已经到底",
        ),
        severity="warning",
        remedy=Text(
            "Step the scheduler once per optimizer step; let Trainer build it from the true number of steps.",
            "每个优化器步只推进一次调度；让 Trainer 按真实总步数创建调度器。",
        ),
        would_change=Text(
            "The plan has fewer steps than the log shows.",
            "计划的总步数比日志里的少。",
        ),
        check=AGAIN,
    ),
    Cause(
        id="schedule.restart_cycle",
        code=None,
        title=Text(
            "The scheduler restarts: the loss jumps with every cycle of the rate",
            "调度器周期重启：学习率每个周期，loss 跳一次",
        ),
        severity="warning",
        remedy=Text("Use one cosine without restarts.", "改用不重启的 cosine。"),
        would_change=Text(
            "At a constant rate the jumps stay.",
            "学习率恒定时跳动仍在。",
        ),
        check=AFTER,
        changes=both(hf(lr_scheduler_type="cosine"), runner=("schedule=cosine",)),
    ),
    Cause(
        id="optim.second_moment_lag",
        code=None,
        title=Text(
            "Adam's second moment lags behind the gradients: single updates become too large",
            "Adam 的二阶矩跟不上梯度：个别更新过大",
        ),
        severity="warning",
        remedy=Text(
            "Lower beta2 to 0.95, or use StableAdamW.",
            "把 beta2 降到 0.95，或改用 StableAdamW。",
        ),
        would_change=Text(
            "RMS_t stays near 1 in the steps before a spike.",
            "尖峰之前几步的 RMS_t 一直接近 1。",
        ),
        check=AFTER,
        changes=both(hf(adam_beta2=0.95), runner=("optim.betas=[0.9,0.95]",)),
    ),
    Cause(
        id="clip.too_low",
        code=None,
        title=Text(
            "The clip limit lies far below the usual gradient norm and cuts every step",
            "裁剪阈值远低于平常的梯度范数，每一步都被裁",
        ),
        severity="warning",
        remedy=Text(
            "Set it near the median norm, so that it acts on outliers only.",
            "把阈值设在范数中位数附近，只裁异常值。",
        ),
        would_change=Text(
            "The same batches at the higher limit learn no faster.",
            "提高阈值后，同样的 batch 学得并不更快。",
        ),
        check=AFTER,
        changes=CLIP_AT_MEDIAN,
    ),
    Cause(
        id="learning.stuck",
        code=None,
        title=Text(
            "Nothing moves: the loss stays at its starting level",
            "没有变化：loss 停在起始水平",
        ),
        severity="error",
        remedy=Text(
            "Hash the weights before and after five steps. Equal: nothing trains. Different: raise the rate tenfold.",
            "比较 5 步前后权重的哈希。相同：没有在训练。不同：学习率提高 10 倍。",
        ),
        would_change=Text(
            "The evaluation loss falls while the training loss stays.",
            "训练 loss 不动，验证 loss 在下降。",
        ),
        check=AFTER,
        changes=RATE_TIMES_TEN,
    ),
    Cause(
        id="stability.noise_grows",
        code=None,
        title=Text(
            "The noise grows during the run: later steps scatter more than early ones",
            "噪声越来越大：后期比前期更分散",
        ),
        severity="warning",
        remedy=Text(
            "Lower the learning rate, or let it decay; see whether harder rows come late.",
            "降低学习率或让它衰减；看看难样本是否集中在后面。",
        ),
        would_change=Text(
            "At learning rate 0 on the same batches the noise grows too.",
            "同样的 batch、学习率为 0 时噪声也在变大。",
        ),
        check=AT_ZERO,
        changes=RATE_TENTH,
    ),
    Cause(
        id="advice.popular",
        code=None,
        title=Text(
            "A setting that popular advice recommends does something else than is said of it",
            "照流行建议做的设置，实际作用与说法不同",
        ),
        severity="note",
        remedy=Text(
            "Keep it if it has a reason of its own, and look elsewhere for the symptom it was meant for.",
            "另有理由就保留；原本想解决的症状，请到别处找原因。",
        ),
        would_change=Text(
            "On the same batches with the same seed, a run without the setting lacks the symptom.",
            "同样的种子和 batch，去掉该设置后症状消失。",
        ),
        check="python -m runner check",
    ),
)
