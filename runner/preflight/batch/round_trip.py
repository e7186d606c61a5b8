"""Saved as training saves it, loaded as a user loads it: equal logits, or the tensors that were lost (A4)."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from runner.model.adapt import human
from runner.preflight.batch.attention import padded
from runner.preflight.batch.rows import deterministic, first_rows, untouched
from runner.preflight.context import Context
from runner.preflight.finding import MOST, Finding, Result, found, not_needed, places
from runner.training.trail import clean_name

LONGEST = 32
"""Tokens that are kept of a row."""

STEP = 0.02
"""Standard deviation of the noise that stands in for training: without it an adapter is zero, and a lost one would not
show."""

LIMITS = {torch.float32: 1e-4, torch.bfloat16: 0.02, torch.float16: 2e-3}
"""Difference of a logit, in units of the largest, up to which two computations count as equal. Measured: 0."""


def round_trip(c: Context) -> Result:
    """A4: logits of a few rows before saving and after loading; weights and files are as before afterwards."""
    trainer: Any = c.trainer
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled or c.processes > 1:
        return not_needed("only with one process that holds the whole model")
    adapter = hasattr(trainer.model, "get_base_model")
    saved = [p for p in trainer.model.parameters() if p.requires_grad or not adapter]
    bytes_needed = sum(p.numel() * p.element_size() for p in saved)
    folder = c.folder / "preflight" / "round_trip"
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free
    if bytes_needed > free / 2:
        return not_needed(f"it would write {human(bytes_needed)} bytes, and {human(free)} are free")
    rows = [list(ids)[:LONGEST] for ids in first_rows(c, 2)["input_ids"]]
    try:
        with untouched(c), deterministic(trainer.model), moved(trainer.model if adapter else None):
            want = logits(trainer, trainer.model, rows, c.tokenizer.pad_token_id)
            trainer.save_model(str(folder))
            again = load(c, folder, adapter)
            got = logits(trainer, again, rows, c.tokenizer.pad_token_id)
            lost = changed(trainer.model, again)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    return judge(apart(want, got), lost, max(LIMITS[dtype] for dtype in dtypes(trainer)), c)


def judge(difference: float, lost: list[str], limit: float, c: Context) -> Result:
    """The result of a round trip that left the logits `difference` apart and the tensors `lost` unequal."""
    if difference <= limit and not lost:
        return found(f"logits differ by {difference:.2g}")
    heads = [name for name in lost if "." in name and not name.startswith("model.")]
    where = [*heads, *(name for name in lost if name not in heads)]
    if lost:
        what = f"{len(lost)} tensors come back with other values ({places(where)})"
    else:
        what = "all tensors come back, so it is a setting that is lost (scale, head type, token ids)"
    return found(
        f"logits differ by {difference:.2g}, {len(lost)} tensors",
        Finding(
            "weights.head_not_restored",
            "error",
            f"Saved and loaded again, the model gives logits that differ by {difference:.2g} of the largest: {what}.",
            tuple(where[:MOST]),
            {"difference": difference, "limit": limit, "tensors": len(lost)},
            ("lora.adapter=null",) if c.cfg.lora.method == "lora" and c.cfg.lora.adapter else (),
        ),
    )


@contextmanager
def moved(model: nn.Module | None) -> Iterator[None]:
    """Inside, every parameter that trains has moved a little; afterwards it is as before, bit for bit. None = no-op."""
    if model is None:
        yield
        return
    kept = [(p, p.detach().clone()) for p in model.parameters() if p.requires_grad]
    generator = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for parameter, _ in kept:
                noise = torch.randn(parameter.shape, generator=generator) * STEP
                parameter.add_(noise.to(device=parameter.device, dtype=parameter.dtype))
        yield
    finally:
        with torch.no_grad():
            for parameter, before in kept:
                parameter.copy_(before)


def load(c: Context, folder: Path, adapter: bool) -> Any:
    """The saved model as somebody else would load it: in another process, with another random head."""
    trainer: Any = c.trainer
    if adapter:
        from peft import PeftModel

        base = c.load_again()
        forget(base, list(c.loading.get("missing_keys", ())))
        return PeftModel.from_pretrained(base, str(folder)).to(trainer.args.device).eval()
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    loader: Any = AutoModelForSequenceClassification if c.classification else AutoModelForCausalLM
    model = trainer.model
    again = loader.from_pretrained(
        str(folder),
        dtype=model.dtype,
        attn_implementation=model.config._attn_implementation,
        trust_remote_code=c.cfg.model.trust_remote_code,
    )
    return again.to(trainer.args.device).eval()


@torch.no_grad()
def forget(model: nn.Module, missing: list[str]) -> None:
    """Fill the parameters that the start files lack with other random numbers: who loads does not have our seed."""
    generator = torch.Generator().manual_seed(1)
    named = dict(model.named_parameters())
    for name in missing:
        if name in named:
            noise = torch.randn(named[name].shape, generator=generator) * STEP
            named[name].copy_(noise)


@torch.no_grad()
def logits(trainer: Any, model: Any, rows: list[list[int]], pad: int) -> Tensor:
    """Logits of the rows, fp32 on the CPU: of the last real token for a language model, (rows, classes) otherwise."""
    model.eval()
    ids, mask = padded(rows, pad, ["right"] * len(rows))
    device = trainer.args.device
    with trainer.accelerator.autocast():
        out = model(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False).logits
    if out.ndim == 3:
        out = out[torch.arange(len(rows)), (mask.sum(1) - 1).to(out.device)]
    return out.float().cpu()


def apart(a: Tensor, b: Tensor) -> float:
    """Largest difference in units of the largest magnitude of `a`; inf where shapes differ or one is not finite."""
    if a.shape != b.shape:
        return math.inf
    difference = float((a - b).abs().amax())
    scale = float(a.abs().amax())
    if not math.isfinite(difference) or not math.isfinite(scale):
        return math.inf
    return difference / scale if scale else (0.0 if difference == 0 else math.inf)


def changed(model: nn.Module, again: nn.Module) -> list[str]:
    """Clean names of parameters in use that `again` lacks or holds with other values.

    Values are compared in the format of `again`, so that a format chosen at loading is no loss.
    """
    there = {clean_name(name): p for name, p in again.named_parameters()}
    lost = []
    for name, p in model.named_parameters():
        name = clean_name(name)
        if ".original_module." in f".{name}":
            continue
        other = there.get(name)
        if other is None or other.shape != p.shape or not bool(torch.equal(other, p.detach().to(other))):
            lost.append(name)
    return lost


def dtypes(trainer: Any) -> set[torch.dtype]:
    """The number formats that the logits went through."""
    formats = {p.dtype for p in trainer.model.parameters() if p.dtype in LIMITS}
    mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(trainer.accelerator.mixed_precision)
    return formats | ({mixed} if mixed else set())
