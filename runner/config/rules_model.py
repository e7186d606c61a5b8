"""Rules about weights: what trains, and in which format."""

from __future__ import annotations

import re

from runner.config.schema import Config


def quantized_training(c: Config) -> str | None:
    """Quantised weights cannot train."""
    if c.model.quantization and c.lora.method != "lora":
        return (
            f"model.quantization={c.model.quantization} freezes the base, and "
            f"lora={c.lora.method} would train it; set lora=default or model.quantization=null"
        )
    return None


def quantized_gguf(c: Config) -> str | None:
    """Two ways to store weights at once."""
    if c.model.quantization and c.model.gguf_file:
        return "model.gguf_file is dequantised at loading and excludes model.quantization; set one of them to null"
    return None


FP16_TINY = 2.0**-25
"""Numbers up to here are 0 in fp16: half of its smallest one, 2^-24."""


def fp16_weights(c: Config) -> str | None:
    """Trainable weights in fp16."""
    p, o = c.precision, c.optim
    if p.trainable_weights != "fp16" or p.compute == "fp16":
        return None
    # torch's fused kernel computes in fp32 and only stores fp16.
    zero = "adamw" in o.name and "fused" not in o.name and o.eps <= FP16_TINY
    why = (
        f"optim.eps={o.eps:g} is 0 in fp16, so the first AdamW update divides 0 by 0"
        if zero
        else "updates smaller than 1/2048 of a weight are rounded away"
    )
    return f"precision.trainable_weights=fp16: {why}; set precision.trainable_weights=fp32"


def scaler_meets_fp16_weights(c: Config) -> str | None:
    """fp16 training of fp16 weights: the scaler refuses it."""
    if c.precision.trainable_weights != "fp16" or c.precision.compute != "fp16":
        return None
    return (
        "precision.trainable_weights=fp16 with precision=fp16: the loss scaler cannot unscale fp16 gradients and ends "
        "the run in its first step; set precision.trainable_weights=fp32"
    )


def bf16_weights_under_fp16(c: Config) -> str | None:
    """Two half formats at once."""
    if c.precision.trainable_weights != "bf16" or c.precision.compute != "fp16":
        return None
    return (
        "precision.trainable_weights=bf16 contradicts precision=fp16: updates smaller than 1/256 of a weight are "
        "rounded away, and the activations can still overflow; choose precision=bf16, or trainable_weights=fp32"
    )


def lora_pattern(c: Config) -> str | None:
    """Patterns that do not compile."""
    patterns = list(c.lora.trainable or []) if c.lora.method == "freeze" else []
    if c.lora.method == "lora" and isinstance(c.lora.target_modules, str):
        patterns.append(c.lora.target_modules)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            return f"lora pattern {pattern!r} is no regular expression: {error}"
    return None


def lora_targets(c: Config) -> str | None:
    """Nothing would train."""
    if c.lora.method == "lora" and not c.lora.target_modules:
        return "lora.target_modules is empty: no weight would train; set lora.target_modules=all-linear"
    if c.lora.method == "freeze" and not c.lora.trainable:
        return "lora=freeze needs lora.trainable=[regex, ...]: the parameters that train"
    return None
