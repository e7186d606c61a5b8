"""`batch`: how many rows one optimizer step sees, and in which order rows come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MEGA = 50
"""Batches of a block within which `length_grouped` sorts, as in transformers."""


@dataclass
class Batch:
    """global batch = per_device_train_batch_size x gradient_accumulation_steps x processes (printed in the header)."""

    per_device_train_batch_size: int = 4
    """Rows in one forward pass of one process."""

    gradient_accumulation_steps: int = 2
    """Forward passes per optimizer step. Loss and gradients do not depend on how a batch is split."""

    global_batch_size: int | None = None
    """Set this instead of the accumulation, which is then derived for any number of processes."""

    sampler: Literal["random", "stratified", "length_grouped"] = "random"
    """Order of rows, a function of seed and epoch. stratified = each batch holds every source in proportion;
    length_grouped = rows of similar length together (less padding)."""
