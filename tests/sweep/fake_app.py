"""A Hydra application whose trials are fake runs: python fake_app.py CONFIG_FOLDER -m name=ok,exit"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig

from runner.config.schema import Config, Model
from runner.errors import ConfigError
from runner.sweep.table import run_sweep
from runner.sweep.trial import run_trial


def task(cfg: Any) -> float | None:
    """One trial."""
    if cfg.name == "refused":
        raise ConfigError(["name=refused is not allowed"])
    config = Config(name=cfg.name, model=Model("tiny"), seed=cfg.seed)
    folder = Path(HydraConfig.get().runtime.output_dir)
    return run_trial(config, folder, target="tests.sweep.fake_run:run", preload=(), grace=1)


if __name__ == "__main__":
    folder = sys.argv.pop(1)
    sys.exit(run_sweep(hydra.main(config_path=folder, config_name="config", version_base="1.3")(task)))
