"""A rescale of one MLP that changes nothing in fp32, and moves its numbers towards an end of float16's range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from runner.config.schema import Config
from runner.errors import ConfigError
from runner.model.formats import resolve_formats
from runner.training.truth import Truth

ROWS_MEASURED = 8


def bare(trainer: Truth) -> Any:
    """The model without an adapter around it."""
    model: Any = trainer.model
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def layer_of(cfg: Config, trainer: Truth) -> tuple[str, nn.Module]:
    """(name, module) of layer `planted.layer` of the longest list of modules, the middle one where it is null."""
    lists = [(n, m) for n, m in bare(trainer).named_modules() if isinstance(m, nn.ModuleList)]
    if not lists:
        raise ConfigError([f"planted.fault={cfg.planted.fault}: this model has no list of layers to hit one of"])
    name, layers = max(lists, key=lambda pair: len(pair[1]))
    wanted = len(layers) // 2 if cfg.planted.layer is None else cfg.planted.layer
    if not 0 <= wanted < len(layers):
        raise ConfigError([f"planted.layer={wanted}: this model has layers 0 to {len(layers) - 1}"])
    return f"{name}.{wanted}", layers[wanted]


@dataclass(frozen=True)
class GatedMlp:
    """act(gate_proj x) * (up_proj x), then down_proj: linear in up_proj, so that a factor moves through it."""

    name: str
    up: nn.Module
    down: nn.Module

    def inputs_of_down(self) -> list[nn.Parameter]:
        """What down_proj multiplies its input with: its weight, and an adapter's A."""
        named = self.down.named_parameters()
        return [p for name, p in named if name.endswith("weight") and "lora_B" not in name and "magnitude" not in name]

    @torch.no_grad()
    def rescale(self, factor: float) -> None:
        """up_proj x factor and down_proj / factor, their adapters with them. Frozen weights become fp32: float16 could
        not hold them. `factor` is a power of 2, so that fp32 rounds nothing."""
        for name, parameter in self.up.named_parameters():
            # An adapter adds B A x to the output: B alone carries the factor. DoRA's magnitude is a row's length.
            if "lora_A" not in name:
                parameter.data = parameter.data.float() * factor
        for name, parameter in self.down.named_parameters():
            # The bias comes after the product, an adapter's B too.
            if not name.endswith("bias") and "lora_B" not in name:
                parameter.data = parameter.data.float() / factor


def gated_mlp(cfg: Config, trainer: Truth) -> GatedMlp:
    """The MLP of the layer; `ConfigError` where compute is not fp16, or there is nothing to rescale."""
    fault, compute = cfg.planted.fault, resolve_formats(cfg).compute
    problems = []
    if compute != "fp16":
        problems.append(
            f"planted.fault={fault} shows in float16 only, and precision.compute={cfg.precision.compute} computes in "
            f"{compute}: set precision=fp16 (on a CPU too)"
        )
    if cfg.model.quantization:
        problems.append(
            f"planted.fault={fault} rescales weights, and model.quantization={cfg.model.quantization} keeps them "
            "packed: set model.quantization=null"
        )
    name, layer = layer_of(cfg, trainer)
    parts = {n.rpartition(".")[2]: m for n, m in layer.named_modules()}
    if not {"gate_proj", "up_proj", "down_proj"} <= parts.keys():
        problems.append(
            f"planted.fault={fault} needs an MLP of gate_proj, up_proj and down_proj, which {name} of this model does "
            "not have: set another model, or another fault"
        )
    if problems:
        raise ConfigError(problems)
    whole = next(n for n, m in layer.named_modules() if n.endswith("up_proj")).rpartition(".")[0]
    return GatedMlp(f"{name}.{whole}", parts["up_proj"], parts["down_proj"])


def output_sizes(trainer: Truth, module: nn.Module) -> list[float]:
    """Largest output of `module` on each of the first training rows, computed in bfloat16, which has fp32's range."""
    model, sizes = bare(trainer), list[float]()
    train: Any = trainer.train_dataset
    device = next(model.parameters()).device

    def measure(module: nn.Module, args: Any, output: Tensor) -> None:
        sizes.append(float(output.detach().abs().max()))

    training, handle = model.training, module.register_forward_hook(measure)
    backbone = getattr(model, model.base_model_prefix)
    try:
        backbone.eval()
        for row in train[:ROWS_MEASURED]["input_ids"]:
            with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
                backbone(input_ids=torch.tensor([row], device=device), use_cache=False)
    finally:
        handle.remove()
        model.train(training)
    return sizes
