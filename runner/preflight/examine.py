"""`check`: everything a run would build, built only to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runner.config.schema import Config
from runner.errors import UserError
from runner.preflight.check import Stage
from runner.preflight.flow import Line, Preflight, quiet


def examine(
    cfg: Config,
    level: str,
    folder: Path,
    on_line: Callable[[Line], None] = lambda line: None,
    until: Stage = "batch",
) -> Preflight:
    """Run the checks of every stage up to `until`; what a stage builds stays in `Preflight.context`.

    `folder` is for preflight.json and for scratch files. An error that stops loading and is a known cause becomes a
    finding, and later stages are not reached. Raises `UserError` for any other mistake of the user.
    """
    pre = Preflight(cfg, level, folder, on_line=on_line)
    try:
        build(cfg, pre, until)
    except UserError as error:
        if not pre.broke(error):
            raise
    return pre


def build(cfg: Config, pre: Preflight, until: Stage) -> None:
    """Build what a run builds, in its order, and hand each part to the checks of its stage."""
    pre.run("config")
    if until == "config":
        return
    from transformers import set_seed

    from runner.data.prepare import prepare_data
    from runner.data.template import ChatTemplate
    from runner.model.adapt import adapt
    from runner.model.formats import resolve_formats
    from runner.model.load import load_model, load_with_info
    from runner.model.tokenizer import load_tokenizer
    from runner.training.build import build_trainer
    from runner.training.environment import prepare_environment, world
    from runner.training.plan import learning_rate_for, make_plan

    cfg = quiet(cfg)
    prepare_environment(cfg)
    tokenizer = load_tokenizer(cfg)
    data = prepare_data(cfg, tokenizer)
    pre.context.processes = world()[1]
    plan = make_plan(cfg, len(data.train), world()[1])
    pre.run("data", tokenizer=tokenizer, data=data, plan=plan)
    if until == "data":
        return
    set_seed(cfg.seed)
    formats = resolve_formats(cfg)
    stop_id = ChatTemplate(tokenizer).stop_id if cfg.task.name == "sft" else None
    start, info = load_with_info(cfg, tokenizer, data.labels, formats, stop_id)
    pre.run(
        "weights",
        formats=formats,
        start=start,
        loading=info,
        load_again=lambda: load_model(cfg, tokenizer, data.labels, formats, stop_id),
    )
    if until == "weights":
        return
    rate, _ = learning_rate_for(cfg, getattr(start.config, "hidden_size", None))
    model, trainable = adapt(cfg, start, formats)
    trainer = build_trainer(cfg, plan, formats, rate, model, tokenizer, data, pre.folder, lambda row: None, [])
    pre.run("batch", rate=rate, trainable=trainable, trainer=trainer)
