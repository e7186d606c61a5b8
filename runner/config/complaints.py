"""Errors of Hydra, OmegaConf and the YAML parser as one sentence each."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from runner.config.frontdoor import unknown_option
from runner.config.share import short_place


def yaml_sentence(error: yaml.YAMLError) -> str:
    """File, line, column and complaint of a file that is no YAML."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return " ".join(str(error).split())
    place = f"{short_place(Path(mark.name))} line {mark.line + 1}, column {mark.column + 1}"
    tab = "; YAML is indented with spaces, not tabs" if "\\t" in str(problem) else ""
    return f"{place}: this is not YAML: {problem}{tab}"


def missing_option(error: BaseException, groups: dict[str, list[str]]) -> str | None:
    """What to say where a file's defaults list names an option that a group does not have; None for other errors."""
    found = re.search(
        r"In '([^']+)': Could not (?:find|load|override)[^']*'(\w+)/([^']+)'", " ".join(str(error).split())
    )
    if found is None or found[2] not in groups:
        return None
    return f"a defaults list asks for {found[2]}={found[3]}: {unknown_option(found[2], found[3], groups[found[2]])}"


def one_sentence(error: BaseException) -> str:
    """Hydra's and OmegaConf's errors without their advice, hints and links, in one line."""
    texts = [str(error)] + ([str(error.__cause__)] if error.__cause__ else [])
    lines = [line.strip() for text in texts for line in text.splitlines()]
    noise = (
        "Set the environment",
        "See http",
        "To append to your config",
        "full_key:",
        "object_type=",
        "reference_type=",
    )
    kept = [line for line in lines if line and not line.startswith(noise)]
    return " ".join(dict.fromkeys(kept)) or type(error).__name__


def encoding_sentence(error: UnicodeDecodeError) -> str:
    """Which YAML file below ./conf is not UTF-8, as far as it can be found."""
    bad = []
    for path in sorted(Path("conf").rglob("*.yaml")):
        try:
            path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            bad.append(str(path))
    return f"{', '.join(bad) or 'a YAML file'}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
