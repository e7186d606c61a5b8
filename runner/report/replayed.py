"""What a replay came to: recorded and now side by side, one verdict, the next command. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.runfolder import number
from runner.training.incident import replay_command, shown

HELP = """python -m runner replay RUN/incident-12 [KEY=VALUE ...] [--json]
Repeat the recorded step of a run, exactly as it was or with another setting, to see what broke it. Trains nothing and
writes nothing.

KEY is one of
{keys}

  python -m runner replay RUN/incident-12                    does it happen again?
  python -m runner replay RUN/incident-12 precision=fp32     is the number format the cause?
  python -m runner replay RUN/incident-12 model.path=FOLDER  the start model has moved

--json prints the same facts as JSON. The status is 0 whatever the verdict, 2 where the step could not be repeated."""

CLOSE = 0.02
"""Two finite numbers that differ by less than this share count as the same event."""

STATE = "optimizer state"
"""`what` of a bad parameter whose weights and gradient are finite."""

SHOWN = ("loss", "grad_norm", "loss_scale", "forward", "backward", "parameter")


@dataclass
class Replayed:
    """A recorded step and what it gave when it was repeated."""

    path: Path
    recorded: dict[str, Any]
    """Facts of the incident."""

    now: dict[str, Any]
    """loss, grad_norm, loss_scale, forward, backward, parameter, rows, trail, ... of the repeated step."""

    overrides: list[str]
    notes: list[str] = field(default_factory=list)
    """What may make a difference, and what could not be checked."""

    kind: str = ""
    """exact, same (place), close (finite numbers), finite (now, and not before), other."""

    sentence: str = ""
    """The verdict in words."""

    next: str = ""
    """What to try now."""

    def as_dict(self) -> dict[str, Any]:
        """The same facts for `--json`."""
        return {
            "incident": str(self.path),
            "step": self.recorded["step"],
            "reason": self.recorded.get("reason"),
            "overrides": self.overrides,
            "recorded": {key: self.recorded.get(key) for key in SHOWN},
            "now": {key: self.now.get(key) for key in (*SHOWN, "micro_batch", "rows", "trail")},
            "verdict": self.kind,
            "sentence": self.sentence,
            "notes": self.notes,
            "next": self.next,
        }


def same(a: float | None, b: float | None) -> bool:
    """Whether two numbers are the same bits; NaN equals NaN."""
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))


def finite(value: float | None) -> bool:
    """Whether a number is there and neither NaN nor infinite."""
    return value is not None and math.isfinite(value)


def place(facts: dict[str, Any]) -> str | None:
    """Where it broke first, in words: a module's forward pass, its backward pass, or a parameter; None = nowhere.

    The optimizer's state does not count: no incident holds it."""
    for way in ("forward", "backward"):
        if facts.get(way):
            return f"the {way} pass of {facts[way]['module']}"
    parameter = facts.get("parameter")
    if not parameter or parameter["what"] == STATE:
        return None
    return f"the {parameter['what']} of {parameter['name']}"


def verdict(recorded: dict[str, Any], now: dict[str, Any], changed: Sequence[str]) -> tuple[str, str]:
    """(kind, sentence) of a step that was repeated with the settings `changed` (KEY=VALUE); see `Replayed.kind`."""
    was, new = (tuple(number(facts.get(key)) for key in ("loss", "grad_norm")) for facts in (recorded, now))
    before, here = place(recorded), place(now)
    was_broken, broken = not all(map(finite, was)), not all(map(finite, new))
    words = f"with {' '.join(changed)} " if changed else ""
    also = f"; {blame(changed)} is not the cause" if changed else ""
    bits = same(was[0], new[0]) and same(was[1], new[1])
    first = f", first in {here}" if here else ""
    if bits and (before == here or not was_broken):
        if not was_broken:
            text = "loss and gradient norm are the same bits"
            if before != here:
                text += f"; not finite was {before or 'nothing'}, and now is {here or 'nothing'}"
            elif recorded.get("reason") == "non_finite":
                text += " and finite; what was not is the update, from the optimizer's state, which no incident holds"
        elif any(map(finite, was)):
            text = f"loss {shown(new[0])} and gradient norm {shown(new[1])} are the same bits{first}"
        else:
            text = f"loss {shown(new[0])} and gradient norm {shown(new[1])} as before{first}"
        return "exact", f"reproduced exactly: {words}{text}{also}"
    if was_broken and broken and before == here:
        old = "as before" if same(was[0], new[0]) else f"(recorded {shown(was[0])})"
        return "same", f"reproduced: {words}the same module, loss {shown(new[0])} {old}{first}{also}"
    if broken and not was_broken:
        return "other", f"not reproduced: {words}the loss is {shown(new[0])}{first}; it was {shown(was[0])} in the run"
    if broken:
        then = f"{before} did in the run" if before else "in the run no module did"
        return "other", f"not reproduced: {words}{here or 'no module'} breaks first now, {then}"
    if was_broken:
        cause = f"{blame(changed)} is the cause" if changed else "the value came from outside, or is not deterministic"
        return "finite", f"not reproduced: {words}the loss is {shown(new[0])} and every module is finite: {cause}"
    apart = [abs(a - b) / max(abs(a), 1e-30) for a, b in zip(was, new, strict=True) if a is not None and b is not None]
    numbers = f"loss {shown(new[0])} (recorded {shown(was[0])}), gradient norm {shown(new[1])} ({shown(was[1])})"
    if max(apart) <= CLOSE:
        return "close", f"reproduced up to {max(apart):.1g} of the value: {words}{numbers}{also}"
    cause = f": {blame(changed)} is the cause" if changed else ""
    return "other", f"not reproduced: {words}{numbers}{cause}"


def blame(changed: Sequence[str]) -> str:
    """What the changed settings have in common."""
    if all(line.partition("=")[0].startswith("precision") for line in changed):
        return "the number format"
    return changed[0].partition("=")[0] if len(changed) == 1 else "one of these settings"


def next_command(result: Replayed, compute: str) -> str:
    """What to try after this verdict; `compute` is the number format of the run."""
    command = replay_command(result.path)
    chosen = next((o.partition("=")[2] for o in result.overrides if o.startswith(("precision=", "precision.c"))), None)
    if result.kind == "finite" and chosen is not None:
        if compute == "fp16" and chosen != "bf16":
            return f"{command} precision=bf16   does bf16, as small as fp16 with the range of fp32, hold too?"
        return train(result.path, f"precision={chosen}", "trains in that format")
    if result.kind in ("finite", "other"):
        if any(o.startswith("stability.deterministic") for o in result.overrides):
            return go_on(result)
        return f"{command} stability.deterministic=true   do deterministic kernels repeat it?"
    if chosen is None and compute != "fp32":
        return f"{command} precision=fp32   is the number format the cause?"
    return go_on(result)


def go_on(result: Replayed) -> str:
    """How to train without such steps; a run that was guarded has done so."""
    if result.recorded.get("action") in ("skip", "rollback"):
        return f"nothing: the run went on without this step. {replay_command(result.path)} --json shows every value"
    return train(result.path, "stability=guarded", "goes on without such steps")


def train(path: Path, setting: str, what: str) -> str:
    """The run's own command line with one more setting, as far as it is known."""
    from runner.report.closing import given

    folder, group = path.resolve().parent, setting.partition("=")[0]
    # A planted fault of half precision refuses another one.
    dropped = {group, "fault", "planted"} if group == "precision" else {group}
    kept = [o for o in given(folder) if o.lstrip("'+").partition("=")[0].partition(".")[0] not in dropped]
    known = (folder / ".hydra" / "overrides.yaml").exists()
    return f"{' '.join(['python -m runner', *(kept if known else ['...']), setting])}   {what}"


def lines(result: Replayed, width: int = 110) -> list[str]:
    """What is printed."""
    facts, now = result.recorded, result.now
    head = f"{result.path}: step {facts['step']}, {str(facts.get('reason')).replace('_', '-')}"
    rows = [(label, text(key, facts), text(key, now)) for key, label in LABELS.items()]
    rows = [row for row in rows if row[1:] != ("none", "none") or row[0] in ("loss", "gradient norm")]
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    second = max(second, len("recorded"))
    said = [head, *(f"with {o}" for o in result.overrides), ""]
    if all(before == here for _, before, here in rows):
        said.append(f"  {'':<{first}}  recorded, and now")
        said += [f"  {label:<{first}}  {here}" for label, _, here in rows]
    elif first + second + max(len(row[2]) for row in rows) + 6 <= width:
        said.append(f"  {'':<{first}}  {'recorded':<{second}}  now")
        said += [f"  {label:<{first}}  {before:<{second}}  {here}" for label, before, here in rows]
    else:
        for label, before, here in rows:
            said += [f"  {label}", f"    recorded  {before}", f"    now       {'the same' if before == here else here}"]
    said += ["", f"{result.sentence[:1].upper()}{result.sentence[1:]}."]
    said += [f"Note: {note}" for note in result.notes]
    return [*said, f"Next: {result.next}"]


LABELS = {
    "loss": "loss",
    "grad_norm": "gradient norm",
    "loss_scale": "loss scale",
    "forward": "first bad module, forward",
    "backward": "first bad module, backward",
    "parameter": "first bad parameter",
}


def text(key: str, facts: dict[str, Any]) -> str:
    """One fact in words; numbers with all their digits."""
    value = facts.get(key)
    if key == "forward" and value:
        return f"{value['module']} ({value['class']}, {value['dtype']}): {value['output']}"
    if key == "backward" and value:
        kind = str(value["kind"]).replace("_", " ")
        return f"{value['module']} ({value['class']}, {value['dtype']}): {kind} {value['gradient']}"
    if key == "parameter" and value:
        return f"{value['what']} {value['name']} {value['first_index']}: {value['value']}"
    found = number(value)
    if found is None:
        return "none"
    return "NaN" if math.isnan(found) else f"{found:.10g}"
