"""One dataclass per config group; a docstring under each field says meaning, unit and allowed values."""

from runner.config.schema.batch import Batch
from runner.config.schema.checkpoint import Checkpoint
from runner.config.schema.clip import Clip
from runner.config.schema.dataset import Dataset, Source, Validation
from runner.config.schema.engine import Engine
from runner.config.schema.evaluation import Evaluation
from runner.config.schema.lora import Lora
from runner.config.schema.model import Model
from runner.config.schema.optim import Optim
from runner.config.schema.precision import LossScale, Precision
from runner.config.schema.root import Checks, Config, Planted
from runner.config.schema.schedule import Schedule
from runner.config.schema.stability import Guard, Incident, Probes, Rollback, Stability
from runner.config.schema.task import Task
from runner.config.schema.tracking import Tracking

__all__ = [
    "Batch",
    "Checkpoint",
    "Checks",
    "Clip",
    "Config",
    "Dataset",
    "Engine",
    "Evaluation",
    "Guard",
    "Incident",
    "Lora",
    "LossScale",
    "Model",
    "Optim",
    "Planted",
    "Precision",
    "Probes",
    "Rollback",
    "Schedule",
    "Source",
    "Stability",
    "Task",
    "Tracking",
    "Validation",
]
