"""All signs of a trace."""

from __future__ import annotations

from runner.causes.text import Text
from runner.diagnosis.sign import Sign, Signs
from runner.diagnosis.signs_broken import broken_signs
from runner.diagnosis.signs_learning import learning_signs
from runner.diagnosis.signs_run import run_signs
from runner.diagnosis.signs_shape import shape_signs
from runner.diagnosis.trace import Trace
from runner.diagnosis.verdict import Evidence


def read_signs(trace: Trace) -> Signs:
    """What `trace` shows, each sign present, absent or unknown, with its numbers."""
    signs = Signs()
    broken_signs(trace, signs)
    shape_signs(trace, signs)
    if signs.has("diverges", "norm_explodes") and (harmless := signs.evidence("isolated_nan_norm")) is not None:
        # Beside a loss that has blown up, an overflow is part of the damage.
        text = harmless.text
        words = Text(text.en.split(" and the loss goes on")[0], text.zh.split("，loss 未受影响")[0])
        signs.found["nan_norm"] = Sign(True, Evidence(words, harmless.values, harmless.steps))
        signs.found["isolated_nan_norm"] = Sign(False)
    learning_signs(trace, signs)
    run_signs(trace, signs)
    return signs
