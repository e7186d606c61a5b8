"""The contract of a run folder: what files there are, how they are written and read. Needs no torch.

Every writer either appends one flushed line or replaces a whole file atomically, so a crash loses nothing that was
written. Every reader tolerates a truncated last line and unknown fields.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import platform
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from runner.config.compare import check_resumed
from runner.errors import UserError

SCHEMA = 1
FINAL = ("finished", "stopped", "diverged", "failed")
"""States of a run that has ended; a run that has not is `running`."""

LIBRARIES = ("torch", "transformers", "trl", "peft", "datasets", "accelerate", "hydra-core")


def to_json(value: Any) -> Any:
    """`value` with NaN and infinities replaced by the strings NaN, Infinity, -Infinity (valid JSON)."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    return value


def number(value: Any) -> float | None:
    """`value` as a float; the strings NaN and Infinity count, anything else that is no number is None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace `path` atomically: a reader sees the old content or the new one, never half of it."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(to_json(content), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in `path`, or None where the file is absent or torn."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return None
    return content if isinstance(content, dict) else None


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a jsonl file in order; lines that a crash cut short are passed over."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(row, dict):
                yield row


def read_telemetry(folder: Path) -> list[dict[str, Any]]:
    """One row per optimizer step, sorted by step. A step that was repeated after a resume counts once: its last row."""
    by_step = {row["step"]: row for row in read_rows(folder / "telemetry.jsonl") if isinstance(row.get("step"), int)}
    return [by_step[step] for step in sorted(by_step)]


def given_overrides(folder: Path) -> list[str]:
    """The overrides that the run in `folder` was started with, as Hydra recorded them; folder and resume left out."""
    import yaml

    path = folder / ".hydra" / "overrides.yaml"
    found = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
    return [str(o) for o in found or [] if str(o).partition("=")[0] not in ("output_dir", "checkpoint.resume")]


class RunFolder:
    """One run's folder, locked while the run writes to it.

    `path` is created if missing. Raises `UserError` where it cannot be written or another run holds it. Under several
    processes only the first one (`leader`) locks and writes.
    """

    def __init__(self, path: Path, leader: bool = True):
        self.path = path
        self.leader = leader
        self._lock: IO[str] | None = None
        self.model = path / "model"
        self.plots = path / "plots"
        self.previous: dict[str, Any] = {}
        """Settings with which the run was begun before, once `begin` has put the new ones in their place."""

        if not leader:
            return
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / ".lock").open("a")
        except OSError as error:
            raise UserError(
                f"output_dir={path} cannot be written ({error.strerror or error}). Set output_dir to a folder you may "
                "write to."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise UserError(
                f"output_dir={path} is in use by another run. Wait for it, or set another output_dir."
            ) from error

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()

    def refuse_used(self) -> None:
        """Raise `UserError` where another run has left its steps here: two runs in one folder cannot be told apart."""
        traces = [name for name in ("telemetry.jsonl", "summary.json", "model") if (self.path / name).exists()]
        if self.leader and traces:
            raise UserError(
                f"output_dir={self.path} already holds a run ({', '.join(traces)}). Set another output_dir, or go on "
                f"with that run: checkpoint.resume={self.path}"
            )

    def begin(self, seed: int, config: dict[str, Any]) -> None:
        """Write `run.json` with state running, the versions, git commit, host, seed, start and the config's hash."""
        if not self.leader:
            return
        before = read_json(self.path / "run.json") or {}
        self.previous = read_json(self.path / "config.json") or {}
        run = {
            "schema": SCHEMA,
            "state": "running",
            "reason": None,
            "versions": versions(),
            "git_commit": git_commit(),
            "host": socket.gethostname(),
            "platform": platform.platform(),
            "seed": seed,
            "start": before.get("start") or now(),
            "resumed": [*before.get("resumed", []), now()] if before else [],
            "end": None,
            "pid": os.getpid(),
            "exit_code": None,
            "steps": before.get("steps"),
            "metric": None,
            "metric_name": None,
            "config_hash": config_hash(config),
        }
        write_json(self.path / "run.json", run)
        write_json(self.path / "config.json", config)

    def end(self, state: str, reason: str | None, exit_code: int, **facts: Any) -> None:
        """Write the final state and `facts` (steps, metric, metric_name) into `run.json`."""
        if not self.leader:
            return
        run = read_json(self.path / "run.json") or {"schema": SCHEMA}
        run.update(state=state, reason=reason, exit_code=exit_code, end=now(), **facts)
        write_json(self.path / "run.json", run)


class JsonLines:
    """Appends rows to a jsonl file, one flushed line each. A line that a crash cut short is terminated first."""

    def __init__(self, path: Path):
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self._file = path.open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")
            self._file.flush()

    def append(self, row: dict[str, Any]) -> None:
        """Write `row` as one line and flush it."""
        self._file.write(json.dumps(to_json(row), ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def config_hash(config: dict[str, Any]) -> str:
    """12 hex digits, equal for two configs that train alike: folder, resume and allowed findings are left out."""
    kept = {k: v for k, v in config.items() if k not in ("output_dir", "checks")}
    kept["checkpoint"] = {k: v for k, v in dict(kept.get("checkpoint", {})).items() if k != "resume"}
    text = json.dumps(to_json(kept), sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest `checkpoints/checkpoint-N` whose `trainer_state.json` parses; that file is written last."""
    found = []
    for path in (folder / "checkpoints").glob("checkpoint-*"):
        step = path.name.removeprefix("checkpoint-")
        if step.isdigit() and read_json(path / "trainer_state.json") is not None:
            found.append((int(step), path))
    return max(found)[1] if found else None


def resolve_resume(resume: str, output_root: Path, config: dict[str, Any]) -> tuple[Path, Path] | None:
    """The (run folder, checkpoint) that `checkpoint.resume=resume` means; None where auto finds nothing to resume.

    Touches nothing. `output_root` is the folder that holds the runs of this name (outputs/<name>). auto = the newest
    run in it that is not finished, has the same config and a usable checkpoint. Raises `UserError` for a folder without
    checkpoints and for a run that has finished, `ConfigError` where the checkpoint does not fit `config`.
    """
    if resume != "auto":
        path = Path(resume)
        if path.name.startswith("checkpoint-"):
            if read_json(path / "trainer_state.json") is None:
                raise UserError(f"checkpoint.resume={resume}: there is no readable trainer_state.json in it.")
            folder = path.parent.parent if path.parent.name == "checkpoints" else path.parent
            changes_since(folder, config)
            return folder.resolve(), path.resolve()
        checkpoint = newest_checkpoint(path)
        if checkpoint is None:
            raise UserError(
                f"checkpoint.resume={resume}: no usable checkpoint in {path / 'checkpoints'}. Name a run folder that "
                "has one, or leave resume out to start anew."
            )
        changes = changes_since(path, config)
        run = read_json(path / "run.json") or {}
        if run.get("state") == "finished" and not any(c.startswith("schedule.") for c in changes):
            raise UserError(
                f"checkpoint.resume={resume}: that run has finished, at step {run.get('steps')}. To train on, raise "
                "schedule.max_steps or schedule.num_train_epochs."
            )
        return path.resolve(), checkpoint.resolve()
    wanted = config_hash(config)
    for folder in sorted(
        (p for p in output_root.glob("*") if p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True
    ):
        run = read_json(folder / "run.json") or {}
        checkpoint = newest_checkpoint(folder)
        if run.get("state") != "finished" and run.get("config_hash") == wanted and checkpoint is not None:
            return folder.resolve(), checkpoint.resolve()
    return None


def changes_since(folder: Path, config: dict[str, Any]) -> list[str]:
    """Settings that differ from the config the run in `folder` began with, as sentences; `ConfigError` where the
    checkpoint does not fit. [] for a folder that says nothing about its config."""
    before = read_json(folder / "config.json")
    return [] if before is None else check_resumed(before, json.loads(json.dumps(to_json(config))), str(folder))


def now() -> str:
    """Local time in ISO form with its offset, to the second."""
    return datetime.now(UTC).astimezone().isoformat(timespec="seconds")


def versions() -> dict[str, str | None]:
    """Installed versions of python and of the libraries that decide a run's numbers."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def git_commit() -> str | None:
    """Commit of the working folder, with -dirty for uncommitted changes; None outside a repository."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
