"""The three answers of a verdict, from the signs."""

from __future__ import annotations

from runner.causes import thresholds as t
from runner.diagnosis.sign import Signs
from runner.diagnosis.trace import Trace
from runner.diagnosis.verdict import Action, Learning, Stability

LASTING = ("hidden_nan", "frozen_norm", "log_classes_zero_norm", "eval_nan", "nan_norm", "scale_exhausted", "diverges",
           "norm_explodes")  # fmt: skip
"""Signs that mean broken by themselves."""

RISKY = (
    "nan_loss", "level_rises", "spikes", "bursts", "norm_spikes", "noise_grows", "periodic", "skips_later",
    "guard_acted", "resume_jump", "replay_rises", "overshoots",
)  # fmt: skip
"""Signs that mean at risk."""


def stability(trace: Trace, signs: Signs) -> Stability:
    """broken, at_risk, normal, or cannot_tell for too few points and for logs of reinforcement learning."""
    if signs.has("nan_lasts") or signs.has(*LASTING):
        if trace.family != "reinforcement" or signs.has("nan_lasts", "nan_norm"):
            return "broken"
    if trace.family == "reinforcement":
        return "cannot_tell"
    evaluated = max((len(e.loss) for e in trace.evaluations), default=0)
    if trace.points + evaluated < t.LEAST_POINTS and not (
        signs.has("zero_norm", "zero_loss_zero_norm") and trace.points >= 2
    ):
        return "cannot_tell"
    if signs.has(*RISKY):
        return "at_risk"
    unexplained = signs.has("kappa_high") and signs.has("not_foreseen")
    if unexplained or (signs.numbers.get("eval_rise", 0.0) >= t.OVERFIT_AT_RISK and signs.has("eval_rises")):
        return "at_risk"
    return "normal"


def learning(trace: Trace, signs: Signs, stable: Stability) -> Learning:
    """yes, slow, no, cannot_tell."""
    nothing = (
        "zero_norm", "zero_loss_zero_norm", "log_classes_zero_norm", "rate_zero", "frozen_norm", "broken_from_start",
        "at_chance", "ends_above_start",
    )  # fmt: skip
    if signs.has(*nothing):
        return "no"
    if stable == "broken" and not signs.has("eval_nan"):
        return "no"
    if trace.points < t.LEAST_POINTS or trace.family == "reinforcement":
        return "cannot_tell"
    if signs.has("warmup_swallows"):
        return "slow"
    change, se = signs.numbers.get("probe_change"), signs.numbers.get("probe_change_se")
    falls = signs.has("falls", "eval_falls", "memorised", "eval_rises")
    if change is not None and se is not None:
        # The same rows before and after: this is what a loss curve only suggests.
        falls = change < -2 * se
    if not falls and signs.has("rate_low"):
        return "slow"
    if falls:
        return "slow" if signs.has("rate_low", "lost_updates") else "yes"
    if change is not None or signs.has("flat"):
        return "no"
    return "no" if trace.points >= t.FLAT_POINTS and signs.numbers.get("fall_z", 0.0) < 1 else "cannot_tell"


def action(signs: Signs, stable: Stability, learns: Learning) -> Action:
    """stop where going on cannot help, change_next_run where the next one should differ, else keep."""
    if stable == "broken" and not signs.has("eval_nan"):
        return "stop"
    if signs.has("zero_norm", "zero_loss_zero_norm", "rate_zero"):
        return "stop"
    if stable in ("broken", "at_risk") or learns == "no":
        return "change_next_run"
    if signs.has("memorised", "eval_rises", "warmup_swallows", "starts_above_uniform", "lost_updates"):
        return "change_next_run"
    return "keep"
