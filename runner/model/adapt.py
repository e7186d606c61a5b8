"""`lora`: which weights move. Adapters, everything, or what matches a pattern."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from runner.config.schema import Config
from runner.errors import UserError
from runner.model.formats import DTYPES, Formats
from runner.model.load import head_names
from runner.model.location import hub_errors


@dataclass(frozen=True)
class Trainable:
    """How much of a model trains."""

    method: str
    trained: int
    total: int
    """Parameters of the model as it will be saved, adapters included."""

    @property
    def line(self) -> str:
        """ "full: 494 M of 494 M parameters train", for the header."""
        name = {"none": "full", "lora": "LoRA", "freeze": "freeze"}[self.method]
        share = f" ({100 * self.trained / self.total:.2g} %)" if self.trained < self.total else ""
        return f"{name}: {human(self.trained)} of {human(self.total)} parameters train{share}"


def human(n: int) -> str:
    """1234 -> 1.2 K, 494032768 -> 494 M, 7615616512 -> 7.62 B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return str(n)


def adapt(cfg: Config, model: PreTrainedModel, formats: Formats) -> tuple[nn.Module, Trainable]:
    """`model` with the weights that train switched on, in their dtype, and the count of them.

    Raises `UserError` where targets or patterns match nothing.
    """
    method = cfg.lora.method
    adapted: Any = model
    if method == "lora":
        adapted = add_adapter(cfg, model)
    elif method == "freeze":
        freeze(cfg, model)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(DTYPES[formats.trainable])
        elif method == "freeze":
            parameter.data = parameter.data.to(DTYPES[formats.frozen])
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    total = sum(p.numel() for p in adapted.parameters())
    return adapted, Trainable(method, trained, total)


def non_finite_weights(model: Any) -> str | None:
    """Name of the first trainable parameter that holds NaN or infinity; None where all are finite."""
    import torch

    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not bool(torch.isfinite(parameter).all()):
            return str(name)
    return None


def add_adapter(cfg: Config, model: PreTrainedModel) -> Any:
    """A PEFT model: a new LoRA adapter, or the one of `lora.adapter` to continue from."""
    from peft import LoraConfig, PeftModel, TaskType, get_peft_model, prepare_model_for_kbit_training

    lora = cfg.lora
    if cfg.model.quantization:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=cfg.model.gradient_checkpointing)
    if lora.adapter is not None:
        if Path(lora.adapter).is_dir() and not (Path(lora.adapter) / "adapter_config.json").exists():
            raise UserError(
                f"lora.adapter={lora.adapter}: there is no adapter_config.json in it; name the folder that has one."
            )
        with hub_errors(lora.adapter, "adapter"):
            return PeftModel.from_pretrained(model, lora.adapter, is_trainable=True)
    classification = cfg.task.name == "classification"
    heads = head_names(model) if classification else []
    saved = list(dict.fromkeys([*(lora.modules_to_save or []), *heads]))
    there = {name.split(".")[-1] for name, _ in model.named_modules()}
    unknown = [name for name in saved if name not in there]
    if unknown:
        raise UserError(
            f"lora.modules_to_save={lora.modules_to_save}: this model has no module {', '.join(unknown)}; it has "
            f"{', '.join(sorted(n for n in there if n and not n.isdigit()))}."
        )
    config = LoraConfig(
        task_type=TaskType.SEQ_CLS if classification else TaskType.CAUSAL_LM,
        r=lora.r,
        # PEFT's scale is alpha / r and takes any number; its annotation says int.
        lora_alpha=lora.lora_alpha if lora.lora_alpha is not None else 2 * lora.r,  # type: ignore[arg-type]
        lora_dropout=lora.lora_dropout,
        target_modules=lora.target_modules,
        use_rslora=lora.use_rslora,
        use_dora=lora.use_dora,
        init_lora_weights=lora.init_lora_weights,  # type: ignore[arg-type]
        modules_to_save=saved or None,
    )
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        linear = sorted({n.split(".")[-1] for n, m in model.named_modules() if isinstance(m, nn.Linear)})
        raise UserError(
            f"lora.target_modules={lora.target_modules} does not fit this model ({str(error).splitlines()[0]}). Its "
            f"linear modules are {', '.join(linear)}; all-linear takes them all."
        ) from error


def freeze(cfg: Config, model: PreTrainedModel) -> None:
    """Train only parameters whose name a regex of `lora.trainable` matches, and a classification head."""
    patterns = [re.compile(p) for p in cfg.lora.trainable or []]
    heads = set(head_names(model)) if cfg.task.name == "classification" else set()
    matched = 0
    for name, parameter in model.named_parameters():
        hit = any(p.search(name) for p in patterns)
        matched += hit
        parameter.requires_grad_(hit or name.split(".")[0] in heads)
    if not matched:
        names = [n for n, _ in model.named_parameters()]
        raise UserError(
            f"lora.trainable={cfg.lora.trainable} matches none of the {len(names)} parameters; they are named like "
            f"{names[0]}, {names[len(names) // 2]}, {names[-1]}."
        )
