"""`python -m runner replay RUN/incident-12`: the recorded step once more, as it was or with other settings.

The step runs through the very code that trained: the same trainer, number format, loss scale, random numbers and
number of threads. Nothing is trained and nothing is written.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import UserError
from runner.report.replayed import HELP, Replayed, lines, next_command, verdict
from runner.runfolder import read_json, to_json, versions
from runner.training.incident import Incident, read_incident

if TYPE_CHECKING:
    from runner.config.schema import Config

KEYS = (
    "precision",
    "precision.compute",
    "precision.frozen_weights",
    "precision.trainable_weights",
    "model.path",
    "model.attn_implementation",
    "model.gradient_checkpointing",
    "lora.adapter",
    "stability.deterministic",
    "hub",
)
"""What may be set for a replay: what can make a difference to a recorded batch, and where the base is."""

WORDS = {"true": True, "false": False, "null": None}


def main(given: Sequence[str]) -> int:
    """The verb: replay the incident that `given` names, print what came of it. Raises `UserError`."""
    if any(a in ("-h", "--help") for a in given):
        print(HELP.format(keys="\n".join(f"  {key}" for key in KEYS)))
        return 0
    options = [a for a in given if a.startswith("-")]
    unknown = [a for a in options if a != "--json"]
    if unknown:
        raise UserError(f"replay has no option {unknown[0]}; it has --json and --help.")
    rest = [a for a in given if not a.startswith("-")]
    # A path may hold an equals sign, as the folders of a sweep do.
    paths = [a for a in rest if "=" not in a or Path(a).exists()]
    if len(paths) != 1:
        found = f"{len(paths)} were given" if paths else f"none was given{newest()}"
        raise UserError(f"replay takes the folder of one incident, python -m runner replay RUN/incident-12: {found}")
    overrides = [a for a in rest if a not in paths]
    path = Path(paths[0])
    refuse_run_folder(path)
    incident = read_incident(path)
    result = replay(incident, overrides)
    if options:
        print(json.dumps(to_json(result.as_dict()), ensure_ascii=False, indent=2))
    else:
        print("\n".join(lines(result)))
    return 0


def newest() -> str:
    """A clause that names the newest incidents below `outputs/`; "" where there is none."""
    found = sorted(Path("outputs").glob("*/*/incident-*"), key=lambda p: p.stat().st_mtime)[-5:]
    return f". The newest here: {', '.join(map(str, reversed(found)))}" if found else ""


def refuse_run_folder(path: Path) -> None:
    """Raise `UserError` that lists its incidents where `path` is the folder of a run."""
    if (path / "incident.json").exists() or not any((path / n).exists() for n in ("run.json", "telemetry.jsonl")):
        return
    found = sorted((p for p in path.glob("incident-*") if p.is_dir()), key=lambda p: int(p.name[9:] or 0))
    if not found:
        raise UserError(
            f"{path} is a run, and it left no incident: no step was called broken, or stability.incident.save=false."
        )
    rows = []
    for folder in found:
        facts = read_json(folder / "incident.json")
        rows.append(f"  {folder}   {facts.get('sentence', '') if facts else 'cut short while it was written'}")
    raise UserError("\n".join([f"{path} is a run. Replay one of its incidents:", *rows]))


def settings(recorded: dict[str, Any], overrides: Sequence[str]) -> Config:
    """The recorded configuration with `overrides` (KEY=VALUE, keys of `KEYS`). `ConfigError` for what does not fit."""
    from runner.config.build import config_from_dict
    from runner.config.names import nearest

    values = copy.deepcopy(recorded)
    for line in overrides:
        key, _, text = line.lstrip("+").partition("=")
        if key not in KEYS:
            near = nearest(key, list(KEYS), 0.6)
            hint = f"; did you mean {near}?" if near else "."
            raise UserError(
                f"{line}: a replay keeps the recorded settings, except {', '.join(KEYS)}{hint} Other settings need a "
                "run of their own."
            )
        value = WORDS.get(text, text)
        if key == "precision":
            # The group's options differ in this one key; formats of weights that were set by hand are left behind.
            kept = values.get("precision", {}).get("loss_scale")
            values["precision"] = {"compute": value, **({"loss_scale": kept} if kept else {})}
            continue
        group, _, name = key.partition(".")
        if name:
            values.setdefault(group, {})[name] = value
        else:
            values[key] = value
    return config_from_dict(values)


def replay(incident: Incident, overrides: Sequence[str] = ()) -> Replayed:
    """Run the step of `incident` again with `overrides`, and judge what came of it."""
    cfg = settings(incident.config, overrides)
    from runner.training.environment import prepare_environment, set_early

    set_early(cfg)
    prepare_environment(cfg)
    cfg, checked = check_base(cfg, incident, overrides)
    ranks = [incident.batches(rank) for rank in range(int(incident.facts.get("processes") or 1))]
    from runner.lab.rebuild import run_step

    with recorded_threads(ranks[0].get("num_threads")):
        now = run_step(cfg, incident, ranks)
    result = Replayed(
        path=incident.path,
        recorded=incident.facts,
        now=now,
        overrides=list(overrides),
        notes=[*checked, *notes(incident, ranks)],
    )
    places = ("model.path=", "lora.adapter=", "hub=")
    result.kind, result.sentence = verdict(incident.facts, now, [o for o in overrides if not o.startswith(places)])
    if result.kind in ("finite", "other"):
        # Another place for the same weights changes nothing; where something did change, it is a suspect.
        result.kind, result.sentence = verdict(incident.facts, now, [o for o in overrides if not o.startswith("hub=")])
    result.next = next_command(result, compute_of(incident))
    return result


def check_base(cfg: Config, incident: Incident, overrides: Sequence[str]) -> tuple[Config, list[str]]:
    """The settings, with a hub's commit as recorded, and what is to be said about the start model.

    Raises `UserError` where the start model or adapter is a local folder that is not there (any more), or where the
    start model has changed since the run, unless its place is given by hand.
    """
    from runner.config.nearby import looks_local, near
    from runner.model.fingerprint import weights_hash

    for key, value in (("model.path", cfg.model.path), ("lora.adapter", cfg.lora.adapter)):
        if value is not None and looks_local(value) and not Path(value).expanduser().exists():
            raise UserError(
                f"{incident.path} was recorded with {key}={value}, and there is no such folder"
                f"{near(Path(value))}. If it moved, say where to: {key}=FOLDER"
            )
    base, path = incident.facts.get("base") or {}, cfg.model.path
    by_hand = any(o.startswith("model.path=") for o in overrides)
    if base.get("commit") and not Path(path).expanduser().is_dir() and not by_hand:
        return replace(cfg, model=replace(cfg.model, revision=base["commit"])), []
    if cfg.lora.method == "none":
        return cfg, []  # every weight is in the incident
    here = weights_hash(path)
    if here is not None and here == base.get("sha256"):
        return cfg, []
    if here is None or not base.get("sha256"):
        return cfg, [f"whether {path} still holds the weights of the run cannot be checked: no hash was recorded."]
    if not by_hand:
        raise UserError(
            f"{path} has changed since the run: the SHA-256 of its files is {here[:12]}..., and it was "
            f"{base['sha256'][:12]}... Name a folder with the weights of the run, or this one all the same: "
            "model.path=FOLDER"
        )
    return cfg, [f"model.path={path} holds other weights than the run started from (SHA-256 {here[:12]}...)."]


def compute_of(incident: Incident) -> str:
    """Compute dtype of the recorded run, as far as this machine resolves `auto` alike."""
    from runner.config.build import config_from_dict
    from runner.model.formats import resolve_formats

    return resolve_formats(config_from_dict(incident.config)).compute


@contextlib.contextmanager
def recorded_threads(count: int | None) -> Iterator[None]:
    """Inside, torch uses `count` threads: how a sum is split over threads decides its last digits."""
    import torch

    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def notes(incident: Incident, ranks: list[dict[str, Any]]) -> list[str]:
    """What may make a difference, and what could not be checked, one sentence each."""
    import socket

    import torch

    said = []
    if len(ranks) > 1:
        said.append(f"{len(ranks)} processes ran one after the other in one: sums may differ in the last digits.")
    run = read_json(incident.path.resolve().parent / "run.json") or {}
    if run.get("host") not in (None, socket.gethostname()):
        said.append(f"the run was on the machine {run['host']}; on another one the last digits may differ.")
    here = versions()
    other = [f"{k} {v} (now {here[k]})" for k, v in (run.get("versions") or {}).items() if here.get(k, v) != v]
    if other:
        said.append(f"the run had other versions: {', '.join(other)}.")
    if "cuda" in (ranks[0].get("rng") or [{}])[0] and not torch.cuda.is_available():
        said.append("the run was on a GPU and this machine has none: numbers differ, and precision auto means fp32.")
    return said
