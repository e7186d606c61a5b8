"""`stability.guard`: the decision about a step whose loss or gradient is not finite. Pure; the trainer obeys."""

from __future__ import annotations

from typing import Any

from runner.config.schema import Guard

Verdict = str
"""take (as any step), skip (no update, the schedule waits)."""


class NonFiniteGuard:
    """Counts non-finite steps in a row and says what becomes of each. `state` and `load` carry it through a checkpoint.

    An fp16 step whose scaled gradient overflowed while its loss was finite is the loss scale's search, which skips it
    itself: it neither counts nor ends a row of bad steps.
    """

    def __init__(self, guard: Guard):
        self.guard = guard
        self.consecutive = 0

    def judge(self, loss_finite: bool, gradient_finite: bool, loss_scaled: bool) -> Verdict:
        """What to do with the step, before the optimizer sees it."""
        if loss_scaled and loss_finite and not gradient_finite:
            return "take"
        if loss_finite and gradient_finite:
            self.consecutive = 0
            return "take"
        self.consecutive += 1
        return "skip" if self.guard.on_nonfinite in ("skip", "stop") else "take"

    @property
    def ends_run(self) -> str | None:
        """Why the run has to end now; None while it may go on."""
        kind, most = self.guard.on_nonfinite, self.guard.max_consecutive
        if kind == "ignore" or self.consecutive == 0:
            return None
        if kind == "stop":
            return "stability.guard.on_nonfinite=stop: the loss or gradient of this step is not finite."
        if self.consecutive >= most:
            return f"stability.guard: {self.consecutive} steps in a row with a loss or gradient that is not finite."
        return None

    def state(self) -> dict[str, Any]:
        """What a resumed run has to know."""
        return {"consecutive": self.consecutive}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.consecutive = int(state["consecutive"])
