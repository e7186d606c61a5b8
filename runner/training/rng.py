"""The state of every random number generator that a forward pass may draw from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

RngState = dict[str, Any]
"""Opaque; `torch.save` can write it."""


def capture() -> RngState:
    """States of Python, numpy, torch on the CPU, and torch on this process's GPU where there is one."""
    state: RngState = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        # The generator lives on the host: reading it does not wait for the device.
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: RngState) -> None:
    """Set every generator to `state`; one that this machine lacks is left out."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextmanager
def untouched() -> Iterator[None]:
    """Whatever is drawn inside, afterwards every generator is as it was before."""
    before = capture()
    try:
        yield
    finally:
        restore(before)
