"""`python -m runner check`: the table of checks, preflight.json, and 1 as exit code where an error was found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from runner.config.rules import allowed
from runner.config.schema import Config
from runner.preflight.check import Stage
from runner.preflight.examine import examine
from runner.preflight.flow import Line
from runner.preflight.show import counts, line_lines, mended
from runner.preflight.table import CHECKS
from runner.text import language


def check(cfg: Config, given: Sequence[str], dropped: Sequence[str] = (), until: Stage = "batch") -> int:
    """Examine the experiment of `cfg` up to a stage; `given` are the overrides it was composed from. 1 where an error
    was found."""
    from runner.training.environment import set_early

    spoken = language("auto")
    permitted = allowed(cfg)

    def show(line: Line) -> None:
        print("\n".join(line_lines(line, len(CHECKS), spoken, permitted)), flush=True)

    for sentence in dropped:
        print(f"Note: {sentence}")
    level = cfg.checks.level or "deep"
    if level == "off":
        print("checks.level=off: the configuration is valid, and nothing else was checked")
        return 0
    set_early(cfg)
    folder = Path(cfg.output_dir).parent / "check"
    pre = examine(cfg, level, folder, show, until)
    # Where files are missing, the folder for the results may be one of them.
    where = f"(checks.level={level}); {pre.write()}" if until == "batch" else "of the settings alone"
    print(f"\n{counts(pre)} {where}")
    better = mended(pre, given)
    if better is not None:
        print(f"Mended: {better}")
    if pre.errors:
        print("training with this refuses to start", file=sys.stderr)
    return 1 if pre.errors else 0
