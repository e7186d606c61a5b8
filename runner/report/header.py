"""The header of every run: what matters, before the first step."""

from __future__ import annotations

from pathlib import Path

from runner.config.schema import Config
from runner.report.closing import shown_path


def clip_phrase(cfg: Config) -> str:
    """ "norm at 1.0", "value at 0.5" or "none"."""
    clip = cfg.clip
    at = {
        "norm": f" at {clip.max_grad_norm:g}",
        "value": f" at {clip.clip_value:g}",
        "zclip": f" at {clip.z_threshold:g} sd, cap {clip.max_grad_norm:g}",
        "autoclip": f" at percentile {clip.percentile:g}",
        "agc": f" at {clip.clipping:g} of the weights",
        "adagc": f" at {clip.lambda_rel:g} x each tensor's own norm",
        "none": "",
    }[clip.method]
    return f"{clip.method}{at}"


def header_lines(
    cfg: Config,
    trainable: str,
    learning_rate: float,
    rate_source: str,
    batch: str,
    steps: str,
    formats: str,
    device: str,
) -> list[str]:
    """Aligned lines; each argument is the phrase that its own room made."""
    pairs = [
        ("run", f"{cfg.name} · {cfg.task.name} · seed {cfg.seed} · {device}"),
        ("model", shown_path(Path(cfg.model.path))),
        ("trains", trainable),
        ("rate", f"learning rate {learning_rate:g} ({rate_source}), {cfg.schedule.lr_scheduler_type}"),
        ("batch", f"{batch}, {cfg.batch.sampler}"),
        ("steps", steps),
        ("precision", formats),
        ("update", f"{cfg.optim.name}, weight decay {cfg.optim.weight_decay:g}, clip {clip_phrase(cfg)}"),
    ]
    return [f"{name:<10} {text}" for name, text in pairs]
