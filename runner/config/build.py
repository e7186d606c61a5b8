"""From a composed tree to the typed `Config`: every unknown key, wrong value and missing value in one pass."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, MissingMandatoryValue, OmegaConfBaseException

from runner.config.names import UNSET, dict_value, fields_of, known_keys, nearest
from runner.config.renames import explain, find_rename, owned_trainer_field
from runner.config.schema import Config
from runner.config.trainer_fields import field_type, trainer_fields
from runner.config.values import describe, typed
from runner.errors import ConfigError

MISSING = "???"


@dataclass(frozen=True)
class Problem:
    """A mistake at a dotted key; the sentence says what is wrong without saying where it was set."""

    key: str
    sentence: str


@dataclass
class Built:
    """A configuration (meaningful only if there are no problems) and the problems found."""

    config: Config
    problems: list[Problem] = field(default_factory=list)


def plain(node: Any, prefix: str, problems: list[Problem]) -> Any:
    """A tree as plain dicts and lists, interpolations resolved leaf by leaf, so that one failure hides no other."""
    if isinstance(node, DictConfig):
        if node._is_none() or node._is_missing():
            return None if node._is_none() else MISSING
        return {str(k): _leaf(node, k, f"{prefix}{k!s}", problems) for k in node}
    if isinstance(node, ListConfig):
        if node._is_none() or node._is_missing():
            return None if node._is_none() else MISSING
        return [_leaf(node, i, f"{prefix}[{i}]", problems) for i in range(len(node))]
    return node


def _leaf(node: Any, key: Any, name: str, problems: list[Problem]) -> Any:
    try:
        return plain(node[key], name + ".", problems)
    except MissingMandatoryValue:
        return MISSING
    except InterpolationToMissingValueError:
        return ""  # what it refers to is reported as missing
    except OmegaConfBaseException as error:
        problems.append(Problem(name, f"{name} cannot be resolved: {str(error).splitlines()[0]}"))
        return None
    except Exception as error:  # a resolver may raise anything
        problems.append(Problem(name, f"{name} cannot be resolved: {error}"))
        return None


def build(values: dict[str, Any], problems: list[Problem] | None = None) -> Built:
    """Check plain values against the schema and make the typed configuration of them."""
    found = list(problems or [])
    skip = {p.key for p in found}
    config = _dataclass(Config, values, "", found, skip)
    trainer = values.get("trainer")
    if isinstance(trainer, dict):
        config.trainer = _trainer(trainer, config.task.name, found)
    return Built(config, found)


def _dataclass(schema: Any, values: dict[str, Any], prefix: str, found: list[Problem], skip: set[str]) -> Any:
    fields = fields_of(schema)
    for name in values:
        if name not in fields:
            found.append(Problem(prefix + name, _unknown(prefix, name, list(fields))))
    made: dict[str, Any] = {}
    for name, (kind, default) in fields.items():
        key = prefix + name
        value = values.get(name, default)
        if key in skip:
            continue
        if value is UNSET or (isinstance(value, str) and value == MISSING):
            if name in values or not prefix.startswith("dataset.sources."):
                doc = known_keys()[key].doc if key in known_keys() else ""
                found.append(Problem(key, f"{key} is not set. {doc}".strip()))
            else:
                found.append(Problem(key, f"{key} is not set"))
            continue
        if name not in values and not dataclasses.is_dataclass(kind):
            continue
        made[name] = _value(kind, value, key, found, skip)
    made = {n: v for n, v in made.items() if v is not UNSET}
    return schema(**made)


def _value(kind: Any, value: Any, key: str, found: list[Problem], skip: set[str]) -> Any:
    """One typed value; UNSET, and a problem, if it does not fit."""
    if dataclasses.is_dataclass(kind):
        if dataclasses.is_dataclass(value):
            return value
        if not isinstance(value, dict):
            found.append(Problem(key, f"{key}={value} takes {describe(kind)}"))
            return UNSET
        return _dataclass(kind, value, key + ".", found, skip)
    inner = dict_value(kind)
    if dataclasses.is_dataclass(inner) and isinstance(value, dict):
        return {n: _value(inner, v, f"{key}.{n}", found, skip) for n, v in value.items()}
    result, takes = typed(kind, value)
    if takes is not None:
        found.append(Problem(key, f"{key}={_short(value)} {takes}"))
        return UNSET
    return result


def _short(value: Any) -> str:
    text = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else str(value)
    return text if text and len(text) <= 80 else f"{str(text)[:77]}..."


def _unknown(prefix: str, name: str, fields: list[str]) -> str:
    from runner.config.frontdoor import unknown

    near = nearest(name, fields, 0.75)
    if near and find_rename(prefix + name) is None:
        return f"there is no key '{prefix}{name}'; did you mean {prefix}{near}?"
    if prefix.startswith("dataset.sources."):
        return f"there is no key '{prefix}{name}'; a source has {', '.join(fields)}"
    return unknown(prefix + name, None, {})


def _trainer(values: dict[str, Any], task: str, found: list[Problem]) -> dict[str, Any]:
    """Arguments passed through to the trainer: known to it, and owned by no group."""
    fields = trainer_fields(task)
    checked: dict[str, Any] = {}
    for name, value in values.items():
        key = f"trainer.{name}"
        owner = owned_trainer_field(name)
        rename = find_rename(name)
        if owner is not None:
            found.append(Problem(key, f"{key} is decided by a group: {owner}"))
        elif fields and name not in fields:
            near = nearest(name, [f for f in fields if owned_trainer_field(f) is None])
            ours = nearest(name, [f for f in fields if owned_trainer_field(f) is not None], 0.8)
            if rename is not None:
                hint = f"; {explain(rename, str(value))}"
            elif ours:
                hint = f"; did you mean {ours}? {owned_trainer_field(ours)}"
            elif name in trainer_fields("sft"):
                hint = "; it exists for task=sft only"
            else:
                hint = f"; did you mean trainer.{near}?" if near else ""
            found.append(Problem(key, f"{key} is no argument of the trainer of task={task}{hint}"))
        else:
            kind = field_type(task, name)
            checked[name], takes = (value, None) if kind is None else typed(kind, value)
            if takes is not None:
                found.append(Problem(key, f"{key}={_short(value)} {takes}"))
    return checked


def to_config(tree: DictConfig | dict[str, Any]) -> Config:
    """The typed configuration of a composed tree (Hydra's own node is ignored); ConfigError with every problem."""
    problems: list[Problem] = []
    node = tree if isinstance(tree, DictConfig) else OmegaConf.create(tree)
    values = {k: v for k, v in plain(node, "", problems).items() if k != "hydra"}
    built = build(values, problems)
    if built.problems:
        raise ConfigError([p.sentence for p in built.problems])
    return built.config


def config_to_dict(config: Config) -> dict[str, Any]:
    """A configuration as JSON-ready dicts and lists."""

    def ready(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: ready(v) for k, v in value.items()}
        return [ready(v) for v in value] if isinstance(value, list | tuple) else value

    result = ready(dataclasses.asdict(config))
    assert isinstance(result, dict)
    return result


def config_from_dict(values: dict[str, Any]) -> Config:
    """The configuration that `config_to_dict` wrote; ConfigError if it does not fit the schema."""
    built = build(values)
    if built.problems:
        raise ConfigError([p.sentence for p in built.problems])
    return built.config
