"""The words for what a replay came to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.report.replayed import Replayed, lines, next_command, verdict

UP = {"module": "up", "class": "Linear", "dtype": "float16", "output": "inf", "absmax_in": 3.0, "why": "overflow"}


def facts(loss: Any, norm: Any, module: str | None = None, reason: str = "non_finite") -> dict[str, Any]:
    forward = {**UP, "module": module} if module else None
    return {"step": 12, "reason": reason, "loss": loss, "grad_norm": norm, "loss_scale": 8.0, "forward": forward,
            "backward": None, "parameter": None}  # fmt: skip


NAN = facts("NaN", "NaN", "up")
STATE = {"name": "w", "what": "optimizer state", "first_index": [0], "value": "NaN"}
WEIGHT = STATE | {"what": "weight"}
FINE = facts(5.0, 1.0, reason="spike")


@pytest.mark.parametrize(
    ("recorded", "now", "changed", "kind", "words"),
    [
        (NAN, facts(float("nan"), float("nan"), "up"), [], "exact", "loss NaN and gradient norm NaN as before"),
        (facts(5.0, "Infinity", "up"), facts(5.0, float("inf"), "up"), [], "exact", "are the same bits, first in"),
        (FINE, FINE, [], "exact", "loss and gradient norm are the same bits"),
        (FINE, FINE, ["precision=fp32"], "exact", "the number format is not the cause"),
        (facts(5.0, 1.0), facts(5.0, 1.0), [], "exact", "from the optimizer's state"),
        (facts(5.0, 1.0) | {"parameter": STATE}, facts(5.0, 1.0), [], "exact", "from the optimizer's state"),
        (facts(5.0, 1.0) | {"parameter": WEIGHT}, facts(5.0, 1.0), [], "exact", "the weight of w, and now is nothing"),
        (NAN, facts("Infinity", "NaN", "up"), [], "same", "the same module, loss inf (recorded NaN)"),
        (NAN, NAN | {"grad_norm": 1.0}, ["precision=fp32"], "same", "the number format is not the cause"),
        (NAN, facts("NaN", "NaN", "down"), [], "other", "the forward pass of down breaks first now, the"),
        (NAN, facts("NaN", "NaN"), [], "other", "no module breaks first now"),
        (NAN, facts(5.123456, 1.0), ["precision=fp32"], "finite", "with precision=fp32 the loss is 5.123 and"),
        (NAN, facts(5.0, 1.0), ["precision=fp32"], "finite", "the number format is the cause"),
        (NAN, facts(5.0, 1.0), ["model.path=x", "precision=fp32"], "finite", "one of these settings is the cause"),
        (NAN, facts(5.0, 1.0), [], "finite", "came from outside, or is not deterministic"),
        (FINE, NAN, [], "other", "it was 5 in the run"),
        (FINE, facts(5.0000001, 1.0), [], "close", "up to 2e-08 of the value"),
        (FINE, facts(5.0, 1.01), ["precision=fp32"], "close", "the number format is not the cause"),
        (FINE, facts(2.0, 0.5), ["precision=fp32"], "other", "the number format is the cause"),
        (FINE, facts(5.0, 0.0), [], "other", "not reproduced: loss 5 (recorded 5), gradient norm 0 (1)"),
    ],
)  # fmt: skip
def test_verdict(recorded: Any, now: Any, changed: list[str], kind: str, words: str) -> None:
    found, sentence = verdict(recorded, now, changed)
    assert found == kind and words in sentence, sentence
    assert sentence.startswith("reproduced" if kind in ("exact", "same", "close") else "not reproduced")


def result(recorded: dict[str, Any], now: dict[str, Any], overrides: list[str]) -> Replayed:
    made = Replayed(Path("run/incident-12"), recorded, now, overrides)
    made.kind, made.sentence = verdict(recorded, now, overrides)
    return made


def test_the_next_command() -> None:
    fp32, bf16 = ["precision=fp32"], ["precision.compute=bf16"]
    again = "python -m runner replay run/incident-12"
    assert next_command(result(NAN, NAN, []), "fp16").startswith(f"{again} precision=fp32 ")
    assert next_command(result(NAN, FINE, fp32), "fp16").startswith(f"{again} precision=bf16 ")
    assert next_command(result(NAN, FINE, bf16), "fp16").startswith("python -m runner ... precision=bf16 ")
    assert next_command(result(NAN, FINE, fp32), "bf16").startswith("python -m runner ... precision=fp32 ")
    assert "stability.deterministic=true" in next_command(result(NAN, FINE, []), "fp32")
    assert "stability=guarded" in next_command(result(NAN, NAN, []), "fp32")
    assert "stability=guarded" in next_command(result(NAN, NAN, fp32), "fp16")


def test_the_runs_own_settings_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("- +fault=nan_loss\n- precision=fp16\n- seed=3\n")
    made = result(NAN, FINE, ["precision=bf16"])
    made.path = tmp_path / "incident-12"
    assert next_command(made, "fp16").startswith("python -m runner seed=3 precision=bf16 ")


def test_lines() -> None:
    wide = lines(result(NAN, facts(5.25, 1.0), ["precision=fp32"]))
    assert wide[:2] == ["run/incident-12: step 12, non-finite", "with precision=fp32"]
    row = next(line for line in wide if line.startswith("  loss "))
    assert row.split() == ["loss", "NaN", "5.25"]
    narrow = lines(result(NAN, facts(5.25, 1.0), []), width=40)
    at = narrow.index("  first bad module, forward")
    assert narrow[at + 1 : at + 3] == ["    recorded  up (Linear, float16): inf", "    now       none"]
    alike = lines(result(NAN, NAN, []))
    assert any("recorded, and now" in line for line in alike) and sum("Linear" in line for line in alike) == 1
