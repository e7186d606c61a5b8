"""Compose a configuration from overrides and check it whole: one error that holds every mistake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from runner.config.advice import contradictions
from runner.config.build import Problem, build, config_from_dict, config_to_dict, plain, to_config
from runner.config.complaints import encoding_sentence, missing_option, one_sentence, yaml_sentence
from runner.config.frontdoor import Command, read_command, unknown
from runner.config.layers import (
    HERE,
    OVERLAYS,
    Groups,
    Layer,
    Origin,
    Where,
    compose_tree,
    open_loader,
    origin_of,
    origins,
    read_layers,
)
from runner.config.names import is_known
from runner.config.quote import parse
from runner.config.rules import broken_rules, wrong_allowances
from runner.config.schema import Config
from runner.config.unused import find_unused
from runner.errors import ConfigError

__all__ = ["Loaded", "Session", "Where", "config_from_dict", "config_to_dict", "drop_unused", "load", "to_config"]

_EITHER = (("schedule.warmup_ratio", "schedule.warmup_steps"),)
"""Keys that exclude each other: the one set by the higher layer wins."""


@dataclass
class Loaded:
    """A checked configuration.

    config: typed. tree: composed and resolvable, Hydra's node left out. where: leaf -> file or override.
    dropped: sentences about inherited leaves that were taken out. overrides: what Hydra is to be given.
    edits: the overrides among them that take leaves out. sweep: hydra.sweeper.params of the composition.
    """

    config: Config
    tree: DictConfig
    where: dict[str, str]
    dropped: list[str]
    overrides: list[str]
    edits: list[str]
    sweep: dict[str, str]


class Session:
    """Hydra's loader, opened once, so that the trials of a sweep are checked quickly."""

    def __init__(self, where: Where = HERE):
        self.where = where
        self.loader = open_loader(where)
        self.groups = Groups(self.loader, where)
        self.layers: dict[tuple[str, ...], list[Layer]] = {}

    def read(self, lines: list[str]) -> Command:
        """The command line, sorted and checked by itself."""
        if any("hydra.searchpath" in line for line in lines):
            self.groups = Groups(self.loader, self.where, lines)
        return read_command(lines, self.groups)

    def layers_of(self, command: Command) -> list[Layer]:
        """The files that a command line's group choices compose; remembered."""
        lines = [line for line in command.lines([]) if not line.startswith(("++", "~"))]
        if tuple(lines) not in self.layers:
            self.layers[tuple(lines)] = read_layers(self.loader, lines, self.where, list(self.groups))
        return self.layers[tuple(lines)]

    def load(self, lines: list[str], files: bool = False, findings: bool = False) -> Loaded:
        """Compose and check; `files` also checks paths and installed packages. ConfigError with all problems.

        `findings` lets pass what `checks.allow` could allow: preflight shows it as a finding.
        """
        command = self.read(lines)
        problems = list(command.problems)
        try:
            loaded = self._compose(command, problems, files, findings)
        except ConfigError:
            raise
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError([*problems, missing_option(error, self.groups) or one_sentence(error)]) from error
        except yaml.YAMLError as error:
            raise ConfigError([*problems, yaml_sentence(error)]) from error
        except UnicodeDecodeError as error:
            raise ConfigError([*problems, encoding_sentence(error)]) from error
        if problems or loaded is None:
            raise ConfigError(list(dict.fromkeys(problems)))
        return loaded

    def _compose(self, command: Command, problems: list[str], files: bool, findings: bool) -> Loaded | None:
        problems += [_sweep_alone(o) for o in [*command.groups, *command.leaves] if o.is_sweep_override()]
        if any(o.is_sweep_override() for o in command.groups):
            return None
        command.leaves = [o for o in command.leaves if not o.is_sweep_override()]
        layers = self.layers_of(command)
        found = origins(layers, command.leaves)
        present = {name for layer in layers for leaf in layer.leaves for name in _and_above(leaf)}
        problems += self._unknown_in_files(layers)
        leaves = [leaf for leaf in command.leaves if not (leaf.is_delete() and leaf.key_or_group not in present)]
        command = Command(command.groups, leaves, command.rest, whole=command.whole)
        lines = command.lines(sorted(present))
        tree = compose_tree(self.loader, lines, self.where)
        raw: dict[str, Any] = OmegaConf.to_container(tree, resolve=False)  # type: ignore[assignment]
        unused = find_unused(layers, found, raw, command.choices())
        problems += unused.problems
        edits, dropped = list(unused.edits), list(unused.dropped)
        _settle_either(raw, found, edits, dropped)
        apply_edits(tree, edits)
        troubles: list[Problem] = []
        values = {k: v for k, v in plain(tree, "", troubles).items() if k != "hydra"}
        troubles = [t for t in troubles if not t.key.startswith("hydra.")]
        known = {k: v for k, v in values.items() if is_known(k)}
        built = build(known, troubles)
        told = {layer_key for layer in layers for layer_key in layer.leaves if not is_known(layer_key)}
        clashes = _trainer_contradictions(values)
        told |= set(clashes)
        problems += [s + _place(found, key) for key, s in clashes.items()]
        for problem in built.problems:
            if problem.key not in told and (command.whole or "is not set" not in problem.sentence):
                problems.append(problem.sentence + _place(found, problem.key))
        if not built.problems and command.whole:
            for broken in broken_rules(built.config, files):
                if not (findings and broken.rule.allowable):
                    problems.append(broken.sentence + _place(found, *broken.rule.keys))
            problems += wrong_allowances(built.config)
        if problems:
            return None
        where = {name: origin.label for name, origin in found.items() if not _is_dropped(name, edits)}
        for edit in edits:
            if not edit.startswith("~"):
                where[edit.partition("=")[0]] = "set by the front door (see dropped)"
        sweep = dict(raw.get("hydra", {}).get("sweeper", {}).get("params") or {})
        with open_dict(tree):
            del tree["hydra"]
            resolved = OmegaConf.create(values)
        return Loaded(built.config, resolved, where, dropped, lines + edits, edits, sweep)

    def _unknown_in_files(self, layers: list[Layer]) -> list[str]:
        found = []
        for layer in layers:
            overlay = layer.config_path.partition("/")[0]
            if overlay in OVERLAYS and layer.leaves and all(n.split(".")[0] == overlay for n in layer.leaves):
                found.append(
                    f"{layer.label}: its first line must be '# @package _global_' (without a byte order mark before "
                    f"it); as it stands its keys land under {overlay}. and set nothing"
                )
                continue
            for name in layer.leaves:
                head = name.partition(".")[0]
                if head != "hydra" and head not in OVERLAYS and not is_known(name):
                    found.append(f"{layer.label}: {unknown(name, None, self.groups)}")
        return found


def load(overrides: list[str], where: Where = HERE, files: bool = False) -> Loaded:
    """Compose and check one configuration. Raises ConfigError with every problem found."""
    return Session(where).load(list(overrides), files)


def drop_unused(tree: DictConfig, overrides: list[str], where: Where = HERE) -> list[str]:
    """Take out of Hydra's tree, in place, what `load` takes out for the same overrides; the sentences about it.

    In a sweep over groups this differs from trial to trial, so the task function does it.
    """
    loaded = load(overrides, where)
    apply_edits(tree, loaded.edits)
    return loaded.dropped


def apply_edits(tree: DictConfig, edits: list[str]) -> None:
    """Apply `~key` and `key=value` overrides to a composed tree."""
    with open_dict(tree):
        for edit in edits:
            override = parse(edit)
            assert override is not None
            name = override.key_or_group
            if override.is_delete():
                parent, _, leaf = name.rpartition(".")
                node = OmegaConf.select(tree, parent) if parent else tree
                if node is not None and leaf in node:
                    with open_dict(node):
                        del node[leaf]
            else:
                OmegaConf.update(tree, name, override.value(), force_add=True)


def _settle_either(raw: dict[str, Any], found: dict[str, Origin], edits: list[str], dropped: list[str]) -> None:
    """Of two keys that exclude each other, the one from the higher layer stays and the other becomes null."""
    for pair in _EITHER:
        set_ones = [name for name in pair if _raw(raw, name)]
        places = {name: found[name] for name in set_ones if name in found}
        if len(places) < 2:
            continue
        low, high = sorted(places, key=lambda name: places[name].layer)
        if places[low].layer == places[high].layer or (places[low].by_hand and places[high].by_hand):
            continue
        edits.append(f"{low}=null")
        dropped.append(f"{low}={_raw(raw, low)} from {places[low].label}: gives way to {high} ({places[high].label})")


def _sweep_alone(override: Override) -> str:
    """A list of values outside a sweep."""
    line = override.input_line or ""
    values = line.partition("=")[2]
    return (
        f"{line} (command line): several values are a sweep: add -m; one list is written "
        f"{override.key_or_group}=[{values}]"
    )


def _trainer_contradictions(values: dict[str, Any]) -> dict[str, str]:
    """Key below trainer -> a sentence, where its number format contradicts another one that is set."""
    trainer, precision = values.get("trainer"), values.get("precision")
    if not isinstance(trainer, dict) or not trainer:
        return {}
    set_ones = {f"trainer.{name}": str(value) for name, value in trainer.items()}
    if isinstance(precision, dict):
        set_ones["precision.compute"] = str(precision.get("compute"))
    found = {}
    for entry, names in contradictions(set_ones.items()):
        said = " and ".join(f"{name}={set_ones[name].lower()}" for name in names)
        for name in names:
            if name.startswith("trainer."):
                found[name] = f"{said}: {entry.text.en}"
    return found


def _raw(raw: dict[str, Any], name: str) -> Any:
    value: Any = raw
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _and_above(leaf: str) -> list[str]:
    parts = leaf.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def _place(found: dict[str, Origin], *keys: str) -> str:
    """` (conf/optim/adamw.yaml)`: where the highest of some keys was set."""
    places = [o for o in (origin_of(k, found) for k in keys) if o is not None]
    return f" ({max(places, key=lambda o: o.layer).label})" if places else ""


def _is_dropped(name: str, edits: list[str]) -> bool:
    return any(name == e[1:] or name.startswith(e[1:] + ".") for e in edits if e.startswith("~"))
