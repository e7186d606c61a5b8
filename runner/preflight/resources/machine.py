"""What this machine has left: memory of the device a run computes on, as the system tells it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

CGROUPS = Path("/sys/fs/cgroup")


def device_free(device: torch.device, held: int) -> int:
    """Bytes that a run may use on `device`, `held` of which it uses already (its weights).

    On a GPU: what the driver calls free, and what torch has reserved in this process. On a CPU: what the system could
    give without swapping, or what is left to the process's control group (a container's limit) where that is less.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device))
    return host_free() + held


def host_free(
    meminfo: Path = Path("/proc/meminfo"), groups: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")
) -> int:
    """Bytes of host memory that this process can still get. Without /proc (macOS): all that the machine has."""
    if not meminfo.exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = meminfo.read_text(encoding="utf-8")
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.M) or re.search(r"^MemFree:\s+(\d+) kB", text, re.M)
    if found is None:
        raise ValueError(f"{meminfo} says neither MemAvailable nor MemFree")
    return min([int(found[1]) * 1024, *group_free(groups, own)])


VERSIONS = (
    ("", "", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Of control groups, 2 and 1: controller named in /proc/self/cgroup, its folder, and three names: limit, use, and the
file pages in it that would be given back."""


def group_free(groups: Path, own: Path) -> list[int]:
    """Bytes left under each memory limit that holds for this process: of its own control group and of all above."""
    lines = own.read_text(encoding="utf-8").splitlines() if own.exists() else []
    left = []
    for controller, room, most, used, idle in VERSIONS:
        top = groups / room if room else groups
        paths = [path for _, names, path in (x.split(":", 2) for x in lines) if controller in names.split(",")]
        # In a container the path is often the host's, and its own group is what it sees at the top.
        folders = [
            top,
            *(f for p in paths for f in (top / p.strip("/"), *(top / p.strip("/")).parents) if top in f.parents),
        ]
        for folder in dict.fromkeys(folders):
            limit, now = _number(folder / most), _number(folder / used)
            if limit is None or now is None:
                continue
            stat = folder / "memory.stat"
            known = dict(x.split() for x in stat.read_text(encoding="utf-8").splitlines()) if stat.exists() else {}
            left.append(max(limit - now + int(known.get(idle, 0)), 0))
    return left


def _number(path: Path) -> int | None:
    """The number in a file; None where the file is absent or says max."""
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8").strip()
    return int(text) if text.isdigit() else None
