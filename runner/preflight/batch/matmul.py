"""The matrix products of the model's own layers against sums taken element by element in float64 (D3)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from runner.preflight.batch.rows import untouched
from runner.preflight.context import Context
from runner.preflight.finding import MOST, Finding, Result, found, not_needed, places
from runner.training.trail import clean_name

ROWS = 3
COLUMNS = 24
"""Outputs of a layer that are compared with float64, spread evenly over all of them."""

REPEATS = 3
MOST_TERMS = 2_000_000
"""Products that one reference may need at once; wide layers are compared at fewer outputs."""


@dataclass(frozen=True)
class Wrong:
    """One layer whose product is not the product."""

    module: str
    what: str
    """In words: which product, and how far off."""

    error: float
    """Largest difference in units of the tolerance; infinity where a value is not finite or missing."""


def matmul(c: Context) -> Result:
    """D3: every linear layer forward on random rows; three times, and its input gradient once, for the first layer of
    each shape and for every layer that is not torch's own `nn.Linear`, since the same kernel serves the others.

    Leaves `c.facts["matmul_wrong"]`, the names of the layers that failed.
    """
    trainer: Any = c.trainer
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return not_needed("DeepSpeed and FSDP hold the weights in shards until training starts")
    layers, quantised = linear_layers(trainer.model)
    if not layers:
        return not_needed(f"no linear layer that is not quantised ({quantised} are)")
    generator = torch.Generator().manual_seed(0)
    wrong: list[Wrong] = []
    unusable = 0
    with untouched(c), trainer.accelerator.autocast():
        seen: set[tuple[Any, ...]] = set()
        for name, module in layers:
            kind = shape_of(module)
            verdict = examine(name, module, generator, thorough=type(module) is not nn.Linear or kind not in seen)
            seen.add(kind)
            if verdict is None:
                unusable += 1
            else:
                wrong += verdict
    named = list(dict.fromkeys(w.module for w in sorted(wrong, key=lambda w: -w.error)))
    c.facts["matmul_wrong"] = named
    said = f"{len(layers) - len(named)} of {len(layers)} layers agree with float64"
    said += f", {quantised} quantised not tried" if quantised else ""
    said += f", {unusable} with weights out of range not tried" if unusable else ""
    if not wrong:
        return found(said)
    worst = max(wrong, key=lambda w: w.error)
    return found(
        said,
        Finding(
            "kernels.matmul_unwritten",
            "error",
            f"{len(named)} of {len(layers)} linear layers give a wrong product though weights and inputs are finite "
            f"({places(named)}): {worst.module}: {worst.what}.",
            tuple(named[:MOST]),
            {"layers": len(layers), "wrong": len(named), "torch": torch.__version__, "blas": blas()},
        ),
    )


def linear_layers(model: nn.Module) -> tuple[list[tuple[str, nn.Module]], int]:
    """([(clean name, module)] of every layer that is a matrix product, number of quantised ones left out).

    A layer that PEFT wraps is its base layer, under the name of the wrapper; of the small products of the adapters
    themselves one of each shape is kept.
    """
    layers, quantised = [], 0
    shapes: set[tuple[Any, ...]] = set()
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if hasattr(module, "base_layer") or not isinstance(weight, Tensor):
            continue
        if not hasattr(module, "in_features") and not hasattr(module, "nf"):
            continue
        if weight.ndim != 2 or weight.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            quantised += 1
            continue
        if ".lora_" in name:
            if shape_of(module) in shapes:
                continue
            shapes.add(shape_of(module))
        layers.append((clean_name(name).removesuffix(".base_layer"), module))
    return layers, quantised


def shape_of(module: nn.Module) -> tuple[Any, ...]:
    """What decides which kernel multiplies: class, shape, number format, device."""
    weight: Any = module.weight
    return type(module), tuple(weight.shape), weight.dtype, weight.device


def examine(name: str, module: nn.Module, generator: torch.Generator, thorough: bool = True) -> list[Wrong] | None:
    """What is wrong with one layer ([] = nothing); None where its weights leave the range of its number format.

    `generator` is a CPU generator; the global ones are not used. Without `thorough` only one forward is tried.
    """
    weight: Any = module.weight
    weight = weight.detach()
    # transformers' Conv1D keeps (in, out).
    matrix = weight.T if hasattr(module, "nf") else weight
    bias: Any = getattr(module, "bias", None)
    wide, narrow = matrix.shape[1], matrix.shape[0]
    # NaN survives in an extreme, and no copy of the weights is needed.
    if not bool(torch.isfinite(torch.stack(torch.aminmax(weight))).all()):
        return None
    x = draw(generator, ROWS, wide, weight).requires_grad_(True)
    g = draw(generator, ROWS, narrow, weight)
    repeats = REPEATS if thorough else 1
    outputs = [module(x) for _ in range(repeats)]
    dtype = outputs[0].dtype
    values = torch.stack([output.detach() for output in outputs])
    # Those that are not finite join the sample: a product may leave the range at single outputs.
    bad = (~torch.isfinite(values)).any(0).any(0).nonzero().reshape(-1)[:COLUMNS]
    columns = torch.cat([torch.arange(narrow, device=weight.device)[sample(narrow, wide)], bad]).unique()
    want, size = product(x.detach(), matrix[columns], None if bias is None else bias.detach()[columns])
    if not bool(torch.isfinite(size).all()) or float(size.max()) > torch.finfo(dtype).max / 4:
        return None
    allowed = tolerance(dtype, wide) * size
    wrong: list[Wrong] = []
    for turn, value in enumerate(values):
        which = f"forward {turn + 1} of {repeats}"
        wrong += compared(name, which, value[:, columns], want, allowed)
        apart = (value.double() - values[0].double()).abs().amax()
        if not wrong and float(apart) > 2 * float(allowed.max()):
            wrong.append(Wrong(name, f"{which} differs from the first by {float(apart):.4g}", math.inf))
    if not thorough:
        return wrong
    gradient = None
    if outputs[0].requires_grad:
        (gradient,) = torch.autograd.grad(outputs[0], x, g.to(dtype), allow_unused=True)
    columns = sample(wide, narrow)
    want, size = product(g, matrix[:, columns].T, None)
    if gradient is None:
        return [*wrong, Wrong(name, "its output does not depend on its input", math.inf)]
    return wrong + compared(name, "input gradient", gradient[:, columns], want, tolerance(dtype, narrow) * size)


def draw(generator: torch.Generator, rows: int, width: int, like: Tensor) -> Tensor:
    """Standard normal numbers, shape (rows, width), in the dtype and on the device of `like`."""
    return torch.randn(rows, width, generator=generator).to(device=like.device, dtype=like.dtype)


def sample(outputs: int, terms: int) -> slice:
    """Every how-many-th of `outputs` is compared, each being a sum of `terms` products: at most `COLUMNS` of them."""
    count = max(1, min(COLUMNS, MOST_TERMS // (ROWS * terms), outputs))
    return slice(0, None, -(-outputs // count))


def product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """(x matrix^T + bias, the same with magnitudes), both float64 of shape (rows, outputs), without a matrix product.

    x has shape (rows, terms), matrix (outputs, terms), bias (outputs,).
    """
    terms = x.double()[:, None, :] * matrix.double()[None]
    total, size = terms.sum(-1), terms.abs().sum(-1)
    if bias is None:
        return total, size
    return total + bias.double(), size + bias.double().abs()


def tolerance(dtype: torch.dtype, terms: int) -> float:
    """Largest difference from the exact sum, in units of the sum of magnitudes, that rounding explains.

    Two roundings of each factor to the format of the product, and fp32 accumulation over `terms` (Higham 2002,
    Accuracy and Stability of Numerical Algorithms, eq. 3.5). TF32 counts where torch may use it.
    """
    eps = torch.finfo(dtype).eps
    if dtype == torch.float32 and tf32():
        eps = 2.0**-10
    accumulated = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    return 2 * eps + terms * accumulated


def tf32() -> bool:
    """Whether torch may round fp32 factors before it multiplies."""
    return torch.get_float32_matmul_precision() != "highest" or (
        torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32
    )


def compared(name: str, which: str, got: Tensor, want: Tensor, allowed: Tensor) -> list[Wrong]:
    """The fault of one product as a list of none or one; all of shape (rows, outputs)."""
    got = got.double()
    if not bool(torch.isfinite(got).all()):
        bad = int((~torch.isfinite(got)).sum())
        return [Wrong(name, f"{which}: {bad} of {got.numel()} elements are not finite", math.inf)]
    off = (got - want).abs() / allowed.clamp(min=torch.finfo(torch.float64).tiny)
    at = int(off.argmax())
    worst = float(off.reshape(-1)[at])
    if worst <= 1:
        return []
    have, wanted = float(got.reshape(-1)[at]), float(want.reshape(-1)[at])
    return [Wrong(name, f"{which} has {have:.4g} where float64 has {wanted:.4g}", worst)]


def blas() -> str:
    """The parts of torch's build configuration that name its matrix library, and the number of threads."""
    named = re.findall(r"(?:BLAS_INFO|LAPACK_INFO|USE_MKL|USE_OPENMP)=[^,\s]+", torch.__config__.show())
    return ", ".join([*named, f"{torch.get_num_threads()} threads"])
