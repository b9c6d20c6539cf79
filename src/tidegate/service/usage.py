"""What a process uses of the machine, as Linux tells it; elsewhere nothing is known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_TIMES = slice(11, 15)
"""In /proc/PID/stat after the name: time of the process and of children that have ended, as user and as system."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process and those that stem from it use.

    Attributes:
        memory_bytes: memory without files; what a fork still shares with its parent is counted for each.
        java_bytes: how much of that Java uses, which Spark limits (`spark.driver.memory`).
        cpu_s: processor time since it began.
    """

    memory_bytes: int
    java_bytes: int
    cpu_s: float


def usage_of(pid: int) -> Usage | None:
    """Return what a process uses; None if it is gone, or the system does not say.

    A job with a Spark master has a Java process and Python workers. They are what it uses as well.
    """
    found = _usage_of_one(pid)
    if found is None:
        return None
    for child in _children(pid):
        one = usage_of(child)
        if one is not None:
            found = Usage(
                found.memory_bytes + one.memory_bytes, found.java_bytes + one.java_bytes, found.cpu_s + one.cpu_s
            )
    return found


def _usage_of_one(pid: int) -> Usage | None:
    folder = Path(f"/proc/{pid}")
    try:
        _, resident, shared, *_ = (folder / "statm").read_text().split()
        name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    memory = (int(resident) - int(shared)) * _PAGE_BYTES
    cpu_ticks = sum(map(int, rest.split()[_TIMES]))
    return Usage(memory, memory if name == "java" else 0, cpu_ticks / _TICKS_PER_S)


def _children(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, by whichever of its threads."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            yield from map(int, path.read_text().split())
        except OSError:
            continue  # the thread has ended
