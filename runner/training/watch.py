"""The callback between a trainer and what people see: rows to telemetry, steps and evaluations to the progress."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from runner.data.prepare import PreparedData
from runner.report.progress import Progress
from runner.runfolder import JsonLines
from runner.signals.classification import classification_report
from runner.training.build import confusion_of
from runner.training.truth import Truth


class Watch(TrainerCallback):
    """`row` takes finished telemetry rows, `probe` measurements; evaluations come through Trainer's own event."""

    def __init__(self, progress: Progress, telemetry: JsonLines | None, probes: JsonLines | None = None):
        self.progress = progress
        self.telemetry = telemetry
        self.probes = probes
        self.evaluated_at: int | None = None
        """Step of the last evaluation."""

    def row(self, row: dict[str, Any]) -> None:
        """Write first, show second."""
        if self.telemetry is not None:
            self.telemetry.append(row)
        self.progress.step(row)

    def probe(self, line: dict[str, Any]) -> None:
        """Write a line of `probes.jsonl`."""
        if self.probes is not None:
            self.probes.append(line)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: dict[str, float] | None = None, **kwargs: Any
    ) -> None:
        """Show an evaluation."""
        self.evaluated_at = state.global_step
        if state.is_world_process_zero and metrics:
            self.progress.evaluation(state.global_step, metrics)


def class_report(trainer: Truth, data: PreparedData) -> dict[str, Any]:
    """Per-class report and confusion matrix of the final model on the held-out rows."""
    assert data.labels is not None and data.validation is not None
    prediction = trainer.predict(data.validation)
    return classification_report(confusion_of(prediction, len(data.labels)), data.labels)
