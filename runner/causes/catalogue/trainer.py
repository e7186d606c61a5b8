"""F and G1: arithmetic of the trainer, its log, and resuming."""

from __future__ import annotations

from runner.causes.catalogue.changes import AFTER, AGAIN, SHOW_NAN, both, hf
from runner.causes.cause import Cause
from runner.text import Text

CAUSES = (
    Cause(
        id="trainer.accumulation_not_divided",
        code="F1",
        title=Text(
            "The loss is multiplied by the accumulation: its first value is a whole multiple of ln K",
            "loss 被乘上了累积步数：首个值是 ln K 的整数倍",
        ),
        severity="warning",
        remedy=Text(
            "Set model.accepts_loss_kwargs = False before the Trainer is built; loss and gradient fall by that factor.",
            "创建 Trainer 之前设 model.accepts_loss_kwargs = False；loss 和梯度随之缩小同样的倍数。",
        ),
        would_change=Text(
            "With accumulation 1 the first loss is as high.",
            "累积步数为 1 时首个 loss 一样高。",
        ),
        check=AFTER,
        changes=both({}, transformers=("model.accepts_loss_kwargs = False",)),
    ),
    Cause(
        id="trainer.mean_of_means",
        code="F2",
        title=Text(
            "The loss is a mean of means: it depends on how a batch is split",
            "loss 是均值的均值：数值取决于 batch 的切分方式",
        ),
        severity="warning",
        remedy=Text(
            "Use transformers 4.48 or newer, which divides by the tokens of the whole step.",
            "使用 transformers 4.48 或更新版本，它按整步的 token 数求平均。",
        ),
        would_change=Text(
            "The same rows give the same loss at accumulation 1 and 4.",
            "同样的样本在累积步数 1 和 4 时 loss 相同。",
        ),
        check=AFTER,
    ),
    Cause(
        id="log.hidden_nan",
        code="F3",
        title=Text(
            "The log hides NaN: Trainer prints a NaN loss as 0.0",
            "日志掩盖了 NaN：Trainer 把 NaN 的 loss 显示成 0.0",
        ),
        severity="error",
        remedy=Text(
            "Switch the filter off and log every step; the first NaN then shows at its own step.",
            "关闭过滤器并每步记录，首个 NaN 就会出现在它发生的那一步。",
        ),
        would_change=Text(
            "With the filter off the loss is still 0.0.",
            "关闭过滤器后 loss 仍是 0.0。",
        ),
        check=AFTER,
        changes=SHOW_NAN,
    ),
    Cause(
        id="trainer.packing_leak",
        code="F4",
        title=Text(
            "Packed documents see each other: the loss differs from the unpacked one",
            "打包的文档互相可见：loss 与不打包时不同",
        ),
        severity="warning",
        remedy=Text(
            "Isolate the documents (position ids without an attention mask), or switch packing off.",
            "隔离各文档（只给 position ids，不给 attention mask），或关闭打包。",
        ),
        would_change=Text(
            "The second document has the same logits alone and packed.",
            "第二个文档单独和打包时的 logits 相同。",
        ),
        check=AFTER,
        changes=both(
            {},
            transformers=("packing=False",),
            llamafactory=("neat_packing: true",),
            ms_swift=("--packing false",),
        ),
    ),
    Cause(
        id="trainer.different_quantity",
        code="F5",
        title=Text(
            "The two losses that are compared are not the same quantity",
            "拿来比较的两个 loss 不是同一个量",
        ),
        severity="note",
        remedy=Text(
            "Compute one batch by hand, per token and per row; the ratio is devices, accumulation or tokens.",
            "手算一个 batch，分别按 token 和按样本；比值就是卡数、累积步数或 token 数。",
        ),
        would_change=Text(
            "The ratio changes from step to step.",
            "比值每一步都不同。",
        ),
        check=AGAIN,
    ),
    Cause(
        id="lifecycle.resume_discontinuity",
        code="G1",
        title=Text(
            "Resuming restored less than the run had: the loss steps up at the restart",
            "续训没有恢复全部状态：重启处 loss 跳高",
        ),
        severity="warning",
        remedy=Text(
            "Resume from a checkpoint with optimizer, scheduler and random state; weights alone start anew.",
            "从含优化器、调度器和随机状态的 checkpoint 续训；只有权重等于重新开始。",
        ),
        would_change=Text(
            "Another seed without a restart steps up at the same step.",
            "换种子且不重启，同一步也跳高。",
        ),
        check=AGAIN,
        changes=both(
            {},
            runner=("checkpoint.resume=auto",),
            transformers=("trainer.train(resume_from_checkpoint=True)",),
            llamafactory=("resume_from_checkpoint: CHECKPOINT",),
            ms_swift=("--resume_from_checkpoint CHECKPOINT",),
        ),
    ),
    Cause(
        id="evaluation.noisy",
        code=None,
        title=Text(
            "The evaluation set is small: its loss moves by chance",
            "验证集太小：它的 loss 随机波动",
        ),
        severity="note",
        remedy=Text(
            "Hold out more rows; evaluating less often changes nothing.",
            "增加验证样本；减少验证频率没有作用。",
        ),
        would_change=Text(
            "The changes are larger than twice their standard error.",
            "变化超过其标准误的两倍。",
        ),
        check=AGAIN,
        changes=both(
            {},
            runner=("dataset.validation.fraction=0.1",),
            llamafactory=("val_size: 0.1",),
            ms_swift=("--split_dataset_ratio 0.1",),
        ),
    ),
    Cause(
        id="log.too_short",
        code=None,
        title=Text(
            "The log is too short to judge",
            "日志太短，无法判断",
        ),
        severity="note",
        remedy=Text("Log every step and come back with 30 points or more.", "每步记录，有 30 个点以上再看。"),
        would_change=Text("More points.", "更多的点。"),
        check=AGAIN,
        changes=both(hf(logging_steps=1), runner=("tracking.logging_steps=1",)),
    ),
    Cause(
        id="log.reinforcement",
        code=None,
        title=Text(
            "A reinforcement-learning log: its loss is no measure of learning",
            "强化学习日志：它的 loss 不反映学习情况",
        ),
        severity="note",
        remedy=Text(
            "Judge by reward, KL and entropy.",
            "看 reward、KL 和 entropy。",
        ),
        would_change=Text(
            "The log comes from supervised fine-tuning after all.",
            "日志其实来自监督微调。",
        ),
        check=AGAIN,
    ),
)
