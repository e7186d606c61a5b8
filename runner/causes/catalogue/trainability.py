"""B1 to B4: what receives gradients, and what the optimizer moves."""

from __future__ import annotations

from runner.causes.catalogue.changes import AFTER, AGAIN, both
from runner.causes.cause import Cause
from runner.text import Text

_HASH = Text(
    "Weights hashed before and after five steps differ.",
    "前后相隔 5 步的权重哈希不同。",
)

CAUSES = (
    Cause(
        id="trainability.nothing_trains",
        code="B1",
        title=Text(
            "Nothing trains: the gradient norm is 0 because no parameter is trainable",
            "什么都没有在训练：没有可训练参数，所以梯度范数为 0",
        ),
        severity="error",
        remedy=Text(
            "Load the adapter with is_trainable=True and check that the optimizer holds more than 0 parameters.",
            "加载 adapter 时设 is_trainable=True，并确认优化器里的参数数不为 0。",
        ),
        would_change=_HASH,
        check=AGAIN,
        changes=both(
            {},
            runner=("lora=default",),
            transformers=("model = PeftModel.from_pretrained(model, ADAPTER, is_trainable=True)",),
        ),
    ),
    Cause(
        id="trainability.checkpointing_without_inputs",
        code="B2",
        title=Text(
            "Gradient checkpointing cuts the graph: no input of a block needs a gradient",
            "梯度检查点切断了计算图：没有任何输入需要梯度",
        ),
        severity="error",
        remedy=Text(
            "Call model.enable_input_require_grads(), or use non-reentrant checkpointing.",
            "调用 model.enable_input_require_grads()，或使用非重入的梯度检查点。",
        ),
        would_change=Text(
            "After one backward pass every trainable parameter has a gradient.",
            "反向传播一次之后，每个可训练参数都有梯度。",
        ),
        check=AFTER,
        changes=both(
            {},
            runner=("model.gradient_checkpointing=false",),
            transformers=("model.enable_input_require_grads()",),
            llamafactory=("use_reentrant_gc: false",),
            ms_swift=("--gradient_checkpointing_kwargs '{{\"use_reentrant\": false}}'",),
        ),
    ),
    Cause(
        id="trainability.head_frozen",
        code="B3",
        title=Text(
            "The classification head is frozen, so the loss stays at chance",
            "分类头被冻结，loss 停在随机猜测的水平",
        ),
        severity="error",
        remedy=Text(
            "Unfreeze the head: task type SEQ_CLS, or modules_to_save with its name.",
            "解冻分类头：任务类型设为 SEQ_CLS，或把它的名字写进 modules_to_save。",
        ),
        would_change=Text(
            "The head is in the list of trainable parameters and its values differ from zero.",
            "分类头在可训练参数列表里，且数值不为零。",
        ),
        check=AGAIN,
        changes=both(
            {},
            transformers=('peft_config = LoraConfig(task_type="SEQ_CLS", modules_to_save=["score"])',),
            ms_swift=("--modules_to_save score",),
        ),
    ),
    Cause(
        id="trainability.stale_optimizer",
        code="B4",
        title=Text(
            "The optimizer holds the parameters of another model: gradients flow, weights stay",
            "优化器拿着另一个模型的参数：有梯度，但权重不动",
        ),
        severity="error",
        remedy=Text(
            "Build the optimizer after the model is loaded, wrapped and moved, from the model that is trained.",
            "先把模型加载、包装、搬到设备上，再用这个模型的参数创建优化器。",
        ),
        would_change=_HASH,
        check=AGAIN,
    ),
)
