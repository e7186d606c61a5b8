"""Hand a checked command line to Hydra and run what it composes: one run, or the trials of a sweep."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.config.layers import Where
from runner.config.schema import Config
from runner.config.share import packaged_conf, register_resolvers
from runner.errors import UserError

_FULL_ERROR = "HYDRA_FULL_ERROR"


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """An environment variable for a while."""
    before = os.environ.get(name)
    try:
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        yield
    finally:
        os.environ.pop(name, None) if before is None else os.environ.__setitem__(name, before)


def _arguments(args: argparse.Namespace, overrides: list[str]) -> list[str]:
    """Hydra's command line again, in an order its parser accepts."""
    flags: list[str] = []
    for name in ("hydra_help", "resolve", "run", "multirun", "shell_completion"):
        if getattr(args, name):
            flags.append("--" + name.replace("_", "-"))
    for name in ("cfg", "package", "config_name", "info", "experimental_rerun"):
        if getattr(args, name) is not None:
            flags += ["--" + name.replace("_", "-"), str(getattr(args, name))]
    for name in ("config_dir", "config_path"):
        if getattr(args, name) is not None:
            flags += ["--" + name.replace("_", "-"), str(Path(getattr(args, name)).resolve())]
    return [*flags, *overrides]


@dataclass(frozen=True)
class Doors:
    """What a checked configuration is handed to, on the floors above this room.

    run: (config, dropped) -> outcome with exit_code and metric. trial: (config, folder) -> metric or None; a trial
    whose config is refused raises UserError, which the sweep's Hydra callback records.
    """

    run: Callable[[Config, list[str]], Any]
    trial: Callable[[Config, Path], float | None]


class _Task:
    """What Hydra calls with each composed tree; keeps the outcome, and the error that Hydra would print itself."""

    def __init__(self, doors: Doors, dropped: list[str], where: Where, full_error: str | None):
        self.doors = doors
        self.dropped, self.where, self.full_error = dropped, where, full_error
        self.exit_code: int | None = None
        self.error: Exception | None = None

    def __call__(self, tree: Any) -> float | None:
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        node = HydraConfig.get()
        with _environment(_FULL_ERROR, self.full_error):
            if node.mode == RunMode.MULTIRUN:
                return self._trial(tree, node)
            try:
                return self._run(tree, node)
            except Exception as error:
                self.error = error
                return None

    def _config(self, tree: Any, folder: Path) -> Config:
        from omegaconf import open_dict

        from runner.config.build import to_config

        with open_dict(tree):
            tree.output_dir = str(folder)
        return to_config(tree)

    def _run(self, tree: Any, node: Any) -> float | None:
        config = self._config(tree, Path(node.runtime.output_dir).absolute())
        outcome = self.doors.run(config, self.dropped)
        self.exit_code = outcome.exit_code
        return outcome.metric

    def _trial(self, tree: Any, node: Any) -> float | None:
        from omegaconf import OmegaConf

        from runner.config.compose import drop_unused

        folder = Path(node.runtime.output_dir).absolute()
        dropped = drop_unused(tree, list(node.overrides.task), self.where)
        config = self._config(tree, folder)
        if dropped and (folder / ".hydra" / "config.yaml").is_file():
            OmegaConf.save(tree, folder / ".hydra" / "config.yaml")  # what runs, not what was inherited
        for sentence in dropped:
            print(f"dropped: {sentence}")
        metric = self.doors.trial(config, folder)
        return float("nan") if metric is None else metric


def run_hydra(args: argparse.Namespace, overrides: list[str], dropped: list[str], where: Where, doors: Doors) -> int:
    """Run Hydra on checked overrides and return the process status; errors of Hydra and the disk become UserError."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from runner.config.compose import one_sentence

    register_resolvers()
    task = _Task(doors, dropped, where, os.environ.get(_FULL_ERROR))

    def entry(tree: Any) -> Any:
        return task(tree)

    argv, sys.argv = sys.argv, [sys.argv[0], *_arguments(args, overrides)]
    try:
        with _environment(_FULL_ERROR, "1"):  # so that Hydra raises instead of printing and leaving
            hydra.main(config_path=str(packaged_conf()), config_name="config", version_base="1.3")(entry)()
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(one_sentence(error)) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise UserError(f"{error.filename}: {error.strerror}; choose another output_dir") from error
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    finally:
        sys.argv = argv
    if task.error is not None:
        raise task.error
    return task.exit_code or 0
