"""The sentences of a verdict that belong to no single cause."""

from __future__ import annotations

from typing import Any

import numpy as np

from runner.diagnosis.answers import LASTING, RISKY
from runner.diagnosis.sign import Signs, short
from runner.diagnosis.trace import Trace
from runner.diagnosis.verdict import Finding, Learning, Stability
from runner.text import Text, same

SHAKEN = (*LASTING, *RISKY)
"""Signs that make a run broken or put it at risk."""

MEANING = {
    "weights.damaged": Text(
        "The model in memory is damaged. No hyper-parameter causes this.",
        "内存中的模型权重已损坏，任何超参数都不会造成这种日志。",
    ),
    "weights.uninitialised": Text(
        "The model in memory is damaged, differently in each run. No hyper-parameter causes this.",
        "内存中的模型权重已损坏，且每次运行不同；任何超参数都不会造成这种日志。",
    ),
    "log.hidden_nan": Text(
        "The loss is NaN, not 0: the weights are destroyed from there on.", "loss 是 NaN 而不是 0：从那一步起权重已毁。"
    ),
}
"""Headlines that say more than the title of the cause."""

CANNOT_ACT = {
    "weights.uninitialised": Text(
        "learning rate, batch, clipping, class balance: none of them can print these lines",
        "学习率、batch、裁剪、类别不均衡：都不会打印出这两行",
    ),
    "weights.damaged": Text(
        "learning rate, batch, clipping, class balance: none of them can print these lines",
        "学习率、batch、裁剪、类别不均衡：都不会打印出这两行",
    ),
    "weights.dead_backbone": Text(
        "learning rate, warm-up, batch, clipping: a dead model does not react to them",
        "学习率、warmup、batch、裁剪：模型已死，改它们没有反应",
    ),
    "data.sampling_noise": Text(
        "a lower learning rate, another rank, scheduler or weight decay: they change the movement by about 0 %",
        "降学习率、换 rank、换调度器、加 weight decay：对波动的影响约为 0 %",
    ),
    "optim.learning_rate_too_high": Text(
        "more data, another rank or weight decay: the steps are too long whatever the rows are",
        "加数据、换 rank、加 weight decay：无论什么数据，步子都太大",
    ),
    "data.overfit": Text(
        "a lower learning rate at the same number of epochs only delays it", "轮数不变只降学习率，只会推迟过拟合"
    ),
}
"""What people try first and what cannot be the cause."""


def headline(trace: Trace, signs: Signs, stable: Stability, learns: Learning, findings: tuple[Finding, ...]) -> Text:
    """What is the matter, in one or two short sentences."""
    ill = [f for f in findings if f.severity != "note"]
    notes = {f.id for f in findings if f.severity == "note"}
    if trace.family == "reinforcement" and stable == "cannot_tell":
        return Text(
            "A reinforcement-learning log: its loss is no measure of progress, so it is not judged here.",
            "这是强化学习日志：loss 不代表进展，这里不作判断。",
        )
    if stable == "cannot_tell":
        return Text(
            f"Too short to tell: {trace.points} point(s) of the training loss.",
            f"太短，无法判断：只有 {trace.points} 个训练 loss 记录点。",
        )
    if stable in ("broken", "at_risk") or (ill and learns == "no"):
        first = next((f for f in ill if f.id != "log.hidden_nan"), ill[0] if ill else None)
        if first is not None and first.id in MEANING:
            return MEANING[first.id]
        if signs.has("hidden_nan"):
            return MEANING["log.hidden_nan"]
        broken = signs.evidence("nan_loss")
        if broken is not None and broken.steps and (first is None or first.confidence == "possible"):
            return Text(
                f"The loss is no number from step {broken.steps[0]} on; what broke it, the log does not show.",
                f"从第 {broken.steps[0]} 步起 loss 不再是数值；日志看不出原因。",
            )
        if first is not None and first.confidence == "possible" and stable == "broken":
            return Text(f"The run is broken; possibly: {_low(first.title.en)}", f"训练已损坏；可能是：{first.title.zh}")
        if first is not None:
            return _sentence(first.title)
        if signs.has("guard_acted"):
            return Text(
                "A step broke, and the guard kept it from the model. Find out why before the next run.",
                "有一步损坏，guard 已拦下，模型未受影响。下次运行前请查明原因。",
            )
        return Text(
            "The run is not healthy, for a reason that this log does not show.", "训练不健康，但日志看不出原因。"
        )
    calm = Text("Healthy: nothing in the loss is unstable.", "健康：loss 没有不稳定迹象。")
    if "data.sampling_noise" in notes and signs.has("foreseen"):
        calm = Text("The oscillation is your data, not a fault.", "震荡来自数据抽样，不是故障。")
    elif "data.sampling_noise" in notes:
        calm = Text(
            "The oscillation looks like batch sampling, not a fault.", "震荡看起来是 batch 抽样造成的，不是故障。"
        )
    if ill and ill[0].id == "optim.learning_rate_low":
        return Text(
            f"{calm.en} But it learns slowly: learning rate low.",
            f"{calm.zh}但学得慢：学习率偏低。",
        )
    if ill and (ill[0].severity == "error" or "data.sampling_noise" not in notes):
        return _sentence(ill[0].title)
    if ill:
        title = _sentence(ill[0].title)
        return Text(f"{calm.en} But: {_low(title.en)}", f"{calm.zh}但是：{title.zh}")
    tail = {
        "yes": Text("It learns.", "模型在学习。"),
        "slow": Text("But it learns slowly.", "但学得慢。"),
        "no": Text("But it does not learn.", "但没有在学习。"),
        "cannot_tell": Text("Whether it learns cannot be told yet.", "是否在学习还看不出来。"),
    }[learns]
    return Text(f"{calm.en} {tail.en}", f"{calm.zh}{tail.zh}")


def learned(signs: Signs) -> Text | None:
    """What is known about learning: the probe set first, then equal difficulty, held-out loss, the loss itself."""
    n: dict[str, Any] = signs.numbers
    parts: list[tuple[str, str]] = []
    if "probe_change" in n:
        en, zh = ("held-out ", "留出") if n.get("probe_held_out") else ("", "训练")
        change = f"{n['probe_change']:+.3g} +/- {n['probe_change_se']:.2g}"
        rows = n["probe_rows"]
        parts.append((f"the same {rows} {en}rows: {change} since the start", f"同样 {rows} 行{zh}数据：{change}"))
    if "adjusted_first" in n and signs.has("foreseen"):
        way = f"{short(n['adjusted_first'])} -> {short(n['adjusted_last'])}"
        smooth = f"{n['smoother']:.1f}"
        parts.append((f"at equal difficulty {way} ({smooth} x smoother)", f"同等难度下 {way}（平滑 {smooth} 倍）"))
    for name in ("eval_falls", "falls"):
        found = signs.evidence(name)
        if found is not None and len(parts) < 2:
            parts.append((found.text.en, found.text.zh))
    if not parts:
        return None
    return Text("; ".join(p[0] for p in parts[:2]), "；".join(p[1] for p in parts[:2]))


def not_known(trace: Trace, stable: Stability, findings: tuple[Finding, ...]) -> Text:
    """What the verdict rests on that it cannot see, and what would overturn it."""
    first = next((f for f in findings if f.severity != "note"), None)
    if stable == "cannot_tell":
        return Text("everything else: ask again with more points", "其余一切：请用更长的日志再试")
    if first is not None and stable in ("broken", "at_risk"):
        said = first.would_change
        return Text(f"overturned if: {_low(said.en)}", f"推翻条件：{said.zh}")
    if stable in ("broken", "at_risk"):
        return Text(
            "the cause: repeat the step (replay), or the run with one setting changed",
            "原因未知：重放该步（replay），或只改一个设置再跑",
        )
    if trace.facts is None:
        return Text(
            "the log holds no weights, rows or probes; what the model writes was not read",
            "日志里没有权重、数据和探针；未检查生成质量",
        )
    return Text(
        "turns to AT RISK if the loss moves more than 1.5 x the prediction or eval rises twice; answers were not read",
        "若波动超过预期 1.5 倍，或验证 loss 连升两次，本结论作废；未检查生成质量",
    )


def wanting(trace: Trace, signs: Signs) -> tuple[Text, ...]:
    """What to switch on so that the next verdict can say more."""
    found: list[Text] = []
    if trace.family == "reinforcement" or trace.points == 0:
        return ()
    if trace.facts is not None:
        off = trace.facts.config.get("stability", {})
        if off.get("telemetry") is False:
            found.append(Text("stability=observe writes every step", "stability=observe 会记录每一步"))
        elif "r_squared" not in signs.numbers and trace.points >= 20:
            found.append(
                Text(
                    "stability.base_loss=all shows how much of the movement is the data",
                    "stability.base_loss=all 可看出波动中有多少来自数据",
                )
            )
        return tuple(found)
    key = {
        "transformers": "logging_nan_inf_filter=False",
        "llamafactory": "logging_nan_inf_filter: false",
        "ms_swift": "--logging_nan_inf_filter false",
    }.get(trace.tool, "logging_nan_inf_filter=False")
    if signs.has("hidden_nan"):
        found.append(Text(f"{key} shows the NaN at the step it happens", f"{key} 可在发生的那一步看到 NaN"))
    if not trace.grad_norm.any:
        found.append(
            Text(
                "grad_norm is missing: trainer_state.json of the same run has it (transformers 4.38 or newer)",
                "缺少 grad_norm：同一次运行的 trainer_state.json 里有（transformers 4.38 以上）",
            )
        )
    if not trace.evaluations and not signs.has("hidden_nan", "zero_norm", "log_classes_zero_norm", "nan_lasts"):
        found.append(
            Text(
                "no held-out loss: overfitting cannot be seen (eval_strategy=steps)",
                "没有验证 loss：看不出过拟合（eval_strategy=steps）",
            )
        )
    if signs.has("oscillates") and not signs.has("foreseen", "not_foreseen", "control", "rate_zero", "diverges"):
        found.append(
            Text(
                "a run at learning rate 0 with the same seed, as --control, tells noise from fault",
                "用同一种子、学习率 0 再跑一次作为 --control，可区分噪声与故障",
            )
        )
    return tuple(found)


def saw(trace: Trace, signs: Signs, stable: Stability, findings: tuple[Finding, ...]) -> tuple[Text, ...]:
    """What the log shows, most telling first; no statement twice."""
    texts = [e.text for f in findings if f.severity != "note" for e in f.evidence]
    if trace.facts is not None and trace.facts.incidents and stable != "normal":
        first = trace.facts.incidents[0]
        texts.insert(0, same(str(first.get("sentence"))))
    if (beside := signs.evidence("control")) is not None:
        texts.insert(1 if texts else 0, beside.text)
    texts += [e.text for name in SHAKEN if (e := signs.evidence(name)) is not None]
    if not texts or (findings and findings[0].id == "optim.learning_rate_low"):
        # Nothing is broken: how much the loss moves against how much it should comes first.
        texts = [e.text for n in ("kappa_fits", "foreseen") if (e := signs.evidence(n)) is not None] + texts
    texts += [e.text for f in findings if f.severity == "note" for e in f.evidence]
    for name in ("foreseen", "not_foreseen", "kappa_high", "kappa_fits", "oscillates"):
        found = signs.evidence(name)
        if found is not None:
            texts.append(found.text)
    texts += list(trace.notes)
    if not texts:
        texts = [Text(f"{trace.points} point(s) of the training loss", f"{trace.points} 个训练 loss 记录点")]
    return tuple(dict.fromkeys(texts))


def _sentence(title: Text) -> Text:
    return Text(title.en.rstrip(".") + ".", title.zh.rstrip("。") + "。")


def _low(text: str) -> str:
    """The first letter small, unless the word is an abbreviation."""
    return text if len(text) > 1 and text[1].isupper() else text[:1].lower() + text[1:]


def finite(value: Any) -> bool:
    """Whether `value` is a finite number."""
    return isinstance(value, (int, float)) and bool(np.isfinite(value))
