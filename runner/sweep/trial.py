"""One trial of a sweep: the task function of a multirun hands its config over and waits for a process of its own.

One process per trial, whatever the launcher: a trial that crashes, is killed, or leaks memory takes nothing with it.
A fork server that has imported torch and the trainers once starts each trial in hundredths of a second.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from runner.config.build import config_to_dict
from runner.config.schema import Config
from runner.sweep import callback
from runner.sweep.child import Job, main
from runner.sweep.record import metric_of, one_line, settle
from runner.training.environment import set_early

# Real submodules: the packages import theirs lazily, and a misspelt name is ignored in silence.
PRELOAD = ("torch", "transformers.trainer", "trl.trainer.sft_trainer", "peft")


class SweepInterrupted(KeyboardInterrupt):
    """The sweep was asked to end; the running trial has ended. `signum` is the signal that asked."""

    def __init__(self, signum: int):
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum


def run_trial(
    cfg: Config,
    folder: Path,
    *,
    target: str = "runner.run:run",
    preload: Sequence[str] = PRELOAD,
    grace: float = 30.0,
) -> float | None:
    """Run one trial in its own process and return its metric.

    Args:
        cfg: the trial's whole `Config`; its `output_dir` becomes `folder`.
        folder: the trial's run folder; made if missing. What the trial prints goes to its logs/rank_0.txt.
        target: `module:function` that runs a config; another one in tests.
        preload: modules the fork server imports before the first trial.
        grace: seconds a trial has for a checkpoint after this process died.

    Returns:
        The final metric (eval loss unless the config names another), None if the trial failed or has none. For a
        trial that diverged, or was ended because it was doomed, infinity on the bad side: its last metric stays in
        run.json, but a search must not take a loss that was about to explode for a good one.
        A failed trial raises nothing: its run.json says why.

    Raises:
        SweepInterrupted: on Ctrl-C or SIGTERM, after the running trial has saved and ended. A second one kills it.
    """
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    config = config_to_dict(cfg) | {"output_dir": str(folder)}
    (folder / "config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    if multiprocessing.get_start_method(allow_none=True) not in (None, *multiprocessing.get_all_start_methods()):
        # joblib's workers default to a method of their own, which a child takes over and does not know.
        multiprocessing.set_start_method("forkserver", force=True)
    set_early(cfg)  # the fork server imports the libraries, and its children can no longer choose
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["runner.sweep.own_session", *preload])
    job = Job(folder, target, dict(os.environ), _threads(), grace)
    process = context.Process(target=main, args=(job,), name=folder.name)
    started = time.monotonic()
    with _forwarding_signals(process) as received:
        process.start()
        if received:
            process.terminate()
        process.join()
    pid, code = process.pid or 0, process.exitcode or 0
    process.close()

    if received:
        record = settle(folder, pid, "stopped", "the sweep was interrupted", code)
    else:
        record = settle(folder, pid, "failed", _explain(code), code)
    _print_line(folder, record, time.monotonic() - started)
    if received:
        raise SweepInterrupted(received[0])
    if record["state"] == "diverged":
        return -math.inf if _greater_is_better(cfg) else math.inf
    return None if record["state"] == "failed" else metric_of(folder, record)[1]


def _greater_is_better(cfg: Config) -> bool:
    chosen = cfg.checkpoint.greater_is_better
    return not cfg.checkpoint.metric_for_best_model.endswith("loss") if chosen is None else chosen


@contextmanager
def _forwarding_signals(process: ForkServerProcess) -> Iterator[list[int]]:
    """While a trial runs, Ctrl-C and SIGTERM ask it to stop; yields the signals received."""
    received: list[int] = []

    def forward(signum: int, frame: object) -> None:
        received.append(signum)
        if process.pid is None:
            return
        if len(received) == 1:
            print("stopping the running trial; once more ends it at once", file=sys.stderr, flush=True)
            process.terminate()
        else:
            process.kill()

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _threads() -> int | None:
    """Threads torch uses, or would use, in this process; None when nothing here limits it."""
    if "torch" in sys.modules:
        return int(sys.modules["torch"].get_num_threads())
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdigit() and int(value) > 0 else None


def _explain(code: int) -> str:
    """Say in words how a process ended that left no record."""
    if code >= 0:
        return f"the process ended with exit code {code} and left no record; its last words are in logs/rank_0.txt"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"the process was killed by {name}{hint}; its last words are in logs/rank_0.txt"


def _print_line(folder: Path, record: dict[str, Any], seconds: float) -> None:
    name, value = metric_of(folder, record)
    parts = [callback.progress(), folder.name, str(record["state"])]
    if record["state"] == "failed":
        parts.append(one_line(record.get("reason")))
    else:
        steps = record.get("steps")
        parts += [f"{steps} steps"] if steps is not None else []
        parts += [f"{name} {value:.4g}"] if value is not None else []
    print("  ".join([*parts, f"{seconds:.1f} s"]), flush=True)
