"""Where `conf/` and `data/` are, and which folder of YAML is searched first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

_PACKAGE = Path(__file__).resolve().parents[1]


def _shared(name: str) -> Path:
    """`runner/_share/NAME` of an installed wheel, else NAME beside the package (a clone)."""
    installed = _PACKAGE / "_share" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def packaged_conf() -> Path:
    """The folder of YAML that comes with the package."""
    return _shared("conf")


def packaged_data() -> Path:
    """The folder of demo data and the tiny model that comes with the package."""
    return _shared("data")


def find_data(relative: str) -> str:
    """`./data/RELATIVE` of the working folder if it exists, else the packaged one (which need not exist)."""
    own = Path("data") / relative
    return str(own.resolve() if own.exists() else packaged_data() / relative)


def working_conf() -> Path | None:
    """`./conf` of the working folder; None where there is none, or where it is the packaged one (in a clone)."""
    own = Path("conf").resolve()
    return own if own.is_dir() and own != packaged_conf().resolve() else None


def short_place(path: str | Path) -> str:
    """A file as a user should read it: relative to the working folder, `conf/...` for a packaged one."""
    file = Path(path).resolve()
    own = working_conf()
    if own and file.is_relative_to(own):
        return f"./conf/{file.relative_to(own)}"
    if file.is_relative_to(packaged_conf().resolve()):
        return f"conf/{file.relative_to(packaged_conf().resolve())}"
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


class WorkingFolderFirst(SearchPathPlugin):
    """Puts `./conf` before everything else, for `hydra.main` and for our own composition alike."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Hydra calls this whenever it builds a search path."""
        own = working_conf()
        if own is not None:
            search_path.prepend(provider="runner-working-folder", path=f"file://{own}")


def from_yaml(text: str) -> Any:
    """Resolver `runner_yaml`: a value as YAML text, for what Hydra's grammar cannot hold (Chinese dict keys)."""
    import yaml

    return yaml.safe_load(text)


def register_resolvers() -> None:
    """Register `runner_data`, `runner_yaml`, `trial_name` and the search of `./conf`. Safe to call again."""
    from hydra.core.plugins import Plugins
    from hydra.core.utils import setup_globals
    from omegaconf import OmegaConf

    from runner.config.trialname import trial_name

    setup_globals()  # Hydra's own: now, hydra, python_version
    OmegaConf.register_new_resolver("runner_data", find_data, replace=True)
    OmegaConf.register_new_resolver("runner_yaml", from_yaml, replace=True)
    OmegaConf.register_new_resolver("trial_name", trial_name, replace=True)
    Plugins.instance().register(WorkingFolderFirst)
