"""`precision`: which dtype computes, and in which dtypes weights are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from runner.config.schema import Config

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Name = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class Formats:
    """Names of the number formats of a run."""

    compute: Name
    """Autocast dtype."""

    frozen: Name
    """Weights that do not train."""

    trainable: Name
    """Weights that train."""

    @property
    def line(self) -> str:
        """One phrase for the header."""
        parts = [f"compute {self.compute}", f"trainable weights {self.trainable}"]
        return ", ".join([*parts, f"frozen weights {self.frozen}"])


def resolve_formats(cfg: Config, device: str | None = None) -> Formats:
    """What `precision` means on this machine. auto = bf16 on a GPU that has it, else fp32."""
    precision = cfg.precision
    compute = precision.compute
    if compute == "auto":
        on_gpu = torch.cuda.is_available() if device is None else device == "cuda"
        compute = "bf16" if on_gpu and torch.cuda.is_bf16_supported() else "fp32"
    return Formats(compute=compute, frozen=precision.frozen_weights or compute, trainable=precision.trainable_weights)
