"""What the checks may look at. Parts appear stage by stage; a check uses those of its stage and of earlier ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.config.schema import Config

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from runner.data.prepare import PreparedData
    from runner.model.adapt import Trainable
    from runner.model.formats import Formats
    from runner.training.plan import Plan
    from runner.training.truth import Truth


@dataclass
class Context:
    """One experiment under examination."""

    cfg: Config
    level: str
    """quick or deep."""

    folder: Path
    """The run folder of `train`, a scratch folder of `check`; checks may write below `folder / "preflight"` and clean
    up after themselves."""

    processes: int = 1
    """Processes of the run."""

    note: Callable[[str], None] = field(default=lambda sentence: None)
    """Says a sentence on the console."""

    previous: dict[str, Any] | None = None
    """Settings that a resumed run had before; None = those in its folder."""

    # Stage data.
    tokenizer: PreTrainedTokenizerBase = None  # type: ignore[assignment]
    data: PreparedData = None  # type: ignore[assignment]
    plan: Plan = None  # type: ignore[assignment]

    # Stage weights.
    formats: Formats = None  # type: ignore[assignment]
    start: PreTrainedModel = None  # type: ignore[assignment]
    """The model as it was loaded. Adapters are put into it in place before stage batch: then its parameters have
    other names."""

    loading: dict[str, Any] = field(default_factory=dict)
    """transformers' loading info: missing_keys, unexpected_keys, mismatched_keys, ..."""

    load_again: Callable[[], PreTrainedModel] = None  # type: ignore[assignment]
    """Loads the start model once more, from the same place with the same seed; deep checks only."""

    # Stage batch.
    trainable: Trainable = None  # type: ignore[assignment]
    rate: float = float("nan")
    """Peak learning rate."""

    trainer: Truth = None  # type: ignore[assignment]
    """Built and not started; `trainer.model` is the model with its adapters."""

    facts: dict[str, Any] = field(default_factory=dict)
    """What one check leaves for a later one, such as the losses of the first batch; each name is set by one check."""

    @property
    def classification(self) -> bool:
        """Whether a classifier is trained."""
        return self.cfg.task.name == "classification"
