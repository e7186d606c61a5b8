"""One thing that a log shows or does not show, with the numbers it rests on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runner.diagnosis.verdict import Evidence
from runner.text import Text


@dataclass(frozen=True)
class Sign:
    """`present` is None where the log cannot tell."""

    present: bool | None
    evidence: Evidence | None = None


@dataclass
class Signs:
    """Signs by name (`runner.causes.table.USUAL`), and every statistic behind them."""

    found: dict[str, Sign] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)

    def say(
        self,
        name: str,
        present: bool | None,
        en: str = "",
        zh: str = "",
        steps: Iterable[Any] = (),
        **values: Any,
    ) -> None:
        """Note the sign `name`; where it is present, its sentence is kept with `values` and the first ten steps."""
        clean = {k: plain(v) for k, v in values.items()}
        evidence = None
        if present and en:
            evidence = Evidence(Text(en, zh), clean, tuple(int(s) for s in list(steps)[:10]))
        self.found[name] = Sign(None if present is None else bool(present), evidence)

    def has(self, *names: str) -> bool:
        """Whether any of the signs is present."""
        return any(self.found[n].present for n in names if n in self.found)

    def flags(self) -> dict[str, bool | None]:
        """{name: present}."""
        return {name: sign.present for name, sign in self.found.items()}

    def evidence(self, name: str) -> Evidence | None:
        """The sentence of a present sign; None without one."""
        sign = self.found.get(name)
        return sign.evidence if sign is not None else None


def plain(value: Any) -> Any:
    """numpy scalars as Python numbers, rounded to five significant digits."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and np.isfinite(value):
        return float(f"{value:.5g}")
    return value


def short(value: float) -> str:
    """A number as people write it: 0.482, 1.43, 12.6, 3.2e+07."""
    if not np.isfinite(value):
        return str(value)
    if value != 0 and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.2g}"
    return f"{value:.4g}" if abs(value) >= 100 else f"{value:.3g}"
