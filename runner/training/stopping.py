"""Ctrl-C and SIGTERM: finish the step, save a checkpoint, end as `stopped`."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from transformers import TrainerCallback


class StopRequest:
    """Listens for SIGINT and SIGTERM while it is entered as a context.

    Before `graceful` is set a signal interrupts at once (there is nothing to save yet); afterwards the first one only
    sets `signal_name`, and a second one interrupts. Outside the main thread it listens to nothing.
    """

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self.graceful = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[number] = signal.signal(number, self._receive)
            except ValueError:
                break  # not the main thread: the launcher that owns it handles signals
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        repeated = self.signal_name is not None
        self.signal_name = signal.Signals(number).name
        if repeated or not self.graceful:
            raise KeyboardInterrupt(self.signal_name)


class StopCallback(TrainerCallback):
    """Turns a request into Trainer's own flags: save now, stop, and neither evaluate nor save again."""

    def __init__(self, request: StopRequest):
        self.request = request
        self.saved = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """From here on a checkpoint can be written."""
        self.request.graceful = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Between two steps everything is consistent."""
        if self.request.signal_name is not None:
            control.should_save = True
            control.should_evaluate = False
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember that the stop has its checkpoint."""
        self.saved = self.request.signal_name is not None

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A stop in the middle of an epoch is no end of an epoch."""
        if self.request.signal_name is not None:
            control.should_evaluate = False
            control.should_save = not self.saved
