"""Which YAML files and overrides make up a configuration, in the order in which they apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from runner.config.share import packaged_conf, register_resolvers, short_place
from runner.errors import ConfigError

OVERLAYS = ("exp", "fault", "sweep")
"""Groups added on top of an experiment, in the order in which they apply."""

BY_HAND = 10**6
"""Layer of what the command line sets: above every file."""


@dataclass(frozen=True)
class Origin:
    """Where a leaf got its value: the height of its layer, and the file or override as a user should read it."""

    layer: int
    label: str

    @property
    def by_hand(self) -> bool:
        """Set on the command line."""
        return self.layer >= BY_HAND


@dataclass
class Layer:
    """One YAML file of a composition. `keys` are its dotted leaves; `group` is set for an option of a group."""

    config_path: str
    label: str
    packaged: bool
    group: str | None
    leaves: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Where:
    """Where Hydra looks for YAML: its own command line options, passed on."""

    config_dir: str | None = None
    config_path: str | None = None
    config_name: str = "config"


HERE = Where()
"""Nothing but `./conf` and the packaged YAML."""


def open_loader(where: Where = HERE) -> ConfigLoaderImpl:
    """Hydra's config loader over `--config-dir`, `./conf` and the packaged YAML, without touching global state."""
    from hydra import version

    version.setbase("1.3")
    register_resolvers()
    main = str(Path(where.config_path).resolve()) if where.config_path else str(packaged_conf())
    search_path = create_config_search_path(main)
    if where.config_dir is not None:
        folder = Path(where.config_dir).resolve()
        if not folder.is_dir():
            raise ConfigError([f"--config-dir {where.config_dir}: there is no such folder"])
        search_path.prepend("command-line", f"file://{folder}", anchor=SearchPathQuery(provider="schema"))
    return ConfigLoaderImpl(search_path)


class Groups(dict[str, list[str]]):
    """Group -> its options. Hydra's own groups (`hydra/launcher`) are looked up when asked for."""

    def __init__(self, loader: ConfigLoaderImpl, where: Where, lines: Sequence[str] = ()):
        """`lines` may hold `hydra.searchpath=[...]`, whose folders are looked into as well."""
        extra = [line for line in lines if line.lstrip("+").startswith("hydra.searchpath=")]
        _, self._repository = loader._parse_overrides_and_create_caching_repo(where.config_name, extra)
        names = [name for name in self._repository.get_group_options("", ObjectType.GROUP) if name != "hydra"]
        super().__init__({name: self._repository.get_group_options(name, ObjectType.CONFIG) for name in names})

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        if not isinstance(name, str) or not name.startswith("hydra/"):
            return False
        options = self._repository.get_group_options(name, ObjectType.CONFIG)
        if options:
            self[name] = options
        return bool(options)


def leaves_of(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted name -> raw value of every leaf; an empty dict is a leaf of its own."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            found.update(leaves_of(value, name + "."))
        else:
            found[name] = value
    return found


def read_layers(loader: ConfigLoaderImpl, overrides: list[str], where: Where, groups: Sequence[str]) -> list[Layer]:
    """The files that a list of Hydra overrides composes, lowest first. Hydra's own files are left out."""
    packaged = packaged_conf().resolve()
    layers: list[Layer] = []
    parsed, repository = loader._parse_overrides_and_create_caching_repo(where.config_name, overrides)
    defaults = create_defaults_list(
        repo=repository,
        config_name=where.config_name,
        overrides_list=parsed,
        prepend_hydra=True,
        skip_missing=False,
    )
    for entry in defaults.defaults:
        path = entry.config_path
        if path is None or path.startswith("hydra/") or path == "_dummy_empty_config_":
            continue
        loaded = repository.load_config(path)
        if loaded is None:
            continue
        content = OmegaConf.to_container(loaded.config, resolve=False)
        if not isinstance(content, dict):
            continue
        content.pop("defaults", None)
        package = entry.package or ""
        file = Path(loaded.path.removeprefix("file://")) / f"{path}.yaml"
        group = path.partition("/")[0] if "/" in path else None
        layers.append(
            Layer(
                config_path=path,
                label=short_place(file),
                packaged=file.resolve().is_relative_to(packaged),
                group=group if group in groups and group not in OVERLAYS and package == group else None,
                leaves=leaves_of(content, package + "." if package else ""),
            )
        )
    return layers


def origins(layers: list[Layer], by_hand: list[Override]) -> dict[str, Origin]:
    """Who set each leaf last. A dict set as a whole replaces what lay below it."""
    found: dict[str, Origin] = {}
    for height, layer in enumerate(layers):
        for name in layer.leaves:
            found[name] = Origin(height, layer.label)
    for place, override in enumerate(by_hand):
        name, value = override.key_or_group, override.value()
        label = f"command line: {override.input_line}"
        for old in [k for k in found if k == name or k.startswith(name + ".")]:
            if override.is_delete() or not isinstance(value, dict):
                del found[old]
        if override.is_delete():
            continue
        leaves = leaves_of(value, name + ".") if isinstance(value, dict) and value else {name: value}
        for leaf in leaves:
            found[leaf] = Origin(BY_HAND + place, label)
    return found


def origin_of(name: str, found: dict[str, Origin]) -> Origin | None:
    """The origin of a key, of what holds it, or of the highest leaf below it."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        if ".".join(parts[:cut]) in found:
            return found[".".join(parts[:cut])]
    below = [o for k, o in found.items() if k.startswith(name + ".")]
    return max(below, key=lambda o: o.layer) if below else None


def compose_tree(loader: ConfigLoaderImpl, overrides: list[str], where: Where, multirun: bool = False) -> DictConfig:
    """The tree Hydra makes of the overrides, its own node included."""
    mode = RunMode.MULTIRUN if multirun else RunMode.RUN
    return loader.load_configuration(where.config_name, overrides, run_mode=mode, from_shell=False)
