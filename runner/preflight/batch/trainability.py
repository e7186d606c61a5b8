"""What trains, what the optimizer holds, and what one backward pass reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.model.adapt import human
from runner.preflight.batch.head import frozen_heads
from runner.preflight.batch.reach import explain, measure_reach
from runner.preflight.context import Context
from runner.preflight.finding import MOST, Finding, Result, found, not_needed, ok, places
from runner.training import rng
from runner.training.step import module_of
from runner.training.trail import clean_name

HOOKED = ("lomo", "layerwise")
"""Parts of names of optimizers that hang themselves into the backward pass when they are built."""


def parameters(c: Context) -> Result:
    """B1, B3, A4: how much trains, of which modules; that a classification head does, and that all of it is saved."""
    model: Any = c.trainer.model
    named = [(clean_name(name), p) for name, p in model.named_parameters()]
    trained = [(name, p) for name, p in named if p.requires_grad]
    total = sum(p.numel() for _, p in named)
    count = sum(p.numel() for _, p in trained)
    kinds = by_kind({name: p.numel() for name, p in trained})
    if not trained:
        adapters = [name for name, _ in named if "lora_" in name or "modules_to_save" in name]
        what = f"all {len(adapters)} tensors of the adapter are frozen" if adapters else "every tensor is frozen"
        return found(
            f"0 of {human(total)} parameters train",
            Finding(
                "trainability.nothing_trains",
                "error",
                f"0 of {human(total)} parameters train: {what}, so the loss would move only with the batches.",
                tuple((adapters or [name for name, _ in named])[:MOST]),
                {"trained": 0, "total": total, "adapter_tensors": len(adapters)},
                () if c.cfg.lora.method == "lora" and c.cfg.lora.adapter is None else ("lora=default",),
            ),
        )
    findings = frozen_heads(c)
    lost = not_saved(model)
    if lost:
        findings.append(
            Finding(
                "weights.head_not_restored",
                "error",
                f"{len(lost)} tensors train and are not saved with the adapter ({places(lost)}): a reloaded model has "
                "their start values.",
                tuple(lost[:MOST]),
                {"not_saved": len(lost)},
                _save_them(c, lost),
            )
        )
    share = f"{human(count)} of {human(total)} ({100 * count / total:.3g} %)"
    return found(f"{share}: {places(list(kinds), 4)}", *findings)


def by_kind(sizes: Mapping[str, int]) -> dict[str, int]:
    """{kind of module: elements that train in it}, the largest first; a kind is the last part of a module's name."""
    kinds: dict[str, int] = {}
    for name, size in sizes.items():
        kind = module_of(name).rpartition(".")[2]
        kinds[kind] = kinds.get(kind, 0) + size
    return dict(sorted(kinds.items(), key=lambda pair: -pair[1]))


def not_saved(model: Any) -> list[str]:
    """Names of tensors that train and that saving the adapter would leave out; [] for a model without adapters."""
    from peft import PeftModel, get_peft_model_state_dict

    if not isinstance(model, PeftModel):
        return []
    # "auto" would ask the hub for the base model's config; names do not do, since PEFT shortens them by kind.
    kept = get_peft_model_state_dict(model, save_embedding_layers=False)
    places_kept = {tensor.untyped_storage().data_ptr() for tensor in kept.values()}
    return [
        clean_name(name)
        for name, p in model.named_parameters()
        if p.requires_grad and p.untyped_storage().data_ptr() not in places_kept
    ]


def _save_them(c: Context, lost: Sequence[str]) -> tuple[str, ...]:
    if c.cfg.lora.method != "lora" or c.cfg.lora.adapter is not None:
        return ()
    modules = sorted({name.rpartition(".")[0].rpartition(".")[2] for name in lost} - {""})
    return (f"lora.modules_to_save=[{','.join(modules)}]",) if modules else ()


def optimizer(c: Context) -> Result:
    """B4, B1: the optimizer that `Trainer.train` would use holds every trainable parameter of this model once."""
    trainer: Any = c.trainer
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return not_needed("DeepSpeed and FSDP build the optimizer from their own shards")
    if any(part in c.cfg.optim.name for part in HOOKED):
        return not_needed(f"{c.cfg.optim.name} changes the backward pass when it is built")
    before = trainer.optimizer
    try:
        with rng.untouched():
            held = [p for group in trainer.create_optimizer().param_groups for p in group["params"]]
    finally:
        trainer.optimizer = before
    names = {id(p): clean_name(name) for name, p in trainer.model.named_parameters()}
    trains = [id(p) for _, p in trainer.trainable()]
    missing, foreign, twice = compare(trains, [id(p) for p in held])
    numbers = {"held": len(held), "missing": len(missing), "foreign": len(foreign), "twice": len(twice)}
    if not held and not trains:
        sentence = "The optimizer holds 0 parameters, because none trains."
        return found("0 parameters", Finding("trainability.nothing_trains", "error", sentence, numbers=numbers))
    if not (missing or twice or [i for i in foreign if i not in names]):
        return ok(f"{len(held)} tensors, each once")
    said = [f"{len(missing)} of {len(trains)} trainable tensors are not in the optimizer"] if missing else []
    strange = [i for i in foreign if i not in names]
    said += [f"{len(strange)} tensors in it belong to no parameter of this model"] if strange else []
    said += [f"{len(twice)} are in it twice"] if twice else []
    where = [names[i] for i in [*missing, *twice]]
    return found(
        f"{len(missing)} missing, {len(strange)} foreign, {len(twice)} twice",
        Finding(
            "trainability.stale_optimizer",
            "error",
            f"{'; '.join(said)}{f' ({places(where)})' if where else ''}: gradients flow, and these weights stay.",
            tuple(where[:MOST]),
            {**numbers, "foreign": len(strange)},
        ),
    )


def compare(trains: Sequence[int], held: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """(in `trains` and not held, held and not in `trains`, held more than once), each without repeats, in order."""
    counts: dict[int, int] = {}
    for i in held:
        counts[i] = counts.get(i, 0) + 1
    wanted = set(trains)
    missing = [i for i in dict.fromkeys(trains) if i not in counts]
    return missing, [i for i in counts if i not in wanted], [i for i, n in counts.items() if n > 1]


def gradients(c: Context) -> Result:
    """B1, B2, B3: one micro-batch forward and backward: a finite loss, and a gradient for all that trains.

    Leaves `c.facts["first_loss"]` = {loss, rows, row_ids, row_losses} (the trainer's loss of that micro-batch with
    dropout off, and each row's mean over its supervised tokens) and `c.facts["seconds"]` = {seconds, tokens (padding
    included), rows} of one forward and backward.
    """
    trainer: Any = c.trainer
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return not_needed("DeepSpeed and FSDP hold the weights in shards until training starts")
    if not trainer.trainable():
        return not_needed("no parameter trains")
    reach = measure_reach(c)
    if reach.loss is not None:
        c.facts["first_loss"] = {
            "loss": reach.loss,
            "rows": len(reach.rows),
            "row_ids": list(reach.rows),
            "row_losses": list(reach.row_losses),
        }
        c.facts["seconds"] = {"seconds": reach.seconds, "tokens": reach.tokens, "rows": len(reach.rows)}
    return explain(c, reach)
