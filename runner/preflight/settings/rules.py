"""Settings that contradict each other, and a learning rate far from what is usual for the method."""

from __future__ import annotations

from dataclasses import dataclass

from runner.causes.thresholds import RATE_HIGH, RATE_LOW, RATE_TOO_HIGH
from runner.config.rules import allowable_broken
from runner.config.rules_train import world_size
from runner.config.schema import Config
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, Severity, found
from runner.preflight.settings.config_json import width
from runner.training.plan import accumulation_for, default_learning_rate

MENDS = {
    "schedule.warmup_beyond_end": ("schedule.warmup_steps=null", "schedule.warmup_ratio=0.05"),
    "precision.fp16_weights": ("precision.trainable_weights=fp32",),
    "precision.scaler_meets_fp16_weights": ("precision.trainable_weights=fp32",),
    "precision.lost_updates": ("precision.trainable_weights=fp32",),
}
"""Overrides by the id of an allowable rule."""


RATE_BREAKS = 50.0
"""From this many times the default on, runs break in public reports: 5e-3 turned into NaN where 2e-5 was fine
(ssbuild/chatglm_finetuning#28), 3e-3 under LoRA gave broken answers (hiyouga/LlamaFactory#6069)."""

RATE_NOTHING = 0.01
"""Below this share of the default nothing moves within a fine-tuning of some epochs."""

LION = 0.2
"""Lion's rate as a share of AdamW's: 3 to 10 times smaller (Chen et al. 2023, section 5)."""

OTHER_SCALE = ("galore", "apollo", "schedule_free", "adagrad", "adalomo", "lomo")
"""Optimizers that scale or average the update once more, so that AdamW's rates say nothing about theirs."""

SMALL_BATCH = 2
"""Rows behind one step up to which single rows decide about the update."""


def rules(c: Context) -> Result:
    """The allowable rules of the configuration that do not hold."""
    broken = allowable_broken(c.cfg)
    findings = [Finding(b.rule.id, "error", b.sentence, b.rule.keys, {}, MENDS[b.rule.id]) for b in broken]
    return found(f"{len(findings)} broken" if findings else "none", *findings)


@dataclass(frozen=True)
class Band:
    """Peak rates that are usual."""

    usual: float
    """The method's default, for this optimizer and width."""

    low: float
    high: float
    """Outside of these a rate is worth a note."""


def band_for(optimizer: str, default: float) -> Band | None:
    """The band around the method's default rate; None for optimizers whose rate has another scale than AdamW's.

    `optimizer` is a name of transformers' `OptimizerNames`; `default` the default rate under AdamW.
    """
    if optimizer == "sgd" or optimizer.startswith(OTHER_SCALE):
        return None
    usual = default * LION if "lion" in optimizer else default
    # Adafactor with a fixed rate is run at 1e-3 (transformers' own documentation of the class).
    high = max(RATE_HIGH * usual, RATE_TOO_HIGH) if optimizer == "adafactor" else RATE_HIGH * usual
    return Band(usual, RATE_LOW * usual, high)


def rate_band(c: Context) -> Result:
    """The peak learning rate against the band of method, optimizer and width; batches of one or two rows."""
    cfg = c.cfg
    narrow = width(cfg.model)
    default = default_learning_rate(cfg, narrow)
    rate = cfg.optim.learning_rate if cfg.optim.learning_rate is not None else default
    batch = cfg.batch.per_device_train_batch_size * accumulation_for(cfg.batch, world_size()) * world_size()
    findings = [*rate_findings(cfg, rate, default, narrow), *batch_findings(batch)]
    given = "default " if cfg.optim.learning_rate is None else ""
    return found(f"{given}{rate:g} for {method_name(cfg)}, global batch {batch}", *findings)


def method_name(cfg: Config) -> str:
    """LoRA, full fine-tuning, or freeze."""
    return {"lora": "LoRA", "none": "full fine-tuning", "freeze": "freeze"}[cfg.lora.method]


def rate_findings(cfg: Config, rate: float, default: float, narrow: int | None) -> list[Finding]:
    """What there is to say about a peak rate; `default` is the method's at this width, `narrow` hidden_size or None."""
    band, name = band_for(cfg.optim.name, default), method_name(cfg)
    where, numbers = ("optim.learning_rate",), {"rate": rate, "usual": default}
    if band is None:
        if cfg.optim.name != "sgd" or rate > default:
            return []
        moved = rate * cfg.clip.max_grad_norm
        sentence = (
            f"learning rate {rate:g} is one for AdamW, and optim.name=sgd: with the gradient clipped at norm "
            f"{cfg.clip.max_grad_norm:g} one step moves all weights together by at most {moved:.1g}, where AdamW moves "
            f"each single one by up to {rate:g}"
            if cfg.clip.method == "norm"
            else f"learning rate {rate:g} is one for AdamW, which divides the gradient by its size; optim.name=sgd "
            "does not, and takes rates 10 to 1,000 times as high"
        )
        return [Finding("optim.learning_rate_low", "note", sentence, where, numbers, ("optim=adamw",))]
    numbers = {"rate": rate, "usual": band.usual, "low": band.low, "high": band.high}
    usual = f"{band.usual:.3g}"
    scaled = f", {narrow} wide" if narrow is not None and narrow < 1024 else ""
    default_of = f"the default of {name}{scaled} ({usual})"
    mend = (f"optim.learning_rate={usual}",)
    if rate < RATE_NOTHING * band.usual:
        sentence = f"learning rate {rate:g} is {band.usual / rate:.0f} times below {default_of}: next to nothing moves"
        return [Finding("optim.learning_rate_low", "warning", sentence, where, numbers, mend)]
    if rate < band.low:
        lora = "; LoRA takes about 10 times the rate of full fine-tuning" if cfg.lora.method == "lora" else ""
        times = f"{band.usual / rate:.3g}"
        sentence = f"learning rate {rate:g} is {times} times below {default_of}: it learns, but slowly{lora}"
        return [Finding("optim.learning_rate_low", "note", sentence, where, numbers, mend)]
    if rate > band.high:
        breaks = rate >= RATE_BREAKS * band.usual
        end = "runs at such rates end in NaN or a loss that stays high" if breaks else "steps may overshoot"
        sentence = f"learning rate {rate:g} is {rate / band.usual:.3g} times {default_of}: {end}"
        severity: Severity = "warning" if breaks else "note"
        return [Finding("optim.learning_rate_too_high", severity, sentence, where, numbers, mend)]
    return []


def batch_findings(batch: int) -> list[Finding]:
    """A note where an update rests on one or two rows."""
    if batch > SMALL_BATCH:
        return []
    rows = "1 row" if batch == 1 else f"{batch} rows"
    sentence = f"every update rests on {rows}: the loss jumps with each of them, and the rate that holds is lower"
    mend = ("batch.global_batch_size=null", "batch.gradient_accumulation_steps=8")
    where = ("batch.per_device_train_batch_size", "batch.gradient_accumulation_steps")
    return [Finding("data.sampling_noise", "note", sentence, where, {"global_batch": batch}, mend)]
