"""A resumed run: which state its checkpoint holds, and which settings the restored state overrules."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.config.compare import FREE, below, changed
from runner.config.rules_train import splitting_launcher, world_size
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, not_needed, ok, places
from runner.runfolder import read_json, resolve_resume, to_json

_ID = "lifecycle.resume_discontinuity"

RESTORED = ("optim.learning_rate", "optim.betas", "optim.eps", "optim.weight_decay")
"""Settings that optimizer.pt and scheduler.pt hold: what they hold is used, what is set now is not."""

WEIGHTS = ("model.safetensors", "adapter_model.safetensors", "pytorch_model.bin", "adapter_model.bin")
SHARDED = ("model.safetensors.index.json", "pytorch_model.bin.index.json")

LOSES = {
    "optimizer.pt": "Adam's averages start at 0, so the first updates are as large as those of a new run",
    "scheduler.pt": "schedule and warmup start again, and so does the optimizer: they are read together or not at all",
    "scaler.pt": "the loss scale starts at its initial value, and the first steps are skipped until it has fallen",
    "rng_state": "dropout draws other masks than the uninterrupted run",
}
"""What a missing file means."""


def resume(c: Context) -> Result:
    """The state files of the checkpoint, and settings that differ from those of the run it belongs to.

    Raises `UserError` where there is nothing to resume, and `ConfigError` where the checkpoint does not fit.
    """
    wanted = c.cfg.checkpoint.resume
    if wanted is None:
        return not_needed("a new run")
    settings: dict[str, Any] = json.loads(json.dumps(to_json(asdict(c.cfg))))
    places_found = resolve_resume(wanted, Path(c.cfg.output_dir).parent, settings)
    if places_found is None:
        return ok(f"checkpoint.resume={wanted} finds no run to go on with: step 1")
    folder, checkpoint = places_found
    there = {path.name for path in checkpoint.iterdir()}
    lacking = missing_state(there, c.cfg.precision.compute == "fp16", world_size(), splitting_launcher() is not None)
    previous = (read_json(folder / "config.json") or {}) if c.previous is None else c.previous
    differing = changed(previous, settings) if previous else {}
    findings = [*state_findings(checkpoint, lacking), *setting_findings(differing)]
    state = read_json(checkpoint / "trainer_state.json") or {}
    return found(f"step {state.get('global_step')} of {state.get('max_steps')}", *findings)


def missing_state(there: Collection[str], fp16: bool, processes: int, split: bool) -> list[str]:
    """State files that a checkpoint folder lacks, the gravest first; `there` are the names in it.

    `split` says that DeepSpeed or FSDP keeps weights, optimizer and scaler in folders of its own.
    """
    lacking = []
    if not split:
        if not set(there) & {*WEIGHTS, *SHARDED}:
            lacking.append("model.safetensors or adapter_model.safetensors")
        lacking += [name for name in ("optimizer.pt", *(["scaler.pt"] if fp16 else [])) if name not in there]
    lacking += ["scheduler.pt"] if "scheduler.pt" not in there else []
    states = ["rng_state.pth"] if processes == 1 else [f"rng_state_{rank}.pth" for rank in range(processes)]
    return lacking + [name for name in states if name not in there]


def state_findings(checkpoint: Path, lacking: list[str]) -> list[Finding]:
    """One finding for what a checkpoint lacks."""
    if not lacking:
        return []
    first = lacking[0]
    end = LOSES.get(first) or (LOSES["rng_state"] if first.startswith("rng_state") else "there is nothing to load")
    severity = "note" if first.startswith("rng_state") else "error" if "model" in first else "warning"
    sentence = f"{checkpoint.name} has no {places(lacking)}: {end}"
    return [Finding(_ID, severity, sentence, tuple(str(checkpoint / n) for n in lacking), {"missing": len(lacking)})]  # type: ignore[arg-type]


def setting_findings(differing: Mapping[str, tuple[Any, Any]]) -> list[Finding]:
    """Findings for settings that differ from the former run's; `differing` is {key: (old, new)}."""
    counted = {key: pair for key, pair in differing.items() if not below(key, FREE)}
    findings = []
    overruled = {key: pair for key, pair in counted.items() if below(key, RESTORED)}
    if overruled:
        said = ", ".join(f"{key} {a} -> {b}" for key, (a, b) in overruled.items())
        what = "value" if len(overruled) == 1 else "set of values"
        sentence = (
            f"{said}: the checkpoint's optimizer and scheduler bring the old {what}, and what is set now is not used; "
            f"for another {what} start a new run from the saved model"
        )
        mend = tuple(f"{key}={_written(a)}" for key, (a, _) in overruled.items())
        findings.append(Finding(_ID, "warning", sentence, tuple(overruled), _numbers(overruled), mend))
    reshaped = {key: pair for key, pair in counted.items() if below(key, ("schedule",))}
    if reshaped:
        said = ", ".join(f"{key} {a} -> {b}" for key, (a, b) in reshaped.items())
        sentence = f"{said}: the curve is drawn anew, so the rate may jump at the step where the run goes on"
        findings.append(Finding(_ID, "note", sentence, tuple(reshaped), _numbers(reshaped)))
    return findings


def _numbers(differing: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {key: [old, new] for key, (old, new) in differing.items()}


def _written(value: Any) -> str:
    """A value as an override takes it."""
    if value is None:
        return "null"
    return f"[{','.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)
