"""Number formats that do not go together, as far as the configuration and config.json tell."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any

from runner.config.rules import allowable_broken
from runner.config.schema import Config
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found
from runner.preflight.settings.config_json import config_json, width
from runner.training.plan import default_learning_rate

BF16_FAMILIES = (
    ("qwen", r"qwen"),
    ("gemma", r"gemma"),
    ("llama 3", r"llama-?_?3|llama-?_?4"),
    ("mistral", r"mistral|mixtral|ministral"),
    ("phi", r"phi-?[34]"),
    ("deepseek", r"deepseek"),
    ("internlm", r"internlm-?[23]"),
    ("baichuan 2", r"baichuan-?2"),
    ("yi", r"(^|/)yi-"),
    ("glm 4", r"glm-?4"),
    ("olmo 2", r"olmo-?[23]"),
    ("smollm", r"smollm"),
)
"""(family, pattern over the lower-case name): `torch_dtype` is bfloat16 in the config.json that their makers publish.
Llama 2 and ChatGLM say float16 and are not listed."""

LOW_RATE = 1e-4
"""Below this rate bf16 weights lose most of their updates: at 1e-5, 1 % of the weights changed in 20 steps where fp32
changed 91 % (catalogue C5)."""

USUAL_SD = 0.02
"""Standard deviation of a weight: what transformers' models are initialised with."""


def formats(c: Context) -> Result:
    """fp16 on a bf16-trained model, weights that cannot take small updates, half-precision evaluation and heads."""
    cfg = c.cfg
    config = config_json(cfg.model)
    compute, by = compute_format(cfg, os.environ)
    trained, source = trained_format(cfg.model.path, config)
    already = {broken.rule.id for broken in allowable_broken(cfg)}
    usual = default_learning_rate(cfg, width(cfg.model))
    rate = cfg.optim.learning_rate if cfg.optim.learning_rate is not None else usual
    findings = [
        *overflow(compute, by, trained, source),
        *evaluation(cfg, compute),
        *quantised_head(cfg),
        *([] if already else lost_updates(cfg, rate)),
    ]
    told = f", pretrained in {trained}" if trained else ""
    return found(f"compute {compute}, trainable {cfg.precision.trainable_weights}{told}", *findings)


def compute_format(cfg: Config, environment: Mapping[str, str]) -> tuple[str, str]:
    """(fp32, bf16, fp16 or auto, the key that decides): where neither fp16 nor bf16 is set, transformers takes what
    `accelerate launch --mixed_precision` left in the environment."""
    name = "ACCELERATE_MIXED_PRECISION"
    launched = environment.get(name, "no").lower()
    if cfg.precision.compute not in ("bf16", "fp16") and launched in ("bf16", "fp16"):
        return launched, name
    return cfg.precision.compute, "precision.compute"


def trained_format(path: str, config: Mapping[str, Any]) -> tuple[str | None, str]:
    """(format a model was trained in, where that is said); None where nothing says it.

    `config` is the content of its config.json, {} where that is not on this machine.
    """
    said = config.get("dtype") or config.get("torch_dtype")
    if isinstance(said, str):
        short = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
        return short.get(said.removeprefix("torch.")), "its config.json"
    name = str(config.get("model_type") or path.rstrip("/").rpartition("/")[2]).lower()
    for family, pattern in BF16_FAMILIES:
        if re.search(pattern, name):
            return "bf16", f"the family {family}"
    return None, ""


def overflow(compute: str, by: str, trained: str | None, source: str) -> list[Finding]:
    """fp16 on a model whose activations have only been seen in bf16."""
    if compute != "fp16" or trained != "bf16":
        return []
    who = "" if by == "precision.compute" else f" (set by {by}, since precision names neither bf16 nor fp16)"
    sentence = (
        f"the model was trained in bf16 (says {source}) and computes in fp16 here{who}: fp16 ends at 65,504, bf16 at "
        "3.4e38, so activations that were fine in training overflow. bf16 takes the same memory; a GPU without it "
        "needs precision=fp32"
    )
    return [Finding("precision.fp16_overflow", "warning", sentence, (by,), {"largest": 65504}, ("precision=bf16",))]


def evaluation(cfg: Config, compute: str) -> list[Finding]:
    """Evaluation in fp16."""
    if compute != "fp16" or cfg.evaluation.eval_strategy == "no":
        return []
    sentence = (
        "evaluation computes in fp16 without the loss scaler's check: a row that overflows makes eval_loss NaN while "
        "training goes on"
    )
    return [Finding("evaluation.not_finite", "note", sentence, ("evaluation.eval_strategy",), {}, ("precision=bf16",))]


def quantised_head(cfg: Config) -> list[Finding]:
    """A classification head that trains in half precision on a quantised base."""
    kept = cfg.precision.trainable_weights
    if cfg.model.quantization is None or cfg.task.name != "classification" or kept == "fp32":
        return []
    sentence = (
        f"the classification head trains in {kept} on a base in {cfg.model.quantization}: its loss or gradient has "
        "been NaN from the first step on in such runs"
    )
    where = ("precision.trainable_weights", "model.quantization")
    return [Finding("precision.quantised_head", "error", sentence, where, {}, ("precision.trainable_weights=fp32",))]


def lost_updates(cfg: Config, rate: float) -> list[Finding]:
    """Trainable bf16 weights at a rate that is too small for their steps."""
    if cfg.precision.trainable_weights != "bf16" or rate >= LOW_RATE:
        return []
    share = share_lost(rate)
    sentence = (
        f"trainable weights in bf16 at learning rate {rate:g}: an update of that size is rounded away in weights from "
        f"{first_lost(rate):.2g} on, {100 * share:.0f} % of weights with a standard deviation of {USUAL_SD}"
    )
    where = ("precision.trainable_weights", "optim.learning_rate")
    mend = ("precision.trainable_weights=fp32",)
    return [Finding("precision.lost_updates", "warning", sentence, where, {"rate": rate, "share": share}, mend)]


def first_lost(update: float) -> float:
    """The smallest weight that an update of that size leaves unchanged in bf16.

    bf16 has 8 significant bits: in [2^e, 2^(e+1)) its values lie 2^(e-7) apart, and rounding to the nearest loses what
    is below half of that.
    """
    return 2.0 ** math.ceil(math.log2(update) + 8)


def share_lost(update: float, sd: float = USUAL_SD) -> float:
    """Share of normal weights (mean 0, `sd`) that an update of that size leaves unchanged in bf16, 0 to 1."""
    return math.erfc(first_lost(update) / (sd * math.sqrt(2.0)))
