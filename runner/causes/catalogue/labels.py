"""E1 to E7: labels, templates, tokens."""

from __future__ import annotations

from runner.causes.catalogue.changes import AFTER, LONGER, ROWS, both
from runner.causes.cause import Cause
from runner.text import Text

CAUSES = (
    Cause(
        id="labels.no_supervised_token",
        code="E1",
        title=Text(
            "No token is supervised: every label is -100, so loss and gradient are exactly 0",
            "没有任何 token 参与 loss：标签全是 -100，loss 和梯度恰好为 0",
        ),
        severity="error",
        remedy=Text(
            "Fill empty answers, fix the template or the response marker; print one row with its trained tokens.",
            "补上空回答，修正对话模板或回答标记；打印一条样本及其参与 loss 的 token。",
        ),
        would_change=Text(
            "A batch of the training data has labels other than -100.",
            "训练数据的某个 batch 中有不等于 -100 的标签。",
        ),
        check=ROWS,
        changes=both(
            {},
            runner=("task.train_on=answers", "dataset.preview=3"),
        ),
    ),
    Cause(
        id="labels.answer_truncated",
        code="E2",
        title=Text(
            "Truncation removes the answer of some rows, and with it their loss",
            "截断切掉了部分样本的回答，它们不再产生 loss",
        ),
        severity="warning",
        remedy=Text(
            "Raise the maximum length, or drop the rows that do not fit; count them.",
            "增大最大长度，或丢弃放不下的样本，并统计数量。",
        ),
        would_change=Text(
            "Every row keeps a supervised token after the cut.",
            "截断后每条样本都还有参与 loss 的 token。",
        ),
        check=ROWS,
        changes=LONGER,
    ),
    Cause(
        id="labels.no_generation_markers",
        code="E3",
        title=Text(
            "The template marks no assistant tokens, so the assistant mask is empty",
            "模板没有标出 assistant 的 token，掩码为空",
        ),
        severity="error",
        remedy=Text(
            "Use a template with generation markers around the answers.",
            "使用在回答两侧带 generation 标记的模板。",
        ),
        would_change=Text("The sum of the assistant mask is above 0.", "assistant 掩码之和大于 0。"),
        check=ROWS,
        changes=both(
            {},
            runner=("task.train_on=answers", "dataset.preview=3"),
            transformers=("assistant_only_loss=False",),
        ),
    ),
    Cause(
        id="labels.end_token",
        code="E4",
        title=Text(
            "The end token is never a label, so the model will not stop",
            "结束符从不作为标签，模型学不会停止",
        ),
        severity="warning",
        remedy=Text(
            "Use a pad token other than the end token, and the end token of the chat template.",
            "pad 不要与结束符相同，结束符用对话模板的那一个。",
        ),
        would_change=Text("Each answer ends with a supervised end token.", "每条回答都以参与 loss 的结束符收尾。"),
        check=ROWS,
    ),
    Cause(
        id="labels.double_bos",
        code="E5",
        title=Text("Every row starts with two begin tokens", "每条样本开头有两个 BOS"),
        severity="warning",
        remedy=Text(
            "Tokenise rendered text with add_special_tokens=False.",
            "对已渲染的文本分词时设 add_special_tokens=False。",
        ),
        would_change=Text("The first two ids of a row differ.", "样本的前两个 id 不同。"),
        check=ROWS,
    ),
    Cause(
        id="labels.pad_token",
        code="E6",
        title=Text(
            "The pad id is missing or wrong: the classifier reads the wrong token",
            "pad id 缺失或错误：分类器取到了错误的 token",
        ),
        severity="error",
        remedy=Text(
            "Set model.config.pad_token_id to the tokenizer's.",
            "把 model.config.pad_token_id 设为 tokenizer 的值。",
        ),
        would_change=Text(
            "One row alone and the same row in a padded batch give equal logits.",
            "同一条样本单独输入与在填充后的 batch 中，logits 相等。",
        ),
        check=AFTER,
        changes=both({}, transformers=("model.config.pad_token_id = tokenizer.pad_token_id",)),
    ),
    Cause(
        id="labels.ids_or_dtype",
        code="E7",
        title=Text(
            "Class ids or their type do not fit the head: the wrong loss is computed",
            "类别 id 或类型与分类头不符：算的不是想要的 loss",
        ),
        severity="error",
        remedy=Text(
            "Give every row one of K labels, 2 or more, by name or as 0 to K - 1; a number to predict is no class.",
            "每条样本给出 K 个（至少 2 个）标签之一，用名称或 0 到 K - 1；要预测的数值不是类别。",
        ),
        would_change=Text(
            "The labels are integers from 0 to K - 1 and the first loss is near ln K.",
            "标签是 0 到 K - 1 的整数，且首个 loss 接近 ln K。",
        ),
        check=AFTER,
        changes=both({}, transformers=('model.config.problem_type = "single_label_classification"',)),
    ),
    Cause(
        id="data.label_mismatch",
        code="E7",
        title=Text(
            "Labels do not belong to their inputs: the loss starts above what guessing would give",
            "标签与输入对不上：loss 一开始比随机猜测还高",
        ),
        severity="error",
        remedy=Text(
            "Decode three rows and read input and label side by side; look for a shift, a shuffle or a wrong column.",
            "解码三条样本，对照输入和标签；检查是否错位、打乱或取错列。",
        ),
        would_change=Text(
            "The start model's loss on the same rows is as high: then the text itself is hard.",
            "起始模型在同样的数据上 loss 也这么高：那是文本本身难。",
        ),
        check=ROWS,
    ),
)
