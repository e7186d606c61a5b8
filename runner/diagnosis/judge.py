"""From a trace to its verdict: signs, causes, the three answers, and what to do."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.causes.catalogue import cause
from runner.causes.dialects import check_command, command, fill
from runner.causes.likelihood import Likely, rank
from runner.causes.thresholds import LIKELY, RATE_TOO_HIGH
from runner.diagnosis import answers, words
from runner.diagnosis.control import compare
from runner.diagnosis.sign import Signs, plain
from runner.diagnosis.signs import compare_outcomes, read_signs
from runner.diagnosis.trace import Trace
from runner.diagnosis.verdict import Confidence, Evidence, Finding, Verdict
from runner.runfolder import given_overrides, number
from runner.text import same

TOOLS = ("runner", "transformers", "llamafactory", "ms_swift")


def diagnose(trace: Trace, control: Trace | None = None, others: Sequence[Trace] = ()) -> Verdict:
    """The verdict about `trace`; `control` is a run on the same batches, at best with learning rate 0.

    `others` are further runs of the same script, such as were pasted into one console log: a script that ends now in
    NaN, now at a dead loss, reads memory that nobody wrote.

    Raises `UserError` where the control has too few steps in common with it.
    """
    signs = read_signs(trace)
    compare_outcomes(signs, others)
    beside = compare(trace, control, signs) if control is not None else None
    stable = answers.stability(trace, signs)
    learns = answers.learning(trace, signs, stable)
    act = answers.action(signs, stable, learns)
    ranking = rank(signs.flags())
    values = fields(trace, signs)
    findings = tuple(finding(c, trace, signs, values) for c in ranking.causes)
    findings = ordered(findings, ranking.causes, signs, stable)
    ill = [f for f in findings if f.severity != "note"]
    first = ill[0].id if ill else findings[0].id if findings and stable == "normal" else ""
    separate = ranking.tied.experiment if ranking.tied is not None and stable != "cannot_tell" else None
    return Verdict(
        stability=stable,
        learning=learns,
        action=act,
        confidence=_confidence(trace, stable, ill),
        headline=words.headline(trace, signs, stable, learns, findings),
        saw=words.saw(trace, signs, stable, findings),
        findings=findings,
        learns=words.learned(signs) if stable != "broken" else None,
        not_it=words.CANNOT_ACT.get(first),
        separate=separate,
        missing=words.wanting(trace, signs),
        unknown=words.not_known(trace, stable, findings),
        do=_do(trace, ill, stable),
        tool=trace.tool,
        source={
            "path": str(trace.path),
            "kind": trace.kind,
            "points": trace.points,
            "first_step": int(trace.step[0]) if len(trace.step) else None,
            "last_step": int(trace.step[-1]) if len(trace.step) else None,
            "evaluations": sum(len(e.loss) for e in trace.evaluations),
            "notes": [t.as_json() for t in trace.notes],
        },
        numbers={k: plain(v) for k, v in signs.numbers.items() if not _missing(v)},
        control=beside,
    )


def ordered(
    findings: tuple[Finding, ...], causes: tuple[Likely, ...], signs: Signs, stable: str
) -> tuple[Finding, ...]:
    """Causes of what makes the run unstable first, other faults next, notes last.

    Sampling noise is left out where the run is ill; in a log that is too short nothing but notes is left.
    """
    noise = "data.sampling_noise"
    if stable == "cannot_tell":
        return tuple(f for f in findings if f.severity == "note" and f.id != noise)
    shaken = {*answers.LASTING, *answers.RISKY, "ends_above_start", "eval_rises"}
    about = {c.id for c in causes if shaken & set(c.signs)} if stable != "normal" else set()
    if stable != "normal":
        findings = tuple(f for f in findings if f.id != noise)
    return tuple(sorted(findings, key=lambda f: (f.severity == "note", f.id not in about)))


def finding(likely: Likely, trace: Trace, signs: Signs, values: dict[str, Any]) -> Finding:
    """The catalogue's entry of a cause with this run's evidence and numbers."""
    known = cause(likely.id)
    evidence = [e for s in likely.signs if (e := signs.evidence(s)) is not None]
    incident = _incident(trace, likely.id)
    if incident is not None:
        evidence.insert(0, incident)
    confidence: Confidence = "certain" if likely.law else "likely" if likely.probability >= LIKELY else "possible"
    return Finding(
        id=known.id,
        code=known.code,
        title=known.title,
        confidence=confidence,
        probability=likely.probability,
        severity=known.severity,
        evidence=tuple(evidence),
        would_change=known.would_change,
        check=_check(known.id, trace) or _other_than_this(check_command(known, str(trace.path)), signs),
        remedy=known.remedy,
        changes={tool: lines for tool in TOOLS if (lines := fill(known, tool, values))},
    )


def fields(trace: Trace, signs: Signs) -> dict[str, Any]:
    """Numbers of this run that remedies are filled with."""
    n = signs.numbers
    peak = float(n.get("rate_peak", 0.0))
    rate = peak if words.finite(peak) and peak > 0 else None
    found: dict[str, Any] = {
        # A tenth of an absurd rate is absurd too.
        "learning_rate_tenth": min(rate / 10, RATE_TOO_HIGH / 2) if rate else None,
        "learning_rate_times_ten": rate * 10 if rate else None,
        "lora_learning_rate": n.get("rate_default") if words.finite(n.get("rate_default")) else None,
        "max_steps": trace.max_steps,
        "warmup_three_percent": max(1, round(0.03 * trace.max_steps)) if trace.max_steps else None,
        "median_norm": n.get("median_norm"),
    }
    if trace.steps_per_epoch and "eval_best_step" in n:
        found["epochs_best"] = max(1, round(n["eval_best_step"] / trace.steps_per_epoch))
    if trace.facts is not None:
        batch = trace.facts.config.get("batch", {})
        size = number(batch.get("global_batch_size"))
        if size is None:
            per = number(batch.get("per_device_train_batch_size")) or 0
            size = per * (number(batch.get("gradient_accumulation_steps")) or 1)
        if size:
            found["batch_times_four"] = int(4 * size)
    return found


def _confidence(trace: Trace, stable: str, ill: list[Finding]) -> Confidence:
    if stable == "cannot_tell":
        return "certain" if trace.points == 0 else "likely"
    if ill and (stable != "normal" or ill[0].severity == "error"):
        return ill[0].confidence
    # Without the start model's losses, a sound curve is all that is known (95 of 100 labelled logs agree).
    return "likely"


def _incident(trace: Trace, id: str) -> Evidence | None:
    """The sentence of the run's first incident, which knows module, parameter and rows."""
    if trace.facts is None or not trace.facts.incidents or cause(id).severity != "error":
        return None
    first = trace.facts.incidents[0]
    sentence = first.get("sentence")
    if not sentence or (first.get("reason") == "spike") != (id in ("optim.learning_rate_too_high", "data.bad_batch")):
        return None
    step = int(first.get("step", 0))
    return Evidence(same(str(sentence)), {"step": step}, (step,))


def _check(id: str, trace: Trace) -> str | None:
    """A replay of the recorded step beats a look at the log."""
    if trace.facts is None or cause(id).severity != "error" or not trace.facts.incidents:
        return None
    if not id.startswith(("precision.", "weights.", "kernels.", "data.bad_batch", "log.hidden_nan")):
        return None
    return _replay(trace)


def _other_than_this(line: str, signs: Signs) -> str:
    """ "" for the command that has just been run, or a control that has just been given."""
    given_already = "--control LOG_AT_LEARNING_RATE_0" in line and signs.has("control")
    just_run = line.startswith("python -m runner diagnose ") and "--control" not in line and "LOG_" not in line
    return "" if given_already or just_run else line


def _do(trace: Trace, ill: list[Finding], stable: str) -> tuple[str, ...]:
    """The changes of the first finding that is no note, in the words of the tool that wrote the log; without one, the
    replay of the first incident."""
    for found in ill:
        lines = found.changes.get(trace.tool, ())
        if lines:
            return tuple(command(trace.tool, lines, given(trace)).splitlines())
    if stable != "normal" and trace.facts is not None and trace.facts.incidents:
        return (_replay(trace),)
    return ()


def _replay(trace: Trace) -> str:
    assert trace.facts is not None
    folder = Path(trace.path) / f"incident-{trace.facts.incidents[0].get('step')}"
    return f"python -m runner replay {shlex.quote(str(folder))} precision=fp32"


def given(trace: Trace) -> list[str]:
    """The overrides that a run of ours was started with."""
    return [] if trace.facts is None else given_overrides(trace.path)


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
