"""A: weights and loading."""

from __future__ import annotations

from runner.causes.catalogue.changes import MODEL, ROWS, SHOW_NAN, both
from runner.causes.cause import Cause
from runner.text import Text

CAUSES = (
    Cause(
        id="weights.damaged",
        code="A2",
        title=Text(
            "The weights hold NaN or junk before step 1: a damaged file, or memory never filled",
            "第 1 步之前权重里就有 NaN 或乱码：文件损坏，或内存从未被写入",
        ),
        severity="error",
        remedy=Text(
            "Compare the files' sha256 with the published ones, fetch them again; delete every checkpoint of this run.",
            "核对权重文件的 sha256 并重新下载；删除本次训练的全部 checkpoint。",
        ),
        would_change=Text(
            "One forward pass with these weights in fp32 gives a finite loss on a plain sentence.",
            "用同一份权重在 fp32 下对一句普通文本做前向，loss 是有限值。",
        ),
        check=MODEL,
        changes=SHOW_NAN,
    ),
    Cause(
        id="weights.uninitialised",
        code="A1",
        title=Text(
            "A parameter was never filled: the checkpoint lacks it and no initialisation covers it",
            "有参数从未被写入：checkpoint 里没有它，初始化也没有覆盖它",
        ),
        severity="error",
        remedy=Text(
            "Initialise the missing parameters by hand (normal 0.02, norms 1) and assert that every weight is finite.",
            "手动初始化缺失的参数（正态 0.02，norm 层为 1），并断言所有权重都是有限值。",
        ),
        would_change=Text(
            "Two loads in one process give bit-identical weights, and the missing keys are empty.",
            "同一进程加载两次，权重逐位相同，且 missing_keys 为空。",
        ),
        check=MODEL,
        changes=both(
            {},
            transformers=("assert all(p.isfinite().all() for p in model.parameters())",),
        ),
    ),
    Cause(
        id="weights.dead_backbone",
        code="A2",
        title=Text(
            "The backbone outputs zeros: every logit is equal and no parameter gets a gradient",
            "主干网络输出全为 0：所有 logits 相同，没有任何参数收到梯度",
        ),
        severity="error",
        remedy=Text(
            "Look for all-zero tensors: a zero-filled file is fetched again, an unfilled parameter is initialised.",
            "查找全零张量：文件被零填充就重新下载，参数未写入就补上初始化。",
        ),
        would_change=Text(
            "No tensor of the loaded model is all zero: then the matrix multiply of this machine is left.",
            "加载后的模型没有全零张量：那就只剩本机的矩阵乘法。",
        ),
        check=MODEL,
    ),
    Cause(
        id="weights.keys_do_not_match",
        code="A3",
        title=Text(
            "Keys of the checkpoint do not match the model: its trunk started at random",
            "checkpoint 的键名与模型对不上：主干从随机值开始训练",
        ),
        severity="error",
        remedy=Text(
            "Load with the class that saved the checkpoint, or rename keys until the load report lists no trunk key.",
            "用保存时的模型类加载，或重命名键；加载报告里不应再出现主干参数。",
        ),
        would_change=Text(
            "The start model's loss on ordinary text is far below ln of the vocabulary size.",
            "起始模型在普通文本上的 loss 远低于 ln(词表大小)。",
        ),
        check=MODEL,
    ),
    Cause(
        id="weights.head_not_restored",
        code="A4",
        title=Text(
            "The classification head was not saved or not restored with the adapter",
            "分类头没有随 adapter 一起保存或恢复",
        ),
        severity="error",
        remedy=Text(
            "Train with task type SEQ_CLS and keep the head in modules_to_save; load the base first, then the adapter.",
            "用 SEQ_CLS 任务类型训练，把分类头放进 modules_to_save；先加载底座，再加载 adapter。",
        ),
        would_change=Text(
            "Logits before saving and after loading agree to four digits.",
            "保存前与加载后的 logits 有四位数字一致。",
        ),
        check=MODEL,
        changes=both(
            {},
            transformers=('peft_config = LoraConfig(task_type="SEQ_CLS", modules_to_save=["score"])',),
            ms_swift=("--modules_to_save score",),
        ),
    ),
    Cause(
        id="weights.token_rows",
        code="A5",
        title=Text(
            "Some tokens have no trained row in the embedding, or no row at all",
            "有些 token 在嵌入表中没有训练过的行，甚至没有行",
        ),
        severity="error",
        remedy=Text(
            "Use the instruct model or train the embeddings; keep len(tokenizer) rows or more, never shrink the table.",
            "换用 instruct 模型或训练嵌入层；嵌入行数不少于 len(tokenizer)，不要缩小词表。",
        ),
        would_change=Text(
            "Every id in the data has an embedding row of ordinary norm.",
            "数据里每个 id 都有范数正常的嵌入行。",
        ),
        check=ROWS,
    ),
    Cause(
        id="weights.zero_filled",
        code="A2",
        title=Text(
            "The weight file is filled with zeros where weights should be, under a valid header",
            "权重文件的文件头正常，但本应是权重的位置被零填充",
        ),
        severity="error",
        remedy=Text(
            "Fetch the file again and compare its sha256 with the published one; a download or copy ended early.",
            "重新下载该文件，并与发布的 sha256 核对；下载或复制曾提前中断。",
        ),
        would_change=Text(
            "The published file has the same sha256: then the zeros are meant, as in block expansion.",
            "发布的文件 sha256 相同：那么这些零是有意写入的，例如块扩展。",
        ),
        check=MODEL,
    ),
)
