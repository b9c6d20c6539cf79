"""What the service needs of the processes that run jobs, however they are started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
