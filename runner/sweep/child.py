"""Inside a trial's process: read the config, run it, and leave a record whatever happens."""

from __future__ import annotations

import faulthandler
import importlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from runner.config.build import config_from_dict
from runner.errors import UserError
from runner.sweep.record import settle


@dataclass
class Job:
    """What a trial's process is told; the config itself lies in `folder`/config.json."""

    folder: Path
    """Run folder of the trial."""

    target: str = "runner.run:run"
    """`module:function` to call with the config."""

    environ: dict[str, str] = field(default_factory=dict)
    """Environment of the parent now; the fork server still has that of its own start."""

    threads: int | None = None
    """Threads torch may use; None leaves torch's choice."""

    grace: float = 30.0
    """Seconds from the parent's death to a hard kill, time for a checkpoint."""


def main(job: Job) -> None:
    """Run one trial and leave the process with its exit status. Never returns."""
    # Ctrl-C in a terminal goes to the whole process group: a session of its own leaves passing it on, once, to the
    # parent.
    os.setsid()
    _redirect(job.folder / "logs" / "rank_0.txt")
    os.environ.clear()
    os.environ.update(job.environ)
    threading.Thread(target=_stop_with_parent, args=(job.grace,), name="parent-watch", daemon=True).start()
    _limit_threads(job.threads)
    sys.exit(_run(job))


def _run(job: Job) -> int:
    state, reason, code = "failed", "", 1
    try:
        config = config_from_dict(json.loads((job.folder / "config.json").read_text(encoding="utf-8")))
        module, _, name = job.target.partition(":")
        outcome = getattr(importlib.import_module(module), name)(config, dropped=[])
        state, reason, code = outcome.state, "the run left no record", outcome.exit_code
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        reason, code = str(error), error.exit_code
    except KeyboardInterrupt:
        state, reason, code = "stopped", "stopped before anything could be saved", 130
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
    settle(job.folder, os.getpid(), state, reason, code)
    return code


def _redirect(path: Path) -> None:
    # The file descriptors, not sys.stdout: what C++ prints before it aborts is the only clue then.
    path.parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    faulthandler.enable(sys.stderr)


def _limit_threads(threads: int | None) -> None:
    if threads is None:
        return
    # Too late for the preloaded torch, in time for whatever loads its own OpenMP later.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def _stop_with_parent(grace: float) -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    print(f"the sweep's process is gone: stopping, at most {grace:g} s for a checkpoint", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os.kill(os.getpid(), signal.SIGKILL)
