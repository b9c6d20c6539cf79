"""What a process uses of the machine, as Linux tells it; elsewhere nothing is known."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_USER_TIME, _SYSTEM_TIME = 11, 12  # in /proc/PID/stat, counted after the name


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process uses.

    Attributes:
        memory_bytes: memory without files; what a fork still shares with its parent is counted.
        cpu_s: processor time since it began.
    """

    memory_bytes: int
    cpu_s: float


def usage_of(pid: int) -> Usage | None:
    """Return what a process uses; None if it is gone, or the system does not say."""
    folder = Path(f"/proc/{pid}")
    try:
        _, resident, shared, *_ = (folder / "statm").read_text().split()
        times = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    cpu_ticks = int(times[_USER_TIME]) + int(times[_SYSTEM_TIME])
    return Usage((int(resident) - int(shared)) * _PAGE_BYTES, cpu_ticks / _TICKS_PER_S)
