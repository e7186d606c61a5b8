"""The folder `incident-<step>/`: what a broken step leaves behind, and what it says in words. Its facts are read
without torch."""

from __future__ import annotations

import math
import os
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import UserError
from runner.runfolder import number, read_json, write_json

if TYPE_CHECKING:
    from torch import Tensor

FACTS = "incident.json"
"""Written last: a folder without it was cut short."""


def incident_folder(folder: Path, step: int) -> Path:
    """Where the incident of `step` is kept in the run folder `folder`."""
    return folder / f"incident-{step}"


def write_incident(
    folder: Path,
    facts: dict[str, Any],
    batches: dict[str, Any],
    weights: dict[str, Tensor] | None,
    config: dict[str, Any],
) -> Path:
    """Write the incident of step `facts["step"]` of the run in `folder`; its folder.

    `batches` (this, the first, process's; `torch.save` can write it) and `weights` (None = none are kept) first, then
    `config`, and `facts` last and atomically. A folder that is there is replaced: a resumed run may repeat a step.
    """
    from safetensors.torch import save_file

    path = incident_folder(folder, int(facts["step"]))
    (path / FACTS).unlink(missing_ok=True)
    write_batches(path, 0, batches)
    (path / "weights.safetensors").unlink(missing_ok=True)
    if weights is not None:
        save_file(storable(weights), path / "weights.safetensors", metadata={"format": "pt"})
    write_json(path / "config.json", config)
    if weights is not None:
        # safetensors lets nobody but the owner read; a colleague may want to replay the step.
        shutil.copymode(path / "config.json", path / "weights.safetensors")
    write_json(path / FACTS, {"schema": 1, **facts})
    return path


def write_batches(path: Path, rank: int, batches: dict[str, Any]) -> None:
    """Write the micro-batches of process `rank` into the incident folder `path`."""
    import torch

    path.mkdir(parents=True, exist_ok=True)
    torch.save(batches, path / f"batches_rank{rank}.pt")


def storable(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """`weights` on the CPU, contiguous, dtype kept, and no two in one storage, which safetensors refuses."""
    seen: set[int] = set()
    kept = {}
    for name, tensor in weights.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.numel() * tensor.element_size():
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        kept[name] = tensor
    return kept


@dataclass
class Incident:
    """What `read_incident` found. Batches and weights stay on disk until they are asked for."""

    path: Path
    facts: dict[str, Any]
    config: dict[str, Any]

    def batches(self, rank: int = 0) -> dict[str, Any]:
        """What process `rank` held, all tensors on the CPU: batches, rng, num_items, loss_scale, accumulation, ...

        Only tensors and plain values are read: a folder from elsewhere runs no code. `UserError` where it is missing.
        """
        import numpy as np
        import torch

        path = self.path / f"batches_rank{rank}.pt"
        if not path.exists():
            raise UserError(f"{self.path} has no {path.name}: the incident was copied without its batches.")
        # numpy's generator state is an array; what rebuilds one has moved between versions of numpy.
        state = np.zeros(1, dtype=np.uint32)
        array: list[Any] = [state.__reduce__()[0], np.ndarray, np.dtype, type(state.dtype)]
        with torch.serialization.safe_globals(array):
            try:
                content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
                words = next(iter(str(error).splitlines()), "it ends too soon")
                raise UserError(f"{path} is damaged and cannot be read: {words}") from error
        return content

    def weights(self) -> dict[str, Tensor]:
        """Trainable weights before the step; `UserError` where the incident keeps none."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.path / "weights.safetensors"
        if not path.exists():
            why = self.facts.get("weights") or f"{path.name} is missing."
            raise UserError(f"{self.path} cannot be replayed: {why}")
        try:
            loaded: dict[str, Tensor] = load_file(path)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} is damaged and cannot be read: {error}") from error
        return loaded


def read_incident(path: Path) -> Incident:
    """The incident in the folder `path`. Raises `UserError` where there is none, or half of one."""
    if not path.is_dir():
        raise UserError(
            f"{path}: there is no such folder. Name the incident of a run, as <run folder>/incident-12; a step that "
            "broke is named in the run's summary and in telemetry.jsonl under `incident`."
        )
    facts = read_json(path / FACTS)
    if facts is None and not list(path.glob("batches_rank*.pt")):
        within = sorted(p.name for p in path.glob("incident-*"))
        hint = f"It holds {', '.join(within)}: name one of them." if within else "Name <run folder>/incident-<step>."
        raise UserError(f"{path} is not an incident: it has no {FACTS}. {hint}")
    if facts is None:
        raise UserError(
            f"{path} was cut short while it was written: {FACTS}, which comes last, is missing or torn. It cannot be "
            "replayed; resume the run from a checkpoint before this step, and the step leaves a whole one."
        )
    config = read_json(path / "config.json")
    if not isinstance(facts.get("step"), int) or config is None:
        what = "config.json is missing or torn" if config is None else f"{FACTS} names no step"
        raise UserError(f"{path} is not a whole incident: {what}.")
    return Incident(path, facts, config)


def replay_command(path: Path) -> str:
    """The command line that repeats the step, with the path as seen from the working folder."""
    here = Path.cwd()
    shown = path.resolve().relative_to(here) if path.resolve().is_relative_to(here) else path
    text = os.fspath(shown)
    return f'python -m runner replay "{text}"' if " " in text else f"python -m runner replay {text}"


def shown(value: Any) -> str:
    """A number in at most 4 digits; NaN and infinity by name."""
    x = number(value)
    if x is None:
        return "unknown"
    return "NaN" if math.isnan(x) else f"{x:.4g}"


def listed(names: Sequence[Any], most: int = 5) -> str:
    """The first `most` names, and how many more there are."""
    text = ", ".join(str(name) for name in names[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text


def sentence(facts: dict[str, Any]) -> str:
    """What happened at the step, in one to three plain sentences, without text of the data set.

    Works on the facts as `investigate` made them and as they are read back from a file.
    """
    body = spike_words(facts) if facts.get("reason") == "spike" else broken_words(facts)
    return f"step {facts['step']}: {body}"


def spike_words(facts: dict[str, Any]) -> str:
    """A spike: how far out it is, and the rows with the largest loss."""
    spike = facts.get("spike") or {}
    window = facts.get("window")
    since = f"the last {window} accepted steps" if window else "the accepted steps before it"
    z = {key: number(spike.get(f"{key}_z")) for key in ("loss", "norm")}
    known = {key: value for key, value in z.items() if value is not None}
    named = {"loss": f"loss {shown(facts.get('loss'))}", "norm": f"gradient norm {shown(facts.get('grad_norm'))}"}
    out = [key for key in known if known[key] >= (number(facts.get("spike_z")) or math.inf)]
    parts = [
        f"{named[key]} is {shown(known[key])} robust sd above {since}"
        for key in out or sorted(known, key=lambda k: -known[k])[:1]
    ]
    words = "spike: " + (" and ".join(parts) or f"{named['loss']}, {named['norm']}")
    rows = [row for row in facts.get("rows") or [] if number(row.get("loss")) is not None]
    rows.sort(key=lambda row: -(number(row["loss"]) or 0.0))
    if rows:
        words += "; rows by loss: " + ", ".join(f"{row['row_id']} ({shown(row['loss'])})" for row in rows[:3])
    bad = facts.get("forward") or facts.get("backward")
    return words + (f". Non-finite in a second pass: {bad['module']}: {bad['why']}." if bad else ".")


def broken_words(facts: dict[str, Any]) -> str:
    """A step whose loss or gradient is not finite."""
    loss = number(facts.get("loss"))
    loss_bad = loss is not None and not math.isfinite(loss)
    forward, backward = facts.get("forward"), facts.get("backward")
    norm = number(facts.get("grad_norm"))
    head = "the loss was finite and the gradient was not"
    if loss_bad:
        head = f"the loss is {shown(loss)}"
    elif norm is not None and math.isfinite(norm):
        head = "loss and gradient are finite, the update that the optimizer would make is not"
    if forward:
        given = forward.get("absmax_in")
        size = f", largest input {shown(given)}" if given is not None else ""
        text = (
            f"{head}. First bad module in the forward pass: {forward['module']} ({forward['class']}, "
            f"{forward['dtype']}): output {forward['output']}{size}: {forward['why']}"
        )
        return f"{text}{token_words(facts)}.{rows_words(forward.get('rows'))}"
    second = facts.get("second_pass")
    if loss_bad and second is None:
        return f"every module's output is finite; the loss itself is {shown(loss)}.{rows_words(facts.get('bad_rows'))}"
    if backward:
        scale = f" at loss scale {shown(facts['loss_scale'])}" if facts.get("loss_scale") else ""
        given = backward.get("absmax_out")
        size = f", largest gradient given to it {shown(given)}" if given is not None else ""
        kind = str(backward["kind"]).replace("_", " ")
        return (
            f"{head}: backward of {backward['module']} ({backward['class']}, {backward['dtype']}){scale}: {kind} "
            f"{backward['gradient']}{size}: {backward['why']}{token_words(facts)}.{rows_words(backward.get('rows'))}"
        )
    return f"{head}. {second[:1].upper()}{second[1:]}" if second else f"{head}."


def token_words(facts: dict[str, Any]) -> str:
    """The token whose embedding is meant, by its id: its text may be private."""
    token = (facts.get("parameter") or {}).get("token")
    return f" (the row of token {token['id']})" if token else ""


def rows_words(rows: list[str] | None) -> str:
    """Rows by their ids."""
    return f" Rows: {listed(rows)}." if rows else ""
