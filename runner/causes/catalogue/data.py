"""E8, E9 and what the data do to a curve."""

from __future__ import annotations

from runner.causes.catalogue.changes import AFTER, AGAIN, AT_ZERO, EVERY_STEP, REPORT, ROWS, both, hf
from runner.causes.cause import Cause
from runner.text import Text

CAUSES = (
    Cause(
        id="data.order",
        code="E8",
        title=Text(
            "Rows come in blocks: the loss follows which part of the data is being read",
            "数据成块出现：loss 跟着正在读的那部分数据走",
        ),
        severity="warning",
        remedy=Text(
            "Shuffle, with every source in each batch; the final quality depends on it, the curve too.",
            "打乱数据，让每个 batch 含各个来源；这影响曲线，也影响最终质量。",
        ),
        would_change=Text(
            "The waves stay after shuffling with another seed.",
            "换随机种子打乱后，波浪仍在。",
        ),
        check=AT_ZERO,
        changes=both(
            {},
            runner=("batch.sampler=stratified",),
            transformers=('train_sampling_strategy="random"',),
            llamafactory=("disable_shuffling: false",),
            ms_swift=("--dataset_shuffle true", "--train_dataloader_shuffle true"),
        ),
    ),
    Cause(
        id="data.duplicated",
        code="E8",
        title=Text(
            "Rows repeat: workers or files deliver the same examples several times",
            "样本重复：多个 worker 或文件送来同样的样本",
        ),
        severity="warning",
        remedy=Text(
            "Drop exact duplicates, and give a text one label; a stream that several workers read is split among them.",
            "去掉完全重复的样本，同一文本只保留一个标签；多个 worker 读取的数据流要按 worker 切分。",
        ),
        would_change=Text(
            "No row id occurs twice within an epoch.",
            "一个 epoch 内没有重复的样本 id。",
        ),
        check=AGAIN,
        changes=both({}, runner=("dataset.dedup=exact",), transformers=("dataloader_num_workers=0",)),
    ),
    Cause(
        id="data.bad_batch",
        code="E9",
        title=Text(
            "Single batches stand out: a few rows are broken or far too long",
            "个别 batch 异常：有几条样本损坏或过长",
        ),
        severity="warning",
        remedy=Text(
            "Read the rows of those steps; repair or drop them.",
            "查看这些步用到的样本，修复或删除。",
        ),
        would_change=Text(
            "With another order the spikes stay at the same steps: then state or schedule is the cause.",
            "换一个顺序后尖峰仍在同样的步：那原因在训练状态或调度。",
        ),
        check=REPORT,
        changes=both(EVERY_STEP, runner=("stability=guarded", "dataset.too_long=drop")),
    ),
    Cause(
        id="data.length_grouping",
        code=None,
        title=Text(
            "Length grouping makes the loss swing: batches of short rows alternate with long ones",
            "按长度分组使 loss 周期摆动：短样本和长样本的 batch 交替出现",
        ),
        severity="note",
        remedy=Text(
            "Nothing, it saves padding; with random order the swing is gone.",
            "无需处理，它节省填充；改成随机顺序就没有摆动。",
        ),
        would_change=Text("The period stays with random order.", "随机顺序下周期仍在。"),
        check=AFTER,
        changes=both(
            {},
            runner=("batch.sampler=random",),
            transformers=('train_sampling_strategy="random"',),
            ms_swift=("--group_by_length false",),
        ),
    ),
    Cause(
        id="data.sampling_noise",
        code=None,
        title=Text(
            "The oscillation is sampling noise: easy and hard batches take turns",
            "震荡是数据抽样噪声：难易不同的 batch 轮流出现",
        ),
        severity="note",
        remedy=Text(
            "Nothing. Judge by the evaluation loss; a larger batch makes the curve smoother, not the model better.",
            "无需处理。以验证 loss 为准；加大 batch 只让曲线更平滑，不提高质量。",
        ),
        would_change=Text(
            "At learning rate 0 on the same batches the curve is calm.",
            "同样的 batch、学习率为 0 时曲线是平静的。",
        ),
        check=AT_ZERO,
        changes=both({}, runner=("batch.global_batch_size={batch_times_four}", "batch.sampler=stratified")),
    ),
    Cause(
        id="data.hard_labels",
        code=None,
        title=Text(
            "The loss has a floor: the answers leave this much open, whatever the model learns",
            "loss 有下限：答案本身就有这么多不确定性",
        ),
        severity="note",
        remedy=Text(
            "Judge by a task metric; cleaner labels lower the floor, training longer does not.",
            "用任务指标判断；标签更干净下限才会更低，训练更久没有用。",
        ),
        would_change=Text(
            "A larger model of the same family goes clearly below this level.",
            "同系列更大的模型明显低于这个水平。",
        ),
        check=AT_ZERO,
    ),
    Cause(
        id="data.overfit",
        code=None,
        title=Text(
            "The model memorises: the training loss falls while the evaluation loss rises",
            "模型在背数据：训练 loss 下降，验证 loss 上升",
        ),
        severity="warning",
        remedy=Text(
            "Keep the checkpoint with the lowest evaluation loss and train fewer epochs.",
            "使用验证 loss 最低的 checkpoint，并减少 epoch。",
        ),
        would_change=Text(
            "Your task metric goes on improving although the evaluation loss rises.",
            "验证 loss 上升，但任务指标仍在提高。",
        ),
        check=AGAIN,
        changes=both(
            hf(
                num_train_epochs="{epochs_best}",
                eval_strategy="epoch",
                save_strategy="epoch",
                load_best_model_at_end=True,
            ),
            runner=(
                "schedule.num_train_epochs={epochs_best}",
                "evaluation.eval_strategy=epoch",
                "checkpoint.save_strategy=epoch",
                "checkpoint.load_best_model_at_end=true",
            ),
        ),
    ),
    Cause(
        id="data.epoch_staircase",
        code="G2",
        title=Text(
            "The loss steps down at each epoch: the model sees the same rows again",
            "loss 在每个 epoch 开头下一个台阶：模型再次看到同样的数据",
        ),
        severity="note",
        remedy=Text(
            "Nothing, as long as the evaluation loss does not rise; without one, hold some rows out.",
            "只要验证 loss 不上升就无需处理；没有验证集就留出一些样本。",
        ),
        would_change=Text(
            "The evaluation loss rises from one epoch to the next.",
            "验证 loss 逐个 epoch 上升。",
        ),
        check=AGAIN,
        changes=both(hf(eval_strategy="epoch"), runner=("evaluation.eval_strategy=epoch",)),
    ),
    Cause(
        id="data.validation_overlap",
        code="E8",
        title=Text(
            "Held-out rows are trained on too, so the evaluation loss shows what was memorised",
            "验证样本也在训练集中，验证 loss 反映的是记忆",
        ),
        severity="warning",
        remedy=Text(
            "Drop exact duplicates before the split, or hold out a source of its own.",
            "划分之前去掉完全重复的样本，或单独留出一个数据来源。",
        ),
        would_change=Text(
            "No held-out row has an equal among the training rows.",
            "没有任何验证样本与训练样本相同。",
        ),
        check=ROWS,
        changes=both({}, runner=("dataset.dedup=exact",)),
    ),
    Cause(
        id="data.class_balance",
        code=None,
        title=Text(
            "One class is so frequent or so rare that accuracy says little about the others",
            "某个类别过多或过少，准确率几乎不能反映其他类别",
        ),
        severity="note",
        remedy=Text(
            "Judge by macro-F1, and weight the classes in the loss where the rare one matters.",
            "以 macro-F1 为准；如果少数类重要，在 loss 中为各类加权。",
        ),
        would_change=Text(
            "Macro-F1 is as high as the accuracy.",
            "macro-F1 与准确率一样高。",
        ),
        check=ROWS,
    ),
)
