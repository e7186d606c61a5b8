"""A cause's changes in the words of the tool that wrote the log, with the run's own numbers, ready to paste."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping
from string import Formatter
from typing import Any

from runner.causes.cause import Cause
from runner.text import Text, same

NAMES: dict[str, Text] = {
    "runner": Text("Hydra overrides", "Hydra 覆盖参数"),
    "transformers": same("TrainingArguments / SFTConfig"),
    "llamafactory": Text("LLaMA-Factory YAML", "LLaMA-Factory YAML 配置"),
    "ms_swift": Text("ms-swift flags", "ms-swift 命令行参数"),
}
"""What the lines of each tool are called."""

KEYWORD = re.compile(r"[A-Za-z_]\w*=(?!=)")
"""How a keyword argument starts; other lines of transformers are Python statements."""


def fill(cause: Cause, tool: str, values: Mapping[str, object]) -> tuple[str, ...]:
    """The lines of `cause` for `tool` with their fields filled from `values`.

    A line with a field that is absent, None, NaN or infinite is left out. A tool without lines gets none.
    """
    return tuple(_filled(line, tool, values) for line in cause.changes.get(tool, ()) if _known(line, values))


def command(tool: str, lines: Iterable[str], given: Iterable[str] = ()) -> str:
    """`lines` in the form to paste; `given` are the runner's overrides that the run already had. "" without lines.

    runner: one command line, quoted for a shell. transformers: the Python statements one a line, then one
    `TrainingArguments(..., key=value)`. llamafactory: YAML, one key a line. ms_swift: one `swift sft ...`.
    """
    changes = list(lines)
    if not changes:
        return ""
    if tool == "runner":
        return shlex.join(["python", "-m", "runner", *_without(given, changes), *changes])
    if tool == "transformers":
        keywords = [line for line in changes if KEYWORD.match(line)]
        statements = [line for line in changes if not KEYWORD.match(line)]
        call = [f"TrainingArguments(..., {', '.join(keywords)})"] if keywords else []
        return "\n".join(statements + call)
    if tool == "ms_swift":
        return f"swift sft ... {' '.join(changes)}"
    return "\n".join(changes)


def check_command(cause: Cause, path: str) -> str:
    """The command that checks the claim, `path` quoted for a shell."""
    return cause.check.replace("{path}", shlex.quote(path))


def _known(line: str, values: Mapping[str, object]) -> bool:
    """Whether every field of the line has a value."""
    return all(_usable(values.get(name)) for _, name, _, _ in Formatter().parse(line) if name is not None)


def _usable(value: Any) -> bool:
    value = value.item() if hasattr(value, "item") else value
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _filled(line: str, tool: str, values: Mapping[str, object]) -> str:
    return line.format_map({name: _written(value, tool) for name, value in values.items()})


def _written(value: Any, tool: str) -> str:
    """A value as the tool reads it: three digits, whole numbers without a point, YAML's 1.0e-05 (it reads 1e-05 as
    text)."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return str(value) if tool == "transformers" else str(value).lower()
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    text = f"{value:.0f}" if value.is_integer() and abs(value) < 1e6 else f"{value:.3g}"
    return re.sub(r"^(-?\d+)e", r"\1.0e", text)


def _without(given: Iterable[str], changes: list[str]) -> list[str]:
    """Overrides of the run whose key a change sets anew are dropped, so that no key is given twice.

    A group chosen by a change (`precision=bf16`) drops the run's own choice and the leaves set under it.
    """
    keys = {_key(line) for line in changes}
    return [line for line in given if not any(_key(line) == k or _key(line).startswith(k + ".") for k in keys)]


def _key(line: str) -> str:
    return line.lstrip("+~").split("=", 1)[0]
