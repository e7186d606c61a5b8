"""Traces and verdicts to draw: a healthy run folder, a run that became NaN, the logs of other tools."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.config.schema import Config
from runner.diagnosis.trace import Column, Evaluations, Restart, RunFacts, Trace, column
from runner.diagnosis.verdict import Evidence, Finding, Verdict
from runner.text import Text, same

NONE = column([])


def known(values: NDArray[np.float64]) -> Column:
    """A column that the log has at every point."""
    return Column(np.asarray(values, dtype=np.float64), np.ones(len(values), dtype=bool))


def every(values: NDArray[np.float64], k: int) -> Column:
    """A column that the log has at every k-th point."""
    there = np.arange(len(values)) % k == 0
    return Column(np.where(there, values, np.nan), there)


def config(**more: Any) -> dict[str, Any]:
    """The configuration of a run that differs from the defaults in some keys."""
    made: dict[str, Any] = dataclasses.asdict(Config())
    made["model"]["path"] = "Qwen/Qwen1.5-14B-Chat"
    made["optim"]["learning_rate"] = 1e-5
    made["precision"]["compute"] = "fp16"
    made["name"] = "qwen14b_lora"
    made["dataset"]["sources"] = {"alpaca_zh": {"path": "data/alpaca_zh.jsonl", "format": "auto"}}
    made["dataset"]["default_system"] = "You answer as the harbour master."
    return made | more


def healthy(n: int = 470, seed: int = 0) -> Trace:
    """A run folder whose loss oscillates because of its data, with everything that telemetry holds."""
    rng = np.random.default_rng(seed)
    steps = np.arange(1, n + 1)
    base = 1.45 + 0.1 * rng.standard_normal(n)
    loss = 1.41 - 0.05 * steps / n + 0.97 * (base - 1.45) + 0.012 * rng.standard_normal(n)
    norms = 0.42 * np.exp(0.35 * rng.standard_normal(n))
    norms[min(211, n - 1)] = 6.8
    rate = np.minimum(steps / 24, (n - steps) / max(n - 24, 1)) * 1e-5
    scale = np.where(steps < n // 3, 65536.0, 32768.0)
    names = ("alpaca_en", "alpaca_zh", "belle", "coig")
    sources = {name: every(loss + 0.35 * (i - 1.5) + 0.1 * rng.standard_normal(n), 1 + i % 2)
               for i, name in enumerate(names)}  # fmt: skip
    probes: list[dict[str, Any]] = [{"step": 0, "probe": "probe_set", "change": None}]
    for step in range(50, n + 1, 50):
        mean = -0.18 * step / n
        probes += [
            {"step": step, "probe": "probe_set", "change": {"since": 0, "mean": mean, "se": 0.011}},
            {"step": step, "probe": "replay", "before": 1.4, "after": 1.4 - abs(rng.normal(0.01, 0.01))},
            {"step": step, "probe": "line", "s": "NaN" if step == 100 else float(rng.uniform(0.05, 0.4))},
        ]
    facts = RunFacts(
        config=config(),
        run={"state": "finished"},
        summary={},
        probes=probes,
        noise={"sd_step": 0.1, "sd_log": 0.1, "batch": 8},
        incidents=[{"step": min(212, n), "reason": "spike", "sentence": "gradient norm 6.8: rows 88 and 1041"}],
    )
    held = np.arange(50, n + 1, 50)
    return Trace(
        path=Path("outputs/qwen14b_lora/2026-12-01_10-00-00"),
        kind="run",
        tool="runner",
        step=steps,
        epoch=steps / n,
        loss=known(loss),
        grad_norm=known(norms),
        learning_rate=known(rate),
        evaluations=[Evaluations("", held, held / n, 1.39 - 0.04 * held / n)],
        extra={
            "clip_coef": known(np.minimum(1.0, 1.0 / norms)), "base_loss": known(base), "loss_scale": known(scale),
            "update_rms": every(rate * (1 + 0.1 * rng.standard_normal(n)), 1), "weight_rms": known(np.full(n, 0.012)),
            "rms_t": known(1 + 0.1 * rng.standard_normal(n)), "b_simple": known(30 + 200 * steps / n),
        },
        sources=sources,
        source_tokens={name: known(np.full(n, 500.0)) for name in names},
        marks={"skipped": [n // 3], "loss_scale_overflow": [n // 3], "spikes": [min(212, n)],
               "incidents": [min(212, n)]},
        restarts=[Restart(before=320, step=301, loss_before=1.4, loss_after=1.39)] if n > 400 else [],
        max_steps=n,
        logging_steps=1,
        max_grad_norm=1.0,
        family="sft",
        ended=True,
        facts=facts,
    )  # fmt: skip


def foreign(n: int = 60, seed: int = 1) -> Trace:
    """Another tool's log: a point each 10 steps, loss, norm and rate, held out now and then."""
    rng = np.random.default_rng(seed)
    steps = np.arange(1, n + 1) * 10
    held = steps[9::10]
    return Trace(
        path=Path("saves/trainer_log.jsonl"),
        kind="trainer_log",
        tool="llamafactory",
        step=steps,
        epoch=steps / 200.0,
        loss=known(1.5 - 0.3 * steps / steps[-1] + 0.08 * rng.standard_normal(n) if n else np.zeros(0)),
        grad_norm=known(np.exp(0.3 * rng.standard_normal(n))),
        learning_rate=known(1e-4 * (1 - steps / (steps[-1] + 10)) if n else np.zeros(0)),
        evaluations=[Evaluations("", held, held / 200.0, 1.35 - 0.1 * held / 600)] if len(held) else [],
        logging_steps=10,
    )


def broken(n: int = 300, at: int = 140) -> Trace:
    """The healthy run, NaN from step `at` on after three spikes."""
    trace = healthy(n)
    loss, norms = trace.loss.values.copy(), trace.grad_norm.values.copy()
    loss[at - 12 : at : 5] += 4.0
    loss[at:], norms[at:] = np.nan, np.nan
    norms[at - 1] = np.inf
    assert trace.facts is not None
    trace.facts.incidents = [{"step": at + 1, "sentence": "the loss is NaN: 'forward overflow in layer 7'"}]
    return dataclasses.replace(trace, loss=known(loss), grad_norm=known(norms), restarts=[],
                               marks={"spikes": [at - 11, at - 6, at - 1], "incidents": [at + 1]},
                               evaluations=[])  # fmt: skip


def eval_only() -> Trace:
    """A log that has held-out losses and nothing else."""
    trace = foreign(0)
    trace.evaluations = [Evaluations("", np.array([100, 200]), np.array([0.5, 1.0]), np.array([1.4, np.nan]))]
    return trace


def finding(**more: Any) -> Finding:
    """One cause."""
    made: dict[str, Any] = {
        "id": "noise.sampling",
        "code": "E1",
        "title": Text("The curve moves because every batch holds other rows", "曲线起伏是因为每个 batch 的样本不同"),
        "confidence": "likely",
        "probability": 0.93,
        "severity": "note",
        "evidence": (
            Evidence(Text("the untrained model goes up and down on the same batches: 98 % of the movement",
                          "未训练的模型在同样的 batch 上同样起伏：解释 98 % 的波动"), {"r_squared": 0.98}, (212, 301)),
            Evidence(Text("kappa 0.78, within 0.6 to 1.5", "kappa 0.78，在 0.6 到 1.5 之内"), {"kappa": 0.78}),
        ),
        "would_change": Text("movement above 1.5 times the prediction", "起伏超过预期的 1.5 倍"),
        "check": "python -m runner prove outputs/qwen14b_lora/2026-12-01_10-00-00 only=lr_zero",
        "remedy": Text("A larger batch halves it: looks, not quality.", "更大的 batch 可减半：只是好看，不提高质量。"),
        "changes": {"runner": ("batch.global_batch_size=32", "batch.sampler=stratified"),
                    "transformers": ("gradient_accumulation_steps=8",)},
    }  # fmt: skip
    return Finding(**(made | more))


SLOW = finding(
    id="optim.low_for_lora",
    code="B2",
    severity="warning",
    probability=0.9,
    title=Text("The learning rate is low for LoRA", "学习率对 LoRA 来说偏低"),
    evidence=(Evidence(Text("1e-05 is a rate of full fine-tuning; LoRA learns at about 10 times that",
                            "1e-05 是全量微调的量级；LoRA 通常高约 10 倍"), {"learning_rate": 1e-5}),),
    remedy=Text("Raise it tenfold; train in bf16, as the model was.", "提高十倍；用 bf16 训练，与模型一致。"),
    changes={"runner": ("optim.learning_rate=1e-4", "precision.compute=bf16"),
             "llamafactory": ("learning_rate: 1.0e-4", "bf16: true")},
    check="python -m runner cure outputs/qwen14b_lora/2026-12-01_10-00-00",
    would_change=Text("the held-out loss rises at 1e-4", "1e-4 时验证 loss 上升"),
)  # fmt: skip

NAN = finding(
    id="precision.fp16_overflow",
    code="A3",
    severity="error",
    confidence="certain",
    title=Text("A value left fp16's range: the weights are NaN from step 141 on",
               "数值超出 fp16 范围：从第 141 步起权重为 NaN"),
    evidence=(Evidence(Text("loss NaN at 160 of 300 steps, gradient norm infinite just before",
                            "300 步中 160 步 loss 为 NaN，之前一步梯度范数为无穷"), {}, (140, 141)),),
    remedy=Text("Train in bf16, whose range is that of fp32.", "改用 bf16，范围与 fp32 相同。"),
    changes={"runner": ("precision=bf16",)},
    check="python -m runner replay outputs/qwen14b_lora/2026-12-01_10-00-00/incident-141/incident.json precision=bf16",
    would_change=Text("the replay in bf16 is NaN too", "bf16 重放也得到 NaN"),
)  # fmt: skip


def verdict(**more: Any) -> Verdict:
    """The verdict on the healthy run."""
    made: dict[str, Any] = {
        "stability": "normal",
        "learning": "slow",
        "action": "change_next_run",
        "confidence": "likely",
        "headline": Text("The oscillation is your data, not a fault. But it learns slowly: learning rate low for LoRA.",
                         "震荡来自数据抽样，不是故障；但学得慢：对 LoRA 来说学习率偏低。"),
        "saw": (
            Text("curve moves by ±0.09 per logged point; batch 8 and these rows predict ±0.10",
                 "每个记录点波动 ±0.09；按 batch 8 和这批数据，预期就是 ±0.10"),
            Text("at equal difficulty 1.412 -> 1.371; held out 1.388 -> 1.352, falling",
                 "同等难度下 1.412 -> 1.371；验证集 1.388 -> 1.352，仍在下降"),
        ),
        "findings": (SLOW, finding()),
        "learns": Text("at equal difficulty 1.412 -> 1.371, 2 standard errors apart",
                       "同等难度下 1.412 -> 1.371，相差 2 个标准误"),
        "not_it": Text("lower learning rate, other rank, weight decay: they change the movement by about 0 %",
                       "再降学习率、换 rank、加 weight decay：对波动的影响约为 0 %"),
        "separate": Text("python -m runner prove: at learning rate 0 the curve must move just as much",
                         "学习率为 0 时曲线应同样波动"),
        "missing": (Text("stability.probes.line=20: how long a step is", "stability.probes.line=20：步长是否合适"),),
        "unknown": Text("Turns to AT RISK if it moves > 1.5 x the prediction; answers were not read.",
                        "若波动超过预期 1.5 倍，本结论作废；未检查生成质量。"),
        "do": ("python -m runner cure outputs/qwen14b_lora/2026-12-01_10-00-00  # ~40 min: old and new side by side",
               "optim.learning_rate=1e-4 precision=bf16"),
        "tool": "runner",
        "source": {"path": "outputs/qwen14b_lora", "kind": "run", "points": 470, "steps": 470, "evaluations": 9},
        "numbers": {"kappa": 0.78, "kappa_interval": [0.66, 0.93], "r_squared": 0.98, "predicted_noise": 0.1,
                    "clip_share": 0.03, "points": 470, "something_new": {"a": 1, "b": [1.5, 2.5]}, "control_of": None},
    }  # fmt: skip
    return Verdict(**(made | more))


def stop() -> Verdict:
    """The verdict on the broken run."""
    return verdict(
        stability="broken", learning="no", action="stop", confidence="certain", findings=(NAN,), separate=None,
        headline=Text("The weights are NaN since step 141. Nothing after it can be used.",
                      "从第 141 步起权重为 NaN，此后的一切都不可用。"),
        saw=(Text("loss NaN at 160 of 300 steps, first at step 141", "300 步中 160 步 loss 为 NaN，首次在第 141 步"),
             Text("gradient norm Infinity at step 140", "第 140 步梯度范数为 Infinity")),
        learns=Text("it did until step 128", "第 128 步之前在学习"), not_it=None, missing=(),
        do=("python -m runner +exp=qwen14b_lora precision=bf16 checkpoint.resume=outputs/qwen14b_lora/"
            "2026-12-01_10-00-00/checkpoints/checkpoint-100",),
        unknown=same("-"),
    )  # fmt: skip
