"""Errors a user can act on. They are printed without a traceback (HYDRA_FULL_ERROR=1 shows it)."""

from __future__ import annotations

from collections.abc import Sequence


class UserError(Exception):
    """Something the user set, passed or has on disk stops the run.

    The message names what was set, what it means, and what to set instead. `exit_code` is the process status.
    """

    exit_code = 2


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


class DataError(UserError):
    """A file or a row cannot be used; the message names the file, the line or row, and what it needs."""


class Stopped(Exception):
    """The run was asked to stop (Ctrl-C, SIGTERM) before anything could be checkpointed."""
