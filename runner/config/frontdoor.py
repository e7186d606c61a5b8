"""Reads the overrides before Hydra does: quotes, orders and names every mistake at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from hydra.core.override_parser.types import Override, ValueType

from runner.config.advice import contradictions
from runner.config.layers import OVERLAYS
from runner.config.names import is_known, known_keys, nearest, suggest
from runner.config.quote import parse, quote
from runner.config.renames import explain, find_option, find_rename, owned_trainer_field
from runner.config.schema import Source
from runner.config.trainer_fields import trainer_fields
from runner.errors import ConfigError


@dataclass
class Command:
    """What the command line asks for. `groups` are choices (overlays included), `leaves` keys set by hand, `rest`
    Hydra's own; `problems` are sentences about the lines that were left out."""

    groups: list[Override] = field(default_factory=list)
    leaves: list[Override] = field(default_factory=list)
    rest: list[Override] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    whole: bool = True
    """False when a group choice was left out: then missing values and cross-field rules mean nothing."""

    def choices(self) -> dict[str, str]:
        """Group -> option named by hand, overlays left out."""
        return {o.key_or_group: str(o.value()) for o in self.groups if o.key_or_group not in OVERLAYS}

    def lines(self, present: Sequence[str] | None = None) -> list[str]:
        """Overrides for Hydra: exp, fault, sweep, the other groups, Hydra's own, then the leaves.

        present: keys the files list; a leaf that is not among them is added with `++`, which plain Hydra demands.
        """
        overlays = sorted((o for o in self.groups if o.key_or_group in OVERLAYS), key=_overlay_place)
        others = [o for o in self.groups if o.key_or_group not in OVERLAYS]
        lines = [f"+{_bare(o)}" for o in overlays] + [_bare(o) for o in others]
        lines += [o.input_line or "" for o in self.rest]
        for leaf in self.leaves:
            bare = _bare(leaf)
            if leaf.is_delete():
                lines.append("~" + bare)
            else:
                plain = present is None or (leaf.key_or_group in present and not isinstance(leaf.value(), dict))
                lines.append(bare if plain else "++" + bare)
        return lines


def _overlay_place(override: Override) -> int:
    return OVERLAYS.index(override.key_or_group)


def _bare(override: Override) -> str:
    return (override.input_line or "").lstrip("+~").strip()


def values_of(override: Override) -> list[str]:
    """The values an override takes: one, or those of a discrete sweep."""
    if override.value_type in (ValueType.CHOICE_SWEEP, ValueType.SIMPLE_CHOICE_SWEEP, ValueType.RANGE_SWEEP):
        return [str(v) for v in override.sweep_string_iterator()]
    if override.is_sweep_override():
        return []
    value = override.value()
    return ["null" if value is None else str(value)]


def read_command(lines: Sequence[str], groups: dict[str, list[str]]) -> Command:
    """Sort, quote and check every override; `groups` are the groups there are and their options."""
    lines, clashes = _without_contradictions(lines)
    command = Command(problems=clashes)
    seen: dict[str, str] = {}
    for typed in lines:
        try:
            override = parse(quote(typed))
        except ConfigError as error:
            command.problems += error.problems
            continue
        assert override is not None
        name = override.key_or_group
        if name in seen and override.package is None:
            command.problems.append(f"{name} is given twice on the command line: {seen[name]} and {typed}; keep one")
            continue
        seen[name] = typed
        _place(override, typed, groups, command)
    return command


def _without_contradictions(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """The lines without foreign keys that contradict another line (bf16=true fp16=true), and a sentence about each."""
    typed = {line.lstrip("+").partition("=")[0]: line for line in lines if not line.startswith("~")}
    foreign = {name for name in typed if not is_known(name) or name.startswith("trainer.")}
    if not foreign:
        return list(lines), []
    gone, problems = set(), []
    for entry, names in contradictions((name, line.partition("=")[2]) for name, line in typed.items()):
        if foreign.intersection(names):
            said = " and ".join(typed[name] for name in names)
            problems.append(f"{said} (command line): {entry.text.en}")
            gone |= {typed[name] for name in foreign.intersection(names)}
    return [line for line in lines if line not in gone], problems


def _place(override: Override, typed: str, groups: dict[str, list[str]], command: Command) -> None:
    """Put one override where it belongs, or say why it belongs nowhere."""
    name = override.key_or_group
    if name in groups and name.startswith("hydra/"):
        problem = _check_option(override, typed, groups)
        command.rest.append(override) if problem is None else command.problems.append(problem)
    elif override.is_hydra_override() or override.package is not None:
        command.rest.append(override)
    elif name in groups:
        problem = _check_option(override, typed, groups)
        command.groups.append(override) if problem is None else command.problems.append(problem)
        command.whole = command.whole and problem is None
    elif name.partition("/")[0] in groups and "/" in name:
        command.problems.append(f"{typed} (command line): write {name.replace('/', '=', 1)}")
    elif is_known(name):
        key = known_keys().get(name)
        if key is not None and key.is_group and not isinstance(override.value(), dict) and not override.is_delete():
            below = ", ".join(k for k in known_keys() if k.startswith(name + "."))
            command.problems.append(f"{typed} (command line): {name} holds keys, not a value; set {below}")
        else:
            command.leaves.append(override)
    else:
        command.problems.append(f"{typed} (command line): {unknown(name, _written_value(typed), groups)}")


def _written_value(typed: str) -> str | None:
    return typed.partition("=")[2] if "=" in typed else None


def _check_option(override: Override, typed: str, groups: dict[str, list[str]]) -> str | None:
    """A sentence if a group has no such option."""
    name = override.key_or_group
    if override.is_delete():
        return None if name in OVERLAYS else f"{typed} (command line): a group cannot be taken out; choose {name}=..."
    if isinstance(override.value(), dict | list):
        return (
            f"{typed} (command line): {name}= chooses one of {', '.join(groups[name])}; set "
            f"its keys as {name}.KEY=VALUE"
        )
    for option in values_of(override):
        if option not in groups[name]:
            return f"{typed} (command line): {unknown_option(name, option, groups[name])}"
    return None


def unknown_option(group: str, option: str, options: list[str]) -> str:
    """What to say about an option that a group does not have."""
    known = find_option(group, option)
    if known:
        return f"{group} has no option {option!r}: {known}"
    hint = nearest(option, options, 0.5)
    also = f"; did you mean {group}={hint}?" if hint else ""
    if group == "dataset":
        also += (
            "; your own file: dataset=file dataset.path=...; entries of dataset_info.json: "
            "dataset=llamafactory dataset.names=[...]"
        )
    if group == "model":
        also += "; any other weights: model=path model.path=..."
    if group == "optim":
        also += f"; any other optimizer of transformers: optim.name={option}"
    return f"{group} has no option {option!r}; there are {', '.join(options)}{also}"


def unknown(name: str, value: str | None, groups: dict[str, list[str]]) -> str:
    """What to say about a key that does not exist: today's name of an old one, or the nearest there is."""
    leaf = name.rpartition(".")[2]
    rename = find_rename(name, value)
    if rename is not None:
        return f"{leaf} is not a key here: {explain(rename, value)}"
    owned = owned_trainer_field(leaf) if "." not in name and leaf in trainer_fields("sft") else None
    if owned is not None:
        return f"{leaf} is not a key here: {owned}" + (f"={value}" if value is not None and "=" not in owned else "")
    if leaf in trainer_fields("sft") and "." not in name:
        return f"there is no key {name!r}; it is an argument of the trainer: use trainer.{name}"
    if "." not in name:
        group = nearest(name, groups, 0.75)
        if group:
            return f"there is no key {name!r}; did you mean {group}?"
    parts = name.split(".")
    if parts[:2] == ["dataset", "sources"] and len(parts) == 4:
        fields = [f.name for f in dataclasses.fields(Source)]
        close = nearest(parts[3], fields, 0.5)
        also = f"; did you mean {'.'.join(parts[:3])}.{close}?" if close else ""
        return f"there is no key {name!r}; a source has {', '.join(fields)}{also}"
    if len(parts) == 2 and parts[0] == "dataset" and leaf in {f.name for f in dataclasses.fields(Source)}:
        return f"there is no key {name!r}; it belongs to a source: dataset.sources.NAME.{leaf} (dataset=file: file)"
    near = suggest(name)
    if near:
        return f"there is no key {name!r}; did you mean {near}?"
    head = name.partition(".")[0]
    if head in known_keys() and head != name:
        below = [k for k in known_keys() if k.startswith(head + ".")]
        return f"there is no key {name!r}; {head} has {', '.join(below)}" if below else f"there is no key {name!r}"
    return f"there is no key {name!r}; python -m runner --help lists the groups, --help GROUP its keys"
