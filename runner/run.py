"""The story of one run, on one page."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.config.rules import refuse_warmup
from runner.config.schema import Config
from runner.errors import UserError, disk_full
from runner.runfolder import (
    JsonLines,
    RunFolder,
    changes_since,
    newest_checkpoint,
    read_telemetry,
    resolve_resume,
    write_json,
)
from runner.training.environment import device_name, of_first_process, prepare_environment, set_early, world


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    state: str
    """finished, stopped, diverged or failed."""

    folder: Path
    metric: float | None = None
    """Last value of `checkpoint.metric_for_best_model` where rows are held out, else the smoothed train loss."""

    @property
    def exit_code(self) -> int:
        """0 finished, 130 stopped, 1 otherwise."""
        return {"finished": 0, "stopped": 130}.get(self.state, 1)


def run(cfg: Config, dropped: Sequence[str] = ()) -> Outcome:
    """Train once and leave everything in `cfg.output_dir`, or in the run folder that is resumed.

    `dropped` are settings that do not apply to the chosen options; they are shown, as are settings that a resumed run
    changes. Raises `UserError` for what the user can mend. Whatever ends the run, `run.json` says why.
    """
    set_early(cfg)
    settings = dataclasses.asdict(cfg)
    cfg = dataclasses.replace(cfg, output_dir=str(of_first_process(str(Path(cfg.output_dir).resolve()))))
    resume = None
    if cfg.checkpoint.resume is not None:
        resume = resolve_resume(cfg.checkpoint.resume, Path(cfg.output_dir).parent, settings)
        if resume is None:
            nothing = f"checkpoint.resume={cfg.checkpoint.resume}: no unfinished run of this name and config has a "
            dropped = [*dropped, f"{nothing}checkpoint, so this one begins at step 1"]
        else:
            dropped = [*dropped, *changes_since(resume[0], settings)]
            cfg = dataclasses.replace(cfg, output_dir=str(resume[0]))
    folder = RunFolder(Path(cfg.output_dir), leader=world()[0] == 0)
    try:
        if resume is None:
            folder.refuse_used()
        folder.begin(cfg.seed, settings)
    except BaseException:
        folder.close()
        raise
    try:
        return train(cfg, folder, resume[1] if resume else None, dropped)
    except KeyboardInterrupt as stop:
        kept = newest_checkpoint(folder.path)
        last = (
            f"the last checkpoint is {kept}; checkpoint.resume={folder.path} goes on from it" if kept else "none saved"
        )
        reason = f"{str(stop) or 'SIGINT'}: interrupted at once, without a checkpoint of this moment ({last})"
        folder.end("stopped", reason, 130)
        print(f"\nSTOPPED  {reason}")
        return Outcome("stopped", folder.path)
    except UserError as error:
        folder.end("failed", str(error), error.exit_code)
        raise
    except Exception as error:
        mended = disk_full(error, folder.path)
        try:
            folder.end("failed", str(mended or f"{type(error).__name__}: {error}"), 1)
        except OSError as again:
            # A full disk has no room for run.json either; what the user has to hear is below.
            if mended is None:
                raise again from error
        if mended is not None:
            raise mended from error
        raise
    finally:
        folder.close()


def train(cfg: Config, folder: RunFolder, checkpoint: Path | None, dropped: Sequence[str]) -> Outcome:
    """Compose the parts, train, write the end. Heavy imports live here and below."""
    from transformers import set_seed

    from runner.data.prepare import prepare_data
    from runner.data.preview import preview
    from runner.data.template import ChatTemplate
    from runner.model.adapt import adapt, non_finite_weights
    from runner.model.formats import resolve_formats
    from runner.model.load import load_model, load_with_info
    from runner.model.tokenizer import load_tokenizer
    from runner.preflight.flow import Preflight
    from runner.preflight.show import short
    from runner.report.closing import close, next_command
    from runner.report.conclude import conclude
    from runner.report.header import clip_phrase, header_lines
    from runner.report.plot import plot_loss
    from runner.report.progress import Progress
    from runner.report.screen import Screen
    from runner.report.summary import summarize
    from runner.training.base_loss import compute_base_loss
    from runner.training.build import build_trainer
    from runner.training.plan import default_learning_rate, learning_rate_for, make_plan
    from runner.training.stopping import StopCallback, StopRequest
    from runner.training.watch import Watch, class_report

    with contextlib.ExitStack() as stack:
        request = stack.enter_context(StopRequest())
        screen = Screen(folder.path / "console.log" if folder.leader else None, quiet=not folder.leader)
        stack.callback(screen.close)

        # 1. What is trained on what. Each part is checked as soon as it is there.
        prepare_environment(cfg)
        for sentence in dropped:
            screen.say(f"Note: {sentence}", style="yellow")
        level = cfg.checks.level or "quick"
        pre = Preflight(cfg, level, folder.path, world()[1], leader=folder.leader, refuses=True)
        pre.run("config", previous=folder.previous or None)
        tokenizer = load_tokenizer(cfg)
        data = prepare_data(cfg, tokenizer)
        plan = make_plan(cfg, len(data.train), world()[1])
        if level == "off":
            refuse_warmup(cfg, plan.warmup_steps, plan.total_steps)
        pre.run("data", tokenizer=tokenizer, data=data, plan=plan)

        # 2. The model, and which of its weights move.
        set_seed(cfg.seed)
        formats = resolve_formats(cfg)
        stop_id = ChatTemplate(tokenizer).stop_id if cfg.task.name == "sft" else None
        wanted = (cfg, tokenizer, data.labels, formats, stop_id)
        start, loading = load_with_info(*wanted)
        again = functools.partial(load_model, *wanted)
        pre.run("weights", formats=formats, start=start, loading=loading, load_again=again)
        width = getattr(start.config, "hidden_size", None)
        rate, rate_source = learning_rate_for(cfg, width)
        model, trainable = adapt(cfg, start, formats)

        # 3. What the user should know before step 1.
        for line in header_lines(
            cfg, trainable.line, rate, rate_source, plan.batch_line, plan.steps_line, formats.line, device_name()
        ):
            screen.say(line)
        for line in data.report.lines():
            screen.say(line)
        for text in preview(data, tokenizer, cfg.dataset.preview):
            screen.say(text)
        if checkpoint is not None:
            screen.say(f"Resumes from {checkpoint}", style="cyan")

        # 4. Training writes facts.
        telemetry = probes = None
        if folder.leader and cfg.stability.telemetry:
            telemetry = stack.enter_context(contextlib.closing(JsonLines(folder.path / "telemetry.jsonl")))
            probes = stack.enter_context(contextlib.closing(JsonLines(folder.path / "probes.jsonl")))
        noise: dict[str, Any] = {}

        def before_training(trainer: Any) -> None:
            """The start model's loss on the rows to come, and how far the loss is expected to move."""
            base = compute_base_loss(cfg, plan, data, trainer, folder.path, screen.say, checkpoint is not None)
            trainer.instruments.base_of = base.of if base.rows else None
            noise.update(base.noise)
            trainer.decider.monitor.expect(base.noise)
            for line in (base.line(), trainer.decider.line()):
                if line:
                    screen.say(line)

        with Progress(screen, plan.total_steps) as progress:
            watch = Watch(progress, telemetry, probes)
            stop = StopCallback(request)
            trainer = build_trainer(
                cfg, plan, formats, rate, model, tokenizer, data, folder.path, watch.row, [watch, stop],
                on_probe=watch.probe, before_training=before_training,
            )  # fmt: skip
            pre.run("batch", rate=rate, trainable=trainable, trainer=trainer)
            pre.write()
            for line in short(pre):
                screen.say(line)
            if cfg.planted.fault != "none":
                from runner.lab.faults import plant, refuse_late

                refuse_late(cfg, plan.total_steps)
                screen.say(plant(cfg, trainer), style="yellow")
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            step = trainer.state.global_step
            stopped = request.signal_name is not None and step < plan.total_steps
            ended = stopped or trainer.guard.ends_run is not None
            evaluates = data.validation is not None and cfg.evaluation.eval_strategy != "no"
            if evaluates and not ended and watch.evaluated_at != step:
                trainer.evaluate()
            report = class_report(trainer, data) if data.labels and evaluates and not ended else None

        # 5. What it came to.
        request.graceful = False
        rows = read_telemetry(folder.path) if telemetry is not None else []
        facts: dict[str, Any] = {
            "name": cfg.name,
            "data": data.report.as_dict(),
            "trainable_parameters": trainable.trained,
            "total_parameters": trainable.total,
            "learning_rate": rate,
            "default_learning_rate": default_learning_rate(cfg, width),
            "noise": noise,
            "clip": {"method": cfg.clip.method, "max_grad_norm": cfg.clip.max_grad_norm},
            "optimizer": cfg.optim.name,
        }
        if report is not None:
            facts["classification"] = report
        if cfg.checkpoint.load_best_model_at_end and trainer.state.best_model_checkpoint is not None:
            facts["best"] = {
                "checkpoint": Path(trainer.state.best_model_checkpoint).name,
                "metric": cfg.checkpoint.metric_for_best_model,
                "value": trainer.state.best_metric,
            }
        summary = summarize(rows, trainer.state.log_history, facts)
        broken = non_finite_weights(trainer.model)
        signal_name = request.signal_name if stopped else None
        state, reason = judge(summary, signal_name, step, plan.total_steps, stop.saved, trainer.guard.ends_run, broken)
        # The others have no telemetry to judge by.
        state, reason = of_first_process((state, reason))
        if folder.leader:
            write_json(folder.path / "summary.json", summary)
            plot_loss(summary, folder.plots / "loss.png", f"{cfg.name}: {state}")
        if state != "stopped" and broken is None:
            save_final(trainer, folder)
        name = cfg.checkpoint.metric_for_best_model
        metric = summary["eval"].get(name, summary["train_loss"]["smoothed_last"])
        metric_name = name if name in summary["eval"] else "loss"
        outcome = Outcome(state, folder.path, metric)
        folder.end(state, reason, outcome.exit_code, steps=step, metric=metric, metric_name=metric_name)
        close(screen, summary, folder.path, state, reason, clip_phrase(cfg), next_command(state, folder.path))

        # 6. What the facts say about it.
        if folder.leader:
            conclude(folder.path, screen)
        return outcome


def save_final(trainer: Any, folder: RunFolder) -> None:
    """`model/`: the adapter or the model, its tokenizer, and beside an adapter the config that names the labels."""
    trainer.save_model(str(folder.model))
    if folder.leader and hasattr(trainer.model, "get_base_model"):
        trainer.model.get_base_model().config.save_pretrained(folder.model)


def judge(
    summary: dict[str, Any],
    signal_name: str | None,
    step: int,
    total_steps: int,
    saved: bool,
    guard: str | None = None,
    broken: str | None = None,
) -> tuple[str, str | None]:
    """(state, reason) of a run that left its training loop at `step` of `total_steps`.

    `guard` is the guard's reason to end it, `broken` the first parameter that is not finite.
    """
    last = summary["train_loss"]["last"]
    first = summary["counts"]["first_broken_step"]
    damage = f" {broken} is not finite: no model is saved." if broken else ""
    if guard is not None:
        since = "" if first is None else f"; the first came at step {first}"
        return "diverged", f"{guard} It ended at step {step} of {total_steps}{since}.{damage}"
    if not math.isfinite(float(summary["eval"].get("eval_loss", 0.0))):
        return "diverged", f"The held-out loss is {summary['eval']['eval_loss']} at step {step}.{damage}"
    lost = last is not None and not math.isfinite(last) and not summary["counts"]["last_step_skipped"]
    if broken is not None or lost:
        since = "" if first is None else f"; the first broken step was {first}"
        return "diverged", f"The loss is {last:.4f} at the end{since}.{damage}"
    if signal_name is not None:
        kept = f"checkpoint-{step} was saved" if saved else "no checkpoint could be saved"
        return "stopped", f"{signal_name} at step {step} of {total_steps}; {kept}."
    if step < total_steps:
        return "finished", f"Early stopping at step {step} of {total_steps}."
    return "finished", None
