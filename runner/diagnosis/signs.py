"""All signs of a trace."""

from __future__ import annotations

from collections.abc import Sequence

from runner.diagnosis.sign import Sign, Signs
from runner.diagnosis.signs_broken import HARMLESS, broken_signs
from runner.diagnosis.signs_learning import learning_signs
from runner.diagnosis.signs_plan import plan_signs
from runner.diagnosis.signs_run import run_signs
from runner.diagnosis.signs_shape import shape_signs
from runner.diagnosis.trace import Trace
from runner.diagnosis.verdict import Evidence
from runner.text import Text


def compare_outcomes(signs: Signs, others: Sequence[Trace]) -> None:
    """outcome_changes: another run of the same script shows the other of two signatures, NaN from the start and a loss
    of exactly ln K without a gradient; its evidence joins that of this run. None without other runs."""
    signs.say("outcome_changes", None)
    first = {"broken_from_start", "log_classes_zero_norm"}
    here = {name for name in first if signs.has(name)}
    for other in others:
        found = Signs()
        broken_signs(other, found)
        there = {name for name in first if found.has(name)} - here
        signs.found["outcome_changes"] = Sign(False)
        if not (here and there):
            continue
        shown = found.evidence("hidden_nan" if "broken_from_start" in there else "log_classes_zero_norm")
        text = shown.text if shown is not None else Text("NaN from the start", "从一开始就是 NaN")
        signs.say("outcome_changes", True, f"another run of it: {text.en}", f"另一次运行：{text.zh}")
        return


def read_signs(trace: Trace) -> Signs:
    """What `trace` shows, each sign present, absent or unknown, with its numbers."""
    signs = Signs()
    broken_signs(trace, signs)
    shape_signs(trace, signs)
    if signs.has("diverges", "norm_explodes") and (harmless := signs.evidence("isolated_nan_norm")) is not None:
        # Beside a loss that has blown up, an overflow is part of the damage.
        text = harmless.text
        words = Text(text.en.removesuffix(HARMLESS.en), text.zh.removesuffix(HARMLESS.zh))
        signs.found["nan_norm"] = Sign(True, Evidence(words, harmless.values, harmless.steps))
        signs.found["isolated_nan_norm"] = Sign(False)
    learning_signs(trace, signs)
    run_signs(trace, signs)
    plan_signs(trace, signs)
    return signs
