"""What a run shows: on the terminal, and the same text in `console.log`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text


class Terminal(Console):
    """A console that falls silent when its reader goes away (`python -m runner | head`); the run goes on."""

    def on_broken_pipe(self) -> None:
        """Rich would end the process here."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Screen:
    """Prints to stdout and, without colour, to `console.log`. On other processes than the first it is silent."""

    def __init__(self, log: Path | None = None, quiet: bool = False):
        self.console = Terminal(file=sys.stdout, highlight=False, soft_wrap=True, quiet=quiet)
        self._file = log.open("a", encoding="utf-8") if log is not None and not quiet else None
        self._log = Console(file=self._file, width=120, highlight=False, soft_wrap=True) if self._file else None

    @property
    def interactive(self) -> bool:
        """True in a terminal, where a live line can be drawn."""
        return self.console.is_terminal

    def say(self, text: str | Text = "", style: str | None = None) -> None:
        """One line or block; plain strings are taken as they are (no markup)."""
        shown = Text(text, style=style or "") if isinstance(text, str) else text
        for console in (self.console, self._log):
            if console is not None:
                console.print(shown)

    def table(self, table: Any) -> None:
        """A rich table, on both."""
        for console in (self.console, self._log):
            if console is not None:
                console.print(table)

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._file.close()
