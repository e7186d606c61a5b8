"""Field names of `SFTConfig` and `TrainingArguments`, and optimizer names, read from the installed source.

Importing trl takes five seconds; parsing three files takes a few milliseconds.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path

_SOURCES = {
    "sft": (
        ("trl", "trainer/sft_config.py", "SFTConfig"),
        ("trl", "trainer/base_config.py", "_BaseConfig"),
        ("transformers", "training_args.py", "TrainingArguments"),
    ),
    "classification": (("transformers", "training_args.py", "TrainingArguments"),),
}


@cache
def _classes(package: str, file: str) -> dict[str, ast.ClassDef]:
    """Classes of one source file of an installed package; none if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return {}
    path = Path(spec.submodule_search_locations[0]) / file
    if not path.is_file():
        return {}
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}


@cache
def trainer_fields(task: str) -> dict[str, str]:
    """Name -> type as written, of every argument the trainer of a task takes (task.name: sft or classification).

    Empty when the packages are not installed: then nothing can be checked.
    """
    found: dict[str, str] = {}
    for package, file, name in _SOURCES[task]:
        node = _classes(package, file).get(name)
        for line in node.body if node else []:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                kind = ast.unparse(line.annotation)
                if not line.target.id.startswith("_") and "ClassVar" not in kind:
                    found.setdefault(line.target.id, kind)
    return found


@cache
def optimizer_names() -> tuple[str, ...]:
    """Values of transformers' `OptimizerNames`; empty when transformers is not installed."""
    node = _classes("transformers", "training_args.py").get("OptimizerNames")
    values = [line.value for line in node.body if isinstance(line, ast.Assign)] if node else []
    return tuple(str(v.value) for v in values if isinstance(v, ast.Constant))


_PLAIN_TYPES = {"int": int, "float": float, "bool": bool, "str": str}


def field_type(task: str, name: str) -> object | None:
    """The type of a field if it is a plain number, bool or text, perhaps with None; else None (not checked)."""
    written = trainer_fields(task).get(name, "")
    parts = [p.strip() for p in written.split("|")]
    kinds = [_PLAIN_TYPES[p] for p in parts if p in _PLAIN_TYPES]
    if len(kinds) != 1 or any(p not in _PLAIN_TYPES and p != "None" for p in parts):
        return None
    return kinds[0] | None if "None" in parts else kinds[0]
