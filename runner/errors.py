"""Errors a user can act on. They are printed without a traceback (HYDRA_FULL_ERROR=1 shows it)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path


class UserError(Exception):
    """Something the user set, passed or has on disk stops the run.

    The message names what was set, what it means, and what to set instead. `exit_code` is the process status. Where the
    mistake is a known cause, `finding` is its id in `runner.causes.catalogue`, and `where` the tensors, rows or keys.
    """

    exit_code = 2

    def __init__(self, message: str = "", *, finding: str | None = None, where: Sequence[str] = ()):
        super().__init__(message)
        self.finding = finding
        self.where = tuple(where)


class ConfigError(UserError):
    """One or many mistakes in the configuration, all found before anything ran.

    `problems` holds one sentence each; the message shows them all, numbered when there are several.
    """

    def __init__(self, problems: Sequence[str]):
        self.problems = list(problems)
        if len(self.problems) == 1:
            text = self.problems[0]
        else:
            numbered = "\n".join(f"  {i}. {p}" for i, p in enumerate(self.problems, 1))
            text = f"{len(self.problems)} problems in the configuration:\n{numbered}"
        super().__init__(text)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        """Pickled by its problems, not by its message, so that it survives a worker process."""
        return (ConfigError, (self.problems,))


class DataError(UserError):
    """A file or a row cannot be used; the message names the file, the line or row, and what it needs."""


def disk_full(error: BaseException, folder: Path) -> UserError | None:
    """A sentence for an error that means that the disk is full; None for any other error.

    torch and safetensors raise their own types with the system's words in them, so the text is looked at too.
    """
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    words = str(error).lower()
    if not full and "no space left on device" not in words and "disk quota exceeded" not in words:
        return None
    return UserError(
        f"the disk that holds {folder} is full. What was written stays; free space, or set output_dir to another disk, "
        "then go on with checkpoint.resume. checkpoint.save_total_limit=1 keeps fewer checkpoints."
    )
