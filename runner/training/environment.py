"""Process-wide settings that have to be made before the libraries are used."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

from runner.config.schema import Config


def set_early(cfg: Config) -> None:
    """What libraries read from the environment once, when they are imported: thread waiting and offline mode."""
    calm_threads()
    if cfg.hub == "offline":
        os.environ["HF_HUB_OFFLINE"] = "1"


def calm_threads() -> None:
    """Let idle OpenMP threads go to sleep soon instead of spinning. Has to be called before torch is imported.

    Two runs that share the cores otherwise wait for each other at full load. Measured on two cores, 40 steps of the
    quickstart: alone 9 s by default, 10 s with this; two at once 41 s by default, 23 s with this.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def prepare_environment(cfg: Config) -> None:
    """Tracker settings, and libraries that keep quiet unless something is wrong."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if cfg.tracking.report_to == "tensorboard":
        os.environ["TENSORBOARD_LOGGING_DIR"] = os.path.join(os.path.abspath(cfg.output_dir), "tensorboard")
    if cfg.tracking.report_to == "wandb":
        os.environ["WANDB_DIR"] = os.path.abspath(cfg.output_dir)
        os.environ.setdefault("WANDB_PROJECT", cfg.tracking.project or "runner")
    import datasets
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    for noisy in ("accelerate", "peft"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    for own_handler in ("huggingface_hub", "transformers", "datasets"):
        # They print by themselves; Hydra's root handler would say it a second time.
        logging.getLogger(own_handler).propagate = False
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*before.*optimizer.step.*")


def world() -> tuple[int, int]:
    """(rank, number of processes) as the launcher says; (0, 1) without one. Reads only the environment."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def of_first_process(value: Any) -> Any:
    """The first process's `value` on every process: a folder named by its own clock, or how the run has ended."""
    if world()[1] == 1:
        return value
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    PartialState()
    return broadcast_object_list([value])[0]


def device_name() -> str:
    """ "CPU, 2 threads" or the GPU's name."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        return "Apple GPU"
    return f"CPU, {torch.get_num_threads()} threads"
