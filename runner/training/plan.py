"""How long a run is and how its batch is made up: pure arithmetic on the config and the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from runner.config.schema import Batch, Config, Schedule
from runner.errors import ConfigError

LORA_RATE = 1e-4
FULL_RATE = 1e-5
REFERENCE_WIDTH = 1024


@dataclass(frozen=True)
class Plan:
    """Counts that follow from `batch`, `schedule`, the training rows and the number of processes."""

    rows: int
    per_device: int
    accumulation: int
    processes: int
    steps_per_epoch: int
    """Optimizer steps; a ragged last window counts as one."""

    total_steps: int
    warmup_steps: int

    @property
    def global_batch(self) -> int:
        """Rows behind one optimizer step."""
        return self.per_device * self.accumulation * self.processes

    @property
    def batch_line(self) -> str:
        """For the header: "global batch = 4 x 2 x 1 = 8 (per device x accumulation x processes)"."""
        parts = f"{self.per_device} x {self.accumulation} x {self.processes}"
        return f"global batch = {parts} = {self.global_batch} (per device x accumulation x processes)"

    @property
    def steps_line(self) -> str:
        """For the header: steps, epochs, warmup."""
        epochs = self.total_steps / self.steps_per_epoch
        return (
            f"{self.total_steps} steps = {epochs:.3g} epochs of {self.steps_per_epoch} steps over {self.rows} rows, "
            f"warmup {self.warmup_steps} step{'' if self.warmup_steps == 1 else 's'}"
        )


def accumulation_for(batch: Batch, processes: int) -> int:
    """`gradient_accumulation_steps`, or what `global_batch_size` makes of it; `ConfigError` if that is no integer."""
    if batch.global_batch_size is None:
        return batch.gradient_accumulation_steps
    each = batch.per_device_train_batch_size * processes
    if batch.global_batch_size % each:
        raise ConfigError(
            [
                f"batch.global_batch_size={batch.global_batch_size} is not a multiple of per_device_train_batch_size "
                f"{batch.per_device_train_batch_size} x {processes} processes = {each}. Set it to a multiple of {each}."
            ]
        )
    return batch.global_batch_size // each


def warmup_steps_for(schedule: Schedule, total_steps: int) -> int:
    """Optimizer steps of warmup: the count, or the ratio of `total_steps` rounded up (as transformers does).

    A ratio below 1 leaves at least one step at the full rate, so that a run of one step is no run of warmup alone.
    """
    if schedule.warmup_steps is not None:
        return schedule.warmup_steps
    ratio = schedule.warmup_ratio or 0.0
    steps = math.ceil(ratio * total_steps)
    return min(steps, total_steps - 1) if ratio < 1 else steps


def make_plan(cfg: Config, rows: int, processes: int) -> Plan:
    """The plan of a run over `rows` training rows; step counts as in `Trainer.set_initial_training_values`."""
    accumulation = accumulation_for(cfg.batch, processes)
    per_device = cfg.batch.per_device_train_batch_size
    micro_batches = math.ceil(math.ceil(rows / per_device) / processes)
    steps_per_epoch = max(math.ceil(micro_batches / accumulation), 1)
    total = cfg.schedule.max_steps or math.ceil(cfg.schedule.num_train_epochs * steps_per_epoch)
    return Plan(
        rows, per_device, accumulation, processes, steps_per_epoch, total, warmup_steps_for(cfg.schedule, total)
    )


def default_learning_rate(cfg: Config, hidden_size: int | None) -> float:
    """The peak rate of this method and width where none is set; what a given one is compared with."""
    return learning_rate_for(replace(cfg, optim=replace(cfg.optim, learning_rate=None)), hidden_size)[0]


def learning_rate_for(cfg: Config, hidden_size: int | None) -> tuple[float, str]:
    """(peak learning rate, where it came from).

    null means 1e-4 with LoRA and 1e-5 otherwise, times 1024 / hidden_size for models narrower than that: under Adam the
    best rate grows as the width shrinks (Yang et al. 2022, Tensor Programs V, table 3).
    """
    given = cfg.optim.learning_rate
    if given is not None:
        return given, "set by optim.learning_rate"
    lora = cfg.lora.method == "lora"
    rate, why = (LORA_RATE, "LoRA") if lora else (FULL_RATE, "full fine-tuning")
    if hidden_size and hidden_size < REFERENCE_WIDTH:
        factor = REFERENCE_WIDTH / hidden_size
        return float(
            f"{rate * factor:.3g}"
        ), f"default: {why} {rate:g} x {factor:g} for a model only {hidden_size} wide"
    return rate, f"default of {why}"
