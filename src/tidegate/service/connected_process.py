"""What every launcher does with a process: it understands what the process says, and what its exit means."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tidegate.service import channel
from tidegate.service.processes import LaunchOrder, ProcessEvents
from tidegate.service.supervision import Exit, ExitKind


class Conversation(Protocol):
    """What to do with what a process says."""

    def received(self, message: dict[str, Any]) -> None:
        """Take a message."""

    def launched(self, pid: int) -> None:
        """Note that the process exists."""

    def ended(self, status: int | None) -> None:
        """Note that it has ended; nothing follows.

        Args:
            status: its exit code, negative for a signal; None: unknown.
        """


class JobConversation:
    """The conversation with a process that runs a job."""

    def __init__(self, events: ProcessEvents) -> None:
        self._events = events
        self._end: Exit | None = None

    def received(self, message: dict[str, Any]) -> None:
        ((kind, content),) = message.items()
        if kind == channel.BEGUN:
            self._events.begun()
        elif kind == channel.READY:
            self._events.ready()
        elif kind == channel.TROUBLE:
            self._events.trouble(content)
        elif kind == channel.MEASURED:
            self._events.measured(content)
        elif kind == channel.SPARK and content == channel.ATTACH:
            self._events.spark_wanted()
        elif kind == channel.SPARK and content == channel.RELEASE:
            self._events.spark_released()
        elif kind == channel.ENDED:
            self._end = Exit(ExitKind[content["kind"]], content["message"])
        else:
            raise ValueError(f"a process of a job said {kind!r}, which nothing here understands")

    def launched(self, pid: int) -> None:
        self._events.launched(pid)

    def ended(self, status: int | None) -> None:
        self._events.ended(self._end or Exit(ExitKind.CRASHED, f"its process {_how(status)}"))


class CheckConversation:
    """The conversation with a process that checks a definition."""

    def __init__(self, done: Callable[[Sequence[str]], None]) -> None:
        self._done = done
        self._problems: list[str] | None = None

    def received(self, message: dict[str, Any]) -> None:
        self._problems = message[channel.PROBLEMS]

    def launched(self, pid: int) -> None:
        """See ``Conversation.launched``."""

    def ended(self, status: int | None) -> None:
        self._done([f"the check's process {_how(status)}"] if self._problems is None else self._problems)


def order_line(order: LaunchOrder) -> bytes:
    """Return the first line to a process that is to run a job."""
    return channel.line_of(
        {
            channel.ORDER: {
                "name": order.name,
                "folder": str(order.folder),
                "content": order.content,
                "start": order.start,
                "start_asked": order.start_asked,
                "memory_bytes": order.memory_bytes,
                "nice": order.nice,
                "max_events_per_step": order.max_events_per_step,
                "parallelism": order.parallelism,
                "traces": order.traces,
            }
        }
    )


def _how(status: int | None) -> str:
    if status is None:
        return "ended without a word"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit code {status}"
