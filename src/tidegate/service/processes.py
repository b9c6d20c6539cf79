"""What the service needs of the processes that run jobs, however they are started."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tidegate.service.supervision import Exit


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """What a process is to do.

    Attributes:
        name: the job's.
        folder: the job's own folder: its log is written there.
        content: a complete job file, with secrets. It goes to the process through a pipe, never by its arguments or
            environment, which other programs may read.
        start: the output start time to begin at, as text; None resumes from the journal.
        start_asked: when that was asked for, as text: a process that comes after another does not begin there again.
        memory_bytes: how much memory of its own the process may use.
        nice: how much it yields the processor to the hub.
        max_events_per_step, parallelism, traces: see `ServiceSettings`.
    """

    name: str
    folder: Path
    content: Mapping[str, Any]
    start: str | None
    start_asked: str | None
    memory_bytes: int
    nice: int
    max_events_per_step: int | None
    parallelism: int
    traces: str | None


class ProcessEvents(Protocol):
    """What a process reports. The methods are called in one thread, the launcher's."""

    def launched(self, pid: int) -> None:
        """Its process exists."""

    def begun(self) -> None:
        """The job is open: its output start time is in the journal."""

    def ready(self) -> None:
        """It has taken a step, or what it waited for is back."""

    def trouble(self, reason: str) -> None:
        """It waits for something."""

    def measured(self, metrics: Mapping[str, Any]) -> None:
        """Its metrics, about once a second."""

    def spark_wanted(self) -> None:
        """It needs the Spark that jobs share, and waits for its address."""

    def spark_released(self) -> None:
        """It uses the shared Spark no longer."""

    def ended(self, end: Exit) -> None:
        """Its process has ended; nothing follows."""


class Process(Protocol):
    """A process that was launched."""

    def ask_to_stop(self) -> None:
        """Ask it to stop after the step it is in."""

    def answer_spark(self, answer: Mapping[str, Any]) -> None:
        """Answer its request for the shared Spark, see `tidegate.service.channel`."""

    def kill(self) -> None:
        """End it at once."""


class Launcher(Protocol):
    """Starts processes."""

    def launch(self, order: LaunchOrder, events: ProcessEvents) -> Process:
        """Start a process; return soon. Everything else is reported to `events`."""

    def check(self, content: Mapping[str, Any], done: Callable[[Sequence[str]], None]) -> None:
        """Check a job file, and call `done` with what is wrong with it."""

    def close(self) -> None:
        """Kill the processes that are left, and wait for their end."""


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
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return  # the process has ended
    for thread in threads:
        try:
            children = Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
        except OSError:
            continue  # the thread has ended
        yield from map(int, children)
