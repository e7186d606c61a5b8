"""The reasons for which a row is dropped that are a known cause of failed runs, and that cause."""

from __future__ import annotations

NO_LOSS = "no token carries loss"
LEFT_OUT = "the chat template leaves out an answer"
NOT_LOCATED = "an answer cannot be located in what the chat template writes"
NO_LABEL = "no label"


def no_room(max_length: int) -> str:
    """The prompt fills the row, so the cut takes all of the answer."""
    return f"the prompt alone fills max_length={max_length}, no room for an answer"


def too_long(max_length: int) -> str:
    """The row is longer than allowed, and dataset.too_long=drop."""
    return f"longer than max_length={max_length}"


def known_causes(max_length: int) -> dict[str, str]:
    """{reason: id of its cause in `runner.causes.catalogue`}."""
    return {
        NO_LOSS: "labels.no_supervised_token",
        LEFT_OUT: "labels.no_generation_markers",
        NOT_LOCATED: "labels.no_generation_markers",
        NO_LABEL: "labels.ids_or_dtype",
        no_room(max_length): "labels.answer_truncated",
        too_long(max_length): "labels.answer_truncated",
    }
