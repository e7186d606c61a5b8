"""Conditions on a configuration that popular advice is about: pure predicates, named by `when` in advice.yaml."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from runner.config.schema import Batch, Config

HIGH_RANK = 64
"""Rank from which the question of capacity comes up; the default is 8."""

SMALL_VALIDATION = 0.02
"""Share held out, up to which people are told that it is too small."""

OFTEN = 20
"""Evaluations in a run of known length from which they are frequent; 100 steps apart where the length is not known."""

LOW_LORA_RATE = 2.0e-5
"""Rates of full fine-tuning; LoRA's are about 10 times as high."""


def computes_in_fp16(c: Config) -> bool:
    """fp16 is asked for by name."""
    return c.precision.compute == "fp16"


def two_half_formats(c: Config) -> bool:
    """bf16 and fp16 in one run, as compute format or as that of weights."""
    p = c.precision
    return {"bf16", "fp16"} <= {p.compute, p.frozen_weights, p.trainable_weights}


def clip_raised_with_accumulation(c: Config) -> bool:
    """A norm limit above every customary one, and more than one micro-batch per step."""
    b = c.batch
    several = b.gradient_accumulation_steps > 1
    if b.global_batch_size is not None:
        several = b.global_batch_size > b.per_device_train_batch_size
    return c.clip.method == "norm" and c.clip.max_grad_norm > 1.5 and several


def lora_without_clip(c: Config) -> bool:
    """LoRA with clipping switched off."""
    return c.clip.method == "none" and c.lora.method == "lora"


def tight_clip(c: Config) -> bool:
    """A norm limit below every customary one."""
    return c.clip.method == "norm" and c.clip.max_grad_norm < 0.5


def customary_clip(c: Config) -> bool:
    """A norm limit that is recommended for a kind of task, and is not the default."""
    return c.clip.method == "norm" and 0.5 <= c.clip.max_grad_norm <= 1.5 and c.clip.max_grad_norm != 1.0


def low_rate_for_lora(c: Config) -> bool:
    """LoRA at a rate of full fine-tuning."""
    rate = c.optim.learning_rate
    return c.lora.method == "lora" and rate is not None and rate <= LOW_LORA_RATE


def same_global_batch(c: Config) -> bool:
    """The default's global batch, split otherwise."""
    b, usual = c.batch, Batch()
    now = (b.per_device_train_batch_size, b.gradient_accumulation_steps)
    before = (usual.per_device_train_batch_size, usual.gradient_accumulation_steps)
    return b.global_batch_size is None and now != before and now[0] * now[1] == before[0] * before[1]


def high_rank(c: Config) -> bool:
    """A new adapter of a high rank."""
    return c.lora.method == "lora" and c.lora.adapter is None and c.lora.r >= HIGH_RANK


def alpha_not_twice_r(c: Config) -> bool:
    """A scale other than 2, in an adapter that is scaled by alpha / r."""
    x = c.lora
    plain = x.method == "lora" and x.adapter is None and not x.use_rslora
    return plain and x.lora_alpha is not None and x.lora_alpha != 2 * x.r


def polynomial_with_power(c: Config) -> bool:
    """A polynomial decay that is no straight line."""
    return c.schedule.lr_scheduler_type == "polynomial" and c.schedule.power != 1.0


def decays_weights(c: Config) -> bool:
    """Weight decay above 0."""
    return c.optim.weight_decay > 0


def evaluates_often(c: Config) -> bool:
    """Evaluations by steps, `OFTEN` or more in the run, or at most 100 steps apart where its length is not known."""
    steps, every = c.schedule.max_steps, c.evaluation.eval_steps
    if c.evaluation.eval_strategy != "steps" or every is None:
        return False
    return steps >= OFTEN * every if steps is not None else every <= 100


def small_validation(c: Config) -> bool:
    """A share held out that is called too small."""
    return 0 < c.dataset.validation.fraction <= SMALL_VALIDATION


def sources_in_random_order(c: Config) -> bool:
    """SFT on several sources whose share varies from batch to batch."""
    several = c.task.name == "sft" and len(c.dataset.sources) > 1 and c.dataset.mix == "concat"
    return several and c.batch.sampler != "stratified"


def keeps_duplicates(c: Config) -> bool:
    """Identical rows are kept."""
    return c.dataset.dedup == "off"


def warmup_beyond_end(c: Config) -> bool:
    """More warmup steps than steps, as far as they are known."""
    s = c.schedule
    return bool(s.warmup_steps) and s.max_steps is not None and (s.warmup_steps or 0) >= s.max_steps


_VISION = re.compile(r"(?i)(?:^|[-_/.\d])(?:vl|vision|llava|internvl|omni)(?:[-_/.\d]|$)")
_AUDIO = re.compile(r"(?i)(?:^|[-_/.\d])(?:audio|whisper|wav2vec2)(?:[-_/.\d]|$)")


def _own_name(c: Config) -> str:
    return c.model.path.rstrip("/\\").replace("\\", "/").rpartition("/")[2]


def vision_model(c: Config) -> bool:
    """The name of the weights is one of vision models: Qwen2-VL-7B."""
    return _VISION.search(_own_name(c)) is not None


def audio_model(c: Config) -> bool:
    """The name of the weights is one of audio models: Qwen2-Audio-7B."""
    return _AUDIO.search(_own_name(c)) is not None


CONDITIONS: Mapping[str, Callable[[Config], bool]] = {
    f.__name__: f
    for f in (
        computes_in_fp16,
        two_half_formats,
        clip_raised_with_accumulation,
        lora_without_clip,
        tight_clip,
        customary_clip,
        low_rate_for_lora,
        same_global_batch,
        high_rank,
        alpha_not_twice_r,
        polynomial_with_power,
        decays_weights,
        evaluates_often,
        small_validation,
        sources_in_random_order,
        keeps_duplicates,
        warmup_beyond_end,
        vision_model,
        audio_model,
    )
}
"""What an entry's `when` may name: pure functions of the configuration."""
