"""How much a C library's heap takes beyond what lives in it: glibc's malloc, played on the events of a traced pass.

Tensors up to 32 MiB come from one heap (larger ones are mapped, and given back at once). torch asks for aligned memory,
which leaves a remainder of up to 96 bytes at each; where a small object of autograd settles in one, the room beside it
is 96 bytes too short for the next tensor of the same size, and that one goes to the top of the heap. Measured on
SmolLM2-135M, batches of 2 x 128 to 4 x 256: the peak of a process was 3 % (classification, full) to 60 %
(classification, LoRA) above the tensors alive; with every tensor mapped (MALLOC_MMAP_THRESHOLD_=131072) 1 %.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

Event = tuple[int, int]
"""(number of a storage, its bytes), or (number, -1) where it is freed."""

MAPPED = 32 * 2**20
"""Bytes from which glibc maps a block by itself: its threshold has risen to this limit after the first large frees."""

REMAINDER = 96
SETTLED = 6
"""Of so many freed tensors, the remainder of one is settled in. Fitted: so, 15 measured runs are within 14 %."""

PASSES = 2
"""The second pass finds the holes of the first; later ones fit into them."""


class Heap:
    """Best fit, free neighbours joined, top trimmed: what matters of glibc's malloc for blocks of many kilobytes."""

    def __init__(self) -> None:
        self.top = self.mapped = self.peak = self.released = 0
        self.holes: list[tuple[int, int]] = []
        """(bytes, start), ascending."""

        self.size_at: dict[int, int] = {}
        self.start_before: dict[int, int] = {}
        self.used: dict[object, tuple[int | None, int]] = {}

    def take(self, name: object, size: int) -> None:
        """Allocate."""
        wanted = (size + 16 + REMAINDER + 15) & ~15
        if wanted >= MAPPED:
            self.mapped += wanted
            self.used[name] = (None, wanted)
        else:
            i = bisect_left(self.holes, (wanted, -1))
            if i < len(self.holes):
                found, start = self.holes[i]
                self._fill(start)
                if found > wanted:
                    self._open(start + wanted, found - wanted)
            else:
                start = self.start_before.get(self.top, self.top)
                if start != self.top:
                    self._fill(start)
                self.top = start + wanted
            self.used[name] = (start, wanted)
        self.peak = max(self.peak, self.top + self.mapped)

    def give(self, name: object) -> None:
        """Free."""
        start, size = self.used.pop(name)
        if start is None:
            self.mapped -= size
            return
        self.released += 1
        if self.released % SETTLED == 0:
            size -= REMAINDER
        if start + size in self.size_at:
            size += self._fill(start + size)
        if start in self.start_before:
            before = self.start_before[start]
            size += self._fill(before)
            start = before
        if start + size == self.top and size > 2 * MAPPED:
            self.top = start
        else:
            self._open(start, size)

    def _open(self, start: int, size: int) -> None:
        insort(self.holes, (size, start))
        self.size_at[start] = size
        self.start_before[start + size] = start

    def _fill(self, start: int) -> int:
        size = self.size_at.pop(start)
        del self.start_before[start + size]
        del self.holes[bisect_left(self.holes, (size, start))]
        return size


def heap_peak(events: Sequence[Event]) -> int:
    """The most that a heap takes while the events of one pass happen again and again; what is left goes in between."""
    heap = Heap()
    for turn in range(PASSES):
        for number, size in events:
            if size >= 0:
                heap.take((turn, number), size)
            else:
                heap.give((turn, number))
        for name in list(heap.used):
            heap.give(name)
    return heap.peak
