"""What the truth about a step needs to know beyond the trainer's own arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from runner.config.schema import Clip, LossScale, Stability

if TYPE_CHECKING:
    from runner.training.truth import Truth


@dataclass
class Instruments:
    """What the mixin needs to know beyond the trainer's own arguments."""

    clip: Clip
    stability: Stability
    loss_scale: LossScale
    sampler: str
    global_batch: int
    sources: list[str]
    """Names of all sources, training and validation, in the same order on every process."""

    adapters: bool
    """LoRA: the weights that train are few, so they are measured at every step and kept in memory."""

    folder: Path
    """The run folder."""

    config: dict[str, Any]
    """The whole configuration, for whoever repeats a step."""

    decode: Callable[[list[int]], str]
    """Text of token ids."""

    on_row: Callable[[dict[str, Any]], None]
    """Called with each finished telemetry row on the first process."""

    on_probe: Callable[[dict[str, Any]], None] = field(default=lambda line: None)
    """Called with each line of `probes.jsonl` on the first process."""

    before_training: Callable[[Truth], None] = field(default=lambda trainer: None)
    """Called once everything is prepared and nothing is trained yet; may set `base_of`."""

    base_of: Callable[[list[str]], tuple[float, int, int]] | None = None
    """Start model's loss on rows: (sum, tokens, rows known)."""

    spoil: Callable[[Tensor, int], Tensor] | None = None
    """A planted fault's hand on the loss of a micro-batch of step n; None in every real run."""
