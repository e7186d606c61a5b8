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


def half_weights(c: Config) -> str | None:
    """fp16 training of fp16 weights: the scaler refuses it, and updates vanish."""
    p = c.precision
    if p.trainable_weights == "fp16":
        return (
            "precision.trainable_weights=fp16 loses small updates, and a loss scaler cannot "
            "unscale fp16 gradients; set precision.trainable_weights=fp32"
        )
    if p.compute == "fp16" and p.trainable_weights == "bf16":
        return (
            "precision.trainable_weights=bf16 contradicts precision=fp16; choose "
            "precision=bf16, or trainable_weights=fp32"
        )
    return None


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
