"""D and G3, G4: kernels, devices, engines."""

from __future__ import annotations

from runner.causes.catalogue.changes import AFTER, EAGER, MODEL, both
from runner.causes.cause import Cause
from runner.text import Text

CAUSES = (
    Cause(
        id="kernels.masked_rows",
        code="D1",
        title=Text(
            "The attention kernel returns NaN for rows that are all padding",
            "整行都是 padding 时，注意力内核返回 NaN",
        ),
        severity="error",
        remedy=Text(
            "Use eager attention or a newer torch; pad on the right.",
            "改用 eager 注意力或更新的 torch；右侧填充。",
        ),
        would_change=Text(
            "The same batch without padding is NaN too.",
            "同一批数据去掉 padding 后仍是 NaN。",
        ),
        check=AFTER,
        changes=EAGER,
    ),
    Cause(
        id="kernels.attention_backend",
        code="D2",
        title=Text(
            "The GPU's attention kernel makes the gradient NaN while the loss is finite",
            "GPU 注意力内核让梯度变成 NaN，而 loss 是有限值",
        ),
        severity="error",
        remedy=Text(
            "Rerun with eager attention. Clean: keep sdpa and call torch.backends.cuda.enable_cudnn_sdp(False).",
            "换成 eager 注意力重跑；若正常，则继续用 sdpa，并调用 torch.backends.cuda.enable_cudnn_sdp(False)。",
        ),
        would_change=Text(
            "The NaN comes at the same step with eager attention.",
            "eager 注意力下同一步仍出现 NaN。",
        ),
        check=AFTER,
        changes=EAGER,
    ),
    Cause(
        id="kernels.matmul_unwritten",
        code="D3",
        title=Text(
            "A matrix multiply on this device leaves its output unwritten, or writes it wrong",
            "本机的矩阵乘法没有写出结果，或结果错误",
        ),
        severity="error",
        remedy=Text(
            "Do not train on this build: install another torch build (BLAS, OpenMP) or use another device.",
            "不要用这个环境训练：更换 torch 版本（BLAS、OpenMP），或换设备。",
        ),
        would_change=Text(
            "Matrix products of the model's shapes agree with float64, three times in a row.",
            "与模型同形状的矩阵乘法连续三次都与 float64 一致。",
        ),
        check=MODEL,
    ),
    Cause(
        id="kernels.fused_loss",
        code="D4",
        title=Text(
            "A fused loss kernel disagrees with torch's cross-entropy",
            "融合 loss 内核的结果与 torch 交叉熵不一致",
        ),
        severity="error",
        remedy=Text(
            "Switch the fused kernel off and compare loss and gradient norm on one batch.",
            "关闭融合内核，用同一批数据比较 loss 和梯度范数。",
        ),
        would_change=Text(
            "Loss and gradient norm are the same without it.",
            "关闭后 loss 和梯度范数不变。",
        ),
        check=AFTER,
        changes=both(
            {},
            transformers=("use_liger_kernel=False",),
            llamafactory=("enable_liger_kernel: false",),
            ms_swift=("--use_liger_kernel false",),
        ),
    ),
    Cause(
        id="precision.quantised_head",
        code="D5",
        title=Text(
            "The classification head sits in half precision on a quantised base",
            "量化底座上的分类头是半精度",
        ),
        severity="error",
        remedy=Text(
            "Keep the head in fp32 and out of the quantisation.",
            "分类头保持 fp32，并排除在量化之外。",
        ),
        would_change=Text(
            "The unquantised model breaks at the same step.",
            "不量化时同一步也出错。",
        ),
        check=AFTER,
        changes=both({}, runner=("model.quantization=null",), transformers=("model.score.float()",)),
    ),
    Cause(
        id="engine.overlap_race",
        code="G3",
        title=Text(
            "The gradient norm is frozen at a square root: DeepSpeed hides NaN, overlap_comm races",
            "梯度范数停在某个平方根：DeepSpeed 掩盖了 NaN，overlap_comm 存在竞争",
        ),
        severity="error",
        remedy=Text(
            'Set "overlap_comm": false in the DeepSpeed JSON or use ZeRO-3; delete the checkpoints of this run.',
            '在 DeepSpeed JSON 中设置 "overlap_comm": false，或用 ZeRO-3；删除本次训练的 checkpoint。',
        ),
        would_change=Text(
            "The norm stays frozen without overlap_comm: then weights or number format come first.",
            "关闭 overlap_comm 后范数仍不变：那先查权重和精度。",
        ),
        check=AFTER,
    ),
    Cause(
        id="engine.shard_init",
        code="G4",
        title=Text(
            "ZeRO-3 initialised the head or the embedding on an empty shard",
            "ZeRO-3 在空分片上初始化了分类头或嵌入层",
        ),
        severity="error",
        remedy=Text(
            "Gather the parameter before it is initialised, or initialise it before sharding.",
            "初始化前先 gather 该参数，或在分片之前初始化。",
        ),
        would_change=Text(
            "The gathered head has an ordinary spread on every rank.",
            "gather 之后分类头在每个 rank 上的标准差都正常。",
        ),
        check=AFTER,
    ),
    Cause(
        id="engine.wrong_gradients",
        code=None,
        title=Text(
            "This version of the engine leaves out a part of the gradient",
            "该版本的引擎漏掉了一部分梯度",
        ),
        severity="error",
        remedy=Text(
            "Install a version that is not affected, or use another ZeRO stage.",
            "安装不受影响的版本，或改用其他 ZeRO 阶段。",
        ),
        would_change=Text(
            "The gradient norm of the first step is the same under ZeRO-3 or in one process.",
            "第一步的梯度范数与 ZeRO-3 或单进程时相同。",
        ),
        check=AFTER,
    ),
    Cause(
        id="engine.clip_not_applied",
        code=None,
        title=Text(
            "DeepSpeed was not told to clip: the clip limit that is set does nothing",
            "没有让 DeepSpeed 裁剪：设置的裁剪阈值不起作用",
        ),
        severity="warning",
        remedy=Text(
            'Put "gradient_clipping": "auto" into the DeepSpeed JSON; it then takes the limit of the trainer.',
            '在 DeepSpeed JSON 中加入 "gradient_clipping": "auto"，它就会使用 Trainer 的阈值。',
        ),
        would_change=Text(
            "DeepSpeed prints gradient_clipping with the limit when it starts.",
            "DeepSpeed 启动时打印的 gradient_clipping 就是该阈值。",
        ),
        check=AFTER,
    ),
)
