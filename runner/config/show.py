"""A checked configuration as a table: key, value, where it was set."""

from __future__ import annotations

from typing import Any

from runner.config.build import config_to_dict
from runner.config.compose import Loaded
from runner.config.layers import Origin, leaves_of, origin_of


def table(loaded: Loaded) -> str:
    """One line per key; keys that the chosen options do not use are left out, dropped ones listed at the end."""
    origins = {name: Origin(0, label) for name, label in loaded.where.items()}
    rows = []
    for name, value in leaves_of(config_to_dict(loaded.config)).items():
        origin = origin_of(name, origins)
        if origin is not None:
            rows.append((name, _shown(value), origin.label))
    widths = [min(max(len(row[i]) for row in rows), 44) for i in (0, 1)]
    lines = [f"{name:<{widths[0]}}  {value:<{widths[1]}}  {where}" for name, value, where in rows]
    return "\n".join([*lines, *(f"dropped: {sentence}" for sentence in loaded.dropped)])


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"[{', '.join(_shown(v) for v in value)}]" if isinstance(value, list) else str(value)
