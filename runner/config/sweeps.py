"""Check a sweep before its first trial: expand what can be enumerated, check each combination, name every mistake."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from runner.config.compose import Session, one_sentence
from runner.config.frontdoor import Command, values_of
from runner.config.quote import quote
from runner.errors import ConfigError

MOST_CHECKED = 16
"""Combinations checked before a sweep starts; each trial is checked again when its turn comes."""

_PARAMS = "hydra.sweeper.params."


@dataclass
class Sweep:
    """overrides: what Hydra is to be given. trials: how many combinations there are (0: not countable)."""

    overrides: list[str]
    trials: int


def check_sweep(session: Session, lines: list[str], files: bool = False) -> Sweep:
    """Check the combinations of a sweep; ConfigError with every distinct problem."""
    command = session.read(lines)
    if command.problems:
        raise ConfigError(command.problems)
    try:
        return _check(session, command, files)
    except HydraException as error:
        raise ConfigError([one_sentence(error)]) from error


def _check(session: Session, command: Command, files: bool) -> Sweep:
    given = [*command.groups, *command.leaves]
    by_hand = {o.key_or_group for o in given}
    from_file, problems = _params(session, command, by_hand)
    swept = [o for o in given if o.is_sweep_override()] + [o for o in from_file if o.is_sweep_override()]
    fixed = [_line(o) for o in [*given, *command.rest, *from_file] if not o.is_sweep_override()]
    axes = [axis for axis in (_values(session, o) for o in swept) if axis]
    count = 1
    for axis in axes:
        count *= len(axis)
    present: set[str] | None = None
    for combination in _choose(axes, count):
        trial = [*fixed, *combination]
        layers = session.layers_of(session.read(trial))
        names = {name for layer in layers for name in layer.leaves}
        present = names if present is None else present & names
        try:
            session.load(trial, files)
        except ConfigError as error:
            label = ", ".join(combination)
            problems += [
                p if not label else f"{p} [in the trial {label}]" for p in error.problems if not _told(p, problems)
            ]
    if problems:
        raise ConfigError(problems)
    above = {".".join(n.split(".")[:i]) for n in present or () for i in range(1, n.count(".") + 2)}
    return Sweep(command.lines(sorted(above)), count if len(axes) == len(swept) else 0)


def _params(session: Session, command: Command, by_hand: set[str]) -> tuple[list[Override], list[str]]:
    """Sweeps written in YAML (`hydra.sweeper.params`), those the command line replaces left out; and what is wrong."""
    fixed = Command([o for o in command.groups if not o.is_sweep_override()], [], command.rest)
    params: dict[str, tuple[str, str]] = {}
    for layer in session.layers_of(fixed):
        for name, value in layer.leaves.items():
            if name.startswith(_PARAMS):
                params[name.removeprefix(_PARAMS)] = (str(value), layer.label)
    found: list[Override] = []
    problems: list[str] = []
    for name, (value, label) in params.items():
        if name in by_hand:
            continue
        read = session.read([f"{name}={value}"])
        problems += [p.replace("(command line)", f"({label}: hydra.sweeper.params)") for p in read.problems]
        found += [*read.groups, *read.leaves]
    return found, problems


def _line(override: Override) -> str:
    return override.input_line or ""


def _values(session: Session, override: Override) -> list[str]:
    """`key=value` of each value of a discrete sweep; none for an interval."""
    if not override.is_discrete_sweep():
        return []
    override.config_loader = session.loader
    values = values_of(override) or list(override.sweep_string_iterator())
    return [quote(f"{override.get_key_element().lstrip('+')}={value}") for value in values]


def _choose(axes: list[list[str]], count: int) -> list[tuple[str, ...]]:
    """All combinations if they are few, else a choice in which every value occurs."""
    if count <= MOST_CHECKED:
        return list(itertools.product(*axes))
    longest = max(len(axis) for axis in axes)
    diagonal = [tuple(axis[i % len(axis)] for axis in axes) for i in range(longest)]
    head = itertools.islice(itertools.product(*axes), MOST_CHECKED)
    return list(dict.fromkeys([*diagonal, *head]))[: max(MOST_CHECKED, longest)]


def _told(problem: str, problems: list[str]) -> bool:
    return any(p.partition(" [in the trial")[0] == problem for p in problems)


__all__ = ["MOST_CHECKED", "Sweep", "check_sweep"]
