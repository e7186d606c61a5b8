"""`lora`: which weights move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Lora:
    """LoRA by PEFT's own names; `none` trains everything, `freeze` what matches a pattern."""

    method: Literal["lora", "none", "freeze"] = "lora"
    """lora = adapters, none = full fine-tuning, freeze = only the parameters named by `trainable`."""

    r: int = 8
    """Rank of the adapters."""

    lora_alpha: float | None = None
    """Scale of the adapters; null = 2 x r, so that the scale does not change with the rank."""

    lora_dropout: float = 0.0
    """Dropout on the adapter's input."""

    target_modules: str | list[str] = "all-linear"
    """all-linear, a list of module names ([q_proj, v_proj]), or a regex over full module names."""

    use_rslora: bool = False
    """Scale by alpha / sqrt(r) instead of alpha / r."""

    use_dora: bool = False
    """Weight-decomposed LoRA (DoRA)."""

    init_lora_weights: bool | str = True
    """PEFT's initialisation: true, false, gaussian, pissa, olora, ..."""

    modules_to_save: list[str] | None = None
    """Further modules trained in full and saved with the adapter. A classification head always is."""

    adapter: str | None = None
    """Folder or hub id of an adapter to continue from; its r, alpha and targets are used."""

    trainable: list[str] | None = None
    """freeze: regexes over parameter names that train, e.g. ['layers\\.3[01]\\.', 'lm_head']. The head of a classifier
    always trains."""
