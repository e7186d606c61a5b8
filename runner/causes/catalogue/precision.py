"""C: number formats."""

from __future__ import annotations

from runner.causes.catalogue.changes import AFTER, AGAIN, BF16, Changes, both, hf
from runner.causes.cause import Cause
from runner.text import Text

_FP32_MASTER: Changes = both(
    hf(bf16=True, fp16=False),
    runner=("precision.trainable_weights=fp32",),
    transformers=("model.float()",),
    llamafactory=("pure_bf16: false",),
    ms_swift=("--torch_dtype float32",),
)

CAUSES = (
    Cause(
        id="precision.fp16_weights",
        code="C1",
        title=Text(
            "The weights themselves are fp16: AdamW divides 0 by 0 in the first update",
            "权重本身是 fp16：AdamW 第一次更新就算出 0/0",
        ),
        severity="error",
        remedy=Text(
            "Keep the trained weights in fp32 and compute in bf16; delete the checkpoints since the first NaN.",
            "训练的权重保持 fp32，计算用 bf16；删除出现 NaN 之后的 checkpoint。",
        ),
        would_change=Text(
            "The trained parameters are fp32 and the second step is still NaN.",
            "可训练参数是 fp32，而第二步仍是 NaN。",
        ),
        check=AFTER,
        changes=_FP32_MASTER,
    ),
    Cause(
        id="precision.fp16_overflow",
        code="C2",
        title=Text(
            "fp16 overflows: a value passes 65,504 in a model that was trained in bf16",
            "fp16 溢出：数值超过 65504，而这个模型是用 bf16 训练的",
        ),
        severity="error",
        remedy=Text(
            "Train in bf16: the same memory and speed, with the range of fp32.",
            "改用 bf16：显存和速度相同，数值范围与 fp32 一样。",
        ),
        would_change=Text(
            "The same step in fp32 is not finite either.",
            "同一步在 fp32 下也不是有限值。",
        ),
        check=AFTER,
        changes=BF16,
    ),
    Cause(
        id="precision.scaler_meets_fp16_weights",
        code="C3",
        title=Text(
            "The gradient scaler meets fp16 weights and refuses to unscale them",
            "GradScaler 遇到 fp16 权重，拒绝反缩放",
        ),
        severity="error",
        remedy=Text(
            "Convert the trained parameters to fp32, or train in bf16, which needs no scaler.",
            "把可训练参数转成 fp32，或改用不需要 GradScaler 的 bf16。",
        ),
        would_change=Text("All trainable parameters are fp32.", "所有可训练参数都是 fp32。"),
        check=AFTER,
        changes=_FP32_MASTER,
    ),
    Cause(
        id="precision.loss_scale_exhausted",
        code="C4",
        title=Text(
            "The loss scale fell to its minimum: fp16 overflows at every scale",
            "loss scale 已降到最低：fp16 在任何缩放下都溢出",
        ),
        severity="error",
        remedy=Text(
            "Train in bf16; a fixed loss scale only hides the overflow.",
            "改用 bf16；固定 loss scale 只会掩盖溢出。",
        ),
        would_change=Text(
            "The scale grows again and steps are taken.",
            "loss scale 重新上升，参数恢复更新。",
        ),
        check=AFTER,
        changes=BF16,
    ),
    Cause(
        id="precision.fp16_scale_search",
        code="C4",
        title=Text(
            "fp16 searched for its loss scale at the start: those steps were skipped, as designed",
            "fp16 在开头寻找 loss scale：跳过的这几步是设计如此",
        ),
        severity="note",
        remedy=Text(
            "Nothing: the scale starts high and halves until nothing overflows.",
            "无需处理：loss scale 从高处开始，逐次减半，直到不再溢出。",
        ),
        would_change=Text(
            "More than 20 skipped steps, or skips that come back late in the run.",
            "跳过超过 20 步，或训练后期又出现跳步。",
        ),
        check=AGAIN,
    ),
    Cause(
        id="precision.isolated_overflow",
        code=None,
        title=Text(
            "One or two gradient norms were not finite; the scaler skipped those steps",
            "有一两步的梯度范数不是有限值，已被 GradScaler 跳过",
        ),
        severity="note",
        remedy=Text(
            "Nothing: the loss goes on as before. bf16 avoids it.",
            "无需处理：loss 走势不变。改用 bf16 可避免。",
        ),
        would_change=Text(
            "The loss after such a step leaves its earlier level, or becomes 0.0.",
            "这样的一步之后 loss 离开原来的水平，或变成 0.0。",
        ),
        check=AGAIN,
        changes=BF16,
    ),
    Cause(
        id="precision.lost_updates",
        code="C5",
        title=Text(
            "Updates are rounded away: bf16 weights have no value so close to the old one",
            "更新被舍入掉了：bf16 权重在旧值附近没有更近的可表示值",
        ),
        severity="error",
        remedy=Text(
            "Keep the trained weights in fp32 and let autocast compute in bf16.",
            "训练的权重保持 fp32，由 autocast 用 bf16 计算。",
        ),
        would_change=Text(
            "The trained parameters are fp32, or more than 80 % of them change in a step.",
            "可训练参数是 fp32，或每一步有 80 % 以上的元素发生变化。",
        ),
        check=AFTER,
        changes=_FP32_MASTER,
    ),
    Cause(
        id="evaluation.not_finite",
        code="C6",
        title=Text(
            "The evaluation loss is NaN or infinite while training is finite",
            "验证 loss 是 NaN 或无穷大，而训练 loss 正常",
        ),
        severity="error",
        remedy=Text(
            "Evaluate in bf16 or fp32, and look for validation rows whose answer was cut off.",
            "用 bf16 或 fp32 做验证，并检查验证集中答案被截掉的样本。",
        ),
        would_change=Text(
            "The evaluation in fp32 is not finite and every validation row has a supervised token.",
            "fp32 下验证 loss 仍非有限值，且每条验证样本都有参与 loss 的 token。",
        ),
        check=AFTER,
        changes=both(hf(fp16_full_eval=False, bf16_full_eval=False), runner=("precision=fp32",)),
    ),
)
