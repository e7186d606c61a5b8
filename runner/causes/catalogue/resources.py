"""What the machine cannot hold: memory and disk."""

from __future__ import annotations

from runner.causes.catalogue.changes import both, hf
from runner.causes.cause import Cause
from runner.text import Text

CAUSES = (
    Cause(
        id="resources.memory",
        code=None,
        title=Text(
            "The run needs more memory than the device has free",
            "训练需要的内存超过设备的可用内存",
        ),
        severity="error",
        remedy=Text(
            "Fewer rows at once with more accumulation, gradient checkpointing, shorter rows, or LoRA.",
            "减小单卡批大小并增加梯度累积，打开梯度检查点，缩短样本，或改用 LoRA。",
        ),
        would_change=Text(
            "Other processes on the device end and free their memory.",
            "设备上的其他进程结束并释放内存。",
        ),
        check="python -m runner check",
        changes=both(
            hf(per_device_train_batch_size=1, gradient_checkpointing=True),
            runner=("batch.per_device_train_batch_size=1", "model.gradient_checkpointing=true"),
        ),
    ),
    Cause(
        id="resources.disk",
        code=None,
        title=Text(
            "The disk of the run folder is too small for the checkpoints",
            "输出目录所在磁盘放不下 checkpoint",
        ),
        severity="error",
        remedy=Text(
            "Keep fewer checkpoints, free space, or set output_dir to another disk.",
            "减少保留的 checkpoint，清理磁盘，或把 output_dir 设到另一块磁盘。",
        ),
        would_change=Text("Space is freed before the first checkpoint.", "第一个 checkpoint 之前腾出空间。"),
        check="python -m runner check",
        changes=both(hf(save_total_limit=1), runner=("checkpoint.save_total_limit=1",)),
    ),
)
