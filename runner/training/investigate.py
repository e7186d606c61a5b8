"""After a broken step: which module, parameter and rows, by a second pass over the same batch, and the folder for it.

The step is left as it was found: the same gradient tensors, random number generators and running statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import nn

from runner.model.fingerprint import weights_hash
from runner.runfolder import number
from runner.training.attribution import (
    Trail,
    clean_name,
    first_bad_backward,
    first_bad_forward,
    first_bad_parameter,
    trail_table,
)
from runner.training.incident import incident_folder, replay_command, sentence, write_batches, write_incident
from runner.training.incident_rows import Examined, batches_of, by_loss, named_rows, rows_of, token_of
from runner.training.rng import untouched

MOST_ROWS = 64
"""Rows that an incident lists, the guilty ones first."""


def investigate(trainer: Examined, reason: str, folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Find out what broke the step and write `incident-<step>/` into the run folder `folder`; the incident's facts.

    Called on every process, with the gradient complete and the optimizer not yet asked. `reason` is "spike" or why the
    step is not finite; `facts` holds step, loss, grad_norm and what else is known. The facts are those of the first
    process that found something (its `rank`) and equal on all. With `stability.incident.save=false` nothing is written
    and `incident` is None.
    """
    several = trainer.accelerator.num_processes > 1
    rank = int(trainer.accelerator.process_index) if several else 0
    stability = trainer.instruments.stability
    path = incident_folder(folder, int(facts["step"]))
    scaler = trainer.accelerator.scaler
    facts = {
        "window": stability.guard.spike_window,
        "spike_z": stability.guard.spike_z,
        "loss_scale": None if scaler is None else float(scaler.get_scale()),
        "processes": int(trainer.accelerator.num_processes),
        **facts,
        "reason": reason,
    }
    found = examine(trainer, reason == "spike", facts)
    everyone = gather_object([found]) if several else [found]
    facts = {**facts, **chosen(everyone, reason == "spike")}
    save = stability.incident.save
    left_out = why_no_weights(trainer, folder, stability.incident.save_weights) if save else None
    facts["incident"] = path.name if save else None
    facts["replay"] = replay_command(path) if save and left_out is None else None
    facts["weights"] = left_out
    facts["sentence"] = sentence(facts)
    if not save:
        return facts
    error: OSError | None = None
    try:
        if rank > 0:
            write_batches(path, rank, batches_of(trainer, facts))
    except OSError as failed:
        error = failed
    if several:
        # Files of the other processes are complete before incident.json is there.
        trainer.accelerator.wait_for_everyone()
    if rank == 0:
        weights = {name: p.detach() for name, p in trainer.trainable()} if left_out is None else None
        facts = {**facts, "base": base_of(trainer)}
        try:
            write_incident(folder, facts, batches_of(trainer, facts), weights, trainer.instruments.config)
        except OSError as failed:
            error = failed
    if error is not None:
        # Training is worth more than the folder that explains one of its steps.
        facts["sentence"] += f" {path} could not be written: {error.strerror or error}."
        facts["incident"] = facts["replay"] = None
    return facts


MOST_WEIGHTS = 2 * 2**30
"""Bytes up to which the weights that train are kept where the user did not say."""


def why_no_weights(trainer: Examined, folder: Path, wanted: bool | None) -> str | None:
    """Why the incident does not hold the trainable weights, without which it cannot be replayed; None where it does."""
    if wanted is not None:
        return None if wanted else "stability.incident.save_weights=false: the weights before the step are not kept."
    size = sum(p.numel() * p.element_size() for _, p in trainer.trainable())
    if size <= MOST_WEIGHTS:
        return None
    return (
        f"the weights that train take {size / 2**30:.1f} GiB, so they are not kept and the step cannot be replayed; "
        "stability.incident.save_weights=true keeps them."
    )


def base_of(trainer: Examined) -> dict[str, Any]:
    """Which start model: path, SHA-256 of its files where some of its weights are frozen (those that train are kept in
    the incident), and the commit where it came from a hub."""
    path = trainer.instruments.config.get("model", {}).get("path")
    frozen = any(not p.requires_grad for p in trainer.model.parameters())
    commit = getattr(getattr(trainer.model, "config", None), "_commit_hash", None)
    return {"path": path, "sha256": weights_hash(path) if path and frozen else None, "commit": commit}


def chosen(everyone: list[dict[str, Any]], spike: bool) -> dict[str, Any]:
    """Facts of one process for all: the first that found something; for a spike, the one with the largest loss."""
    guilty = [r for r, found in enumerate(everyone) if found["found"]]
    rank = max(range(len(everyone)), key=lambda r: everyone[r]["worst"]) if spike else next(iter(guilty), 0)
    facts = {key: value for key, value in everyone[rank].items() if key not in ("found", "worst")}
    if spike:
        facts["rows"] = by_loss([row for found in everyone for row in found["rows"]])[:MOST_ROWS]
    return {**facts, "rank": rank, "ranks": guilty}


def examine(trainer: Examined, spike: bool, facts: dict[str, Any]) -> dict[str, Any]:
    """What this process finds: forward, backward, parameter, trail, rows, micro_batch, second_pass, found, worst."""
    step, model = trainer.step_now, trainer.model
    weight = first_bad_parameter([(clean_name(n), p) for n, p in model.named_parameters()], gradients=False)
    gradient = first_bad_parameter(trained(trainer), gradients=True)
    losses = [float(x) for x in torch.stack([x.detach().float().reshape(()) for x in step.losses]).tolist()]
    loss_finite = math.isfinite(number(facts.get("loss")) or 0.0) and all(math.isfinite(x) for x in losses)
    sizes = micro_means(step, losses)
    if spike:
        order = [max(range(len(sizes)), key=lambda i: sizes[i])]
    else:
        order = sorted(range(len(step.batches)), key=lambda i: math.isfinite(losses[i]))
    second = second_pass(trainer, order)
    micro, forward, backward = second["micro_batch"], second["forward"], second["backward"]
    if micro is None and not spike and second["out_of_memory"] is None:
        # Where the loss is not finite every gradient is not: the first of them says nothing.
        second["second_pass"] = finite_again(second["summed"], gradient if loss_finite else None)
    found = micro is not None or weight is not None or any(not math.isfinite(x) for x in losses)
    shown = [micro] if micro is not None and not spike else suspects(losses, spike)
    rows = [row for i in shown for row in rows_of(trainer, i)]
    bad_rows = [row["row_id"] for row in rows if row["loss"] is not None and not math.isfinite(row["loss"])]
    if micro is not None:
        for bad in (forward, backward):
            if bad is not None:
                bad["rows"] = named_rows(step.batches[micro], bad["rows"])
        first = set((forward or backward or {}).get("rows") or bad_rows)
        rows.sort(key=lambda row: row["row_id"] not in first)
    parameter = (forward or {}).get("weight") or weight
    if parameter is None and loss_finite:
        # Where a module's backward is to blame, the first bad gradient belongs to a layer that it merely reached.
        parameter = gradient if backward is None else only_gradient(trainer, backward["parameter"])
    if parameter is None and micro is None and second["out_of_memory"] is None and not spike:
        parameter = first_bad_state(trainer)
        if parameter is not None:
            second["second_pass"] = (
                f"the optimizer's {parameter['key']} of {parameter['name']} holds {parameter['value']} at "
                f"{parameter['first_index']}."
            )
    if micro is None and len(shown) == 1:
        micro = shown[0]
    if parameter is not None:
        parameter = {**parameter, **token_of(trainer, parameter, shown)}
    return {
        "micro_batch": order[0] if spike else micro,
        "forward": forward,
        "backward": backward,
        "parameter": parameter,
        "gradient": gradient,
        "trail": second["trail"],
        "second_pass": second["out_of_memory"] or second["second_pass"],
        "second_loss": second["loss"],
        "rows": by_loss(rows) if spike else rows[:MOST_ROWS],
        "bad_rows": bad_rows,
        "found": found,
        "worst": max(sizes),
    }


def first_bad_state(trainer: Examined) -> dict[str, Any] | None:
    """As `first_bad_parameter`, of what the optimizer keeps for the weights: also `key`, its name for it (exp_avg)."""
    optimizer: Any = getattr(trainer, "optimizer", None)
    state = getattr(getattr(optimizer, "optimizer", optimizer), "state", {})
    held = [(f"{key} {name}", x) for name, p in trained(trainer) for key, x in state.get(p, {}).items()]
    bad = first_bad_parameter([(name, x) for name, x in held if isinstance(x, torch.Tensor)], gradients=False)
    if bad is None:
        return None
    key, _, name = bad["name"].partition(" ")
    return {**bad, "name": name, "what": "optimizer state", "key": key}


def only_gradient(trainer: Examined, name: str | None) -> dict[str, Any] | None:
    """`first_bad_parameter` of the gradient of the parameter `name`."""
    return first_bad_parameter([pair for pair in trained(trainer) if pair[0] == name], gradients=True)


def trained(trainer: Examined) -> list[tuple[str, nn.Parameter]]:
    """Parameters that train, by their names in the bare model."""
    return [(clean_name(name), parameter) for name, parameter in trainer.trainable()]


def second_pass(trainer: Examined, order: list[int]) -> dict[str, Any]:
    """Run the micro-batches of `order` again until one shows a non-finite value; what was seen of the last one run.

    `micro_batch` is the one that showed it, None where none did; `summed` then is the first parameter whose gradient,
    summed over them, is not finite all the same.
    """
    seen: dict[str, Any] = dict.fromkeys(("micro_batch", "forward", "backward", "trail", "loss", "summed"))
    seen |= {"second_pass": None, "out_of_memory": None}
    with untouched(), set_aside(trainer.model):
        try:
            for place, i in enumerate(order):
                ids = trainer.step_now.batches[i].get("input_ids")
                with Trail(trainer.model, batch=None if ids is None else len(ids)) as trail:
                    loss = float(trainer.repeat_micro(i))
                events = trail.finish()
                seen.update(loss=loss, trail=trail_table(events))
                forward, backward = first_bad_forward(events), first_bad_backward(events)
                if forward or backward or not math.isfinite(loss):
                    seen.update(micro_batch=i, forward=forward, backward=backward)
                    # A forward pass is collective (buffers, TRL's metrics): every process runs as many of them.
                    for rest in order[place + 1 :] if trainer.accelerator.num_processes > 1 else ():
                        trainer.repeat_micro(rest)
                    return seen
            seen["summed"] = first_bad_parameter(trained(trainer), gradients=True)
        except torch.OutOfMemoryError as error:
            words = str(error).splitlines()[0]
            seen["out_of_memory"] = f"the second pass, which looks at every module, ran out of memory: {words}"
    if seen["out_of_memory"] and torch.cuda.is_available():
        torch.cuda.empty_cache()
    return seen


@contextmanager
def set_aside(model: nn.Module) -> Iterator[None]:
    """Inside, no parameter has a gradient; afterwards each has the very tensor it had. Running statistics as well."""
    held = [(p, p.grad) for p in model.parameters()]
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
    statistics = [(b, b.clone()) for m in norms for b in m.buffers(recurse=False)]
    for parameter, _ in held:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in held:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, before in statistics:
                buffer.copy_(before)


def finite_again(summed: dict[str, Any] | None, gradient: dict[str, Any] | None) -> str:
    """What a second pass without any non-finite value means."""
    if summed is not None:
        return (
            f"every micro-batch alone has a finite gradient; their sum has not: {summed['name']} ({summed['dtype']}) "
            f"is {summed['value']} at {summed['first_index']}."
        )
    where = (
        f"; gradient of {gradient['name']} holds {gradient['value']} at {gradient['first_index']}" if gradient else ""
    )
    return (
        "a second pass over the same batch was finite: the value came from outside the model, or is not "
        f"deterministic{where}."
    )


def micro_means(step: Any, losses: list[float]) -> list[float]:
    """Loss per supervised token of each micro-batch where the rows' losses are known, else the trainer's own loss."""
    if len(step.micros) != len(losses):
        return losses
    sums = torch.stack([m.loss_sums.sum().float() / m.tokens.sum().clamp(min=1).float() for m in step.micros])
    return [float(x) for x in sums.tolist()]


def suspects(losses: list[float], spike: bool) -> list[int]:
    """Micro-batches whose rows are listed where none was found guilty: those without a finite loss, else all."""
    return [i for i, x in enumerate(losses) if not spike and not math.isfinite(x)] or list(range(len(losses)))
