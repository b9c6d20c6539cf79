"""A launcher without processes: a test says what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.service.processes import LaunchOrder, ProcessEvents
from tidegate.service.supervision import Exit, ExitKind


class FakeProcess:
    """A process that does what the test tells it."""

    def __init__(self, order: LaunchOrder, events: ProcessEvents) -> None:
        self.order = order
        self.events = events
        self.asked = False
        self.killed = False
        self.spark: list[Mapping[str, Any]] = []
        self.obedient = True

    def ask_to_stop(self) -> None:
        self.asked = True
        if self.obedient:
            self.events.ended(Exit(ExitKind.ASKED, ""))

    def answer_spark(self, answer: Mapping[str, Any]) -> None:
        self.spark.append(answer)

    def kill(self) -> None:
        self.killed = True
        self.events.ended(Exit(ExitKind.CRASHED, "its process was ended by SIGKILL"))

    def run(self, pid: int = 4711) -> None:
        """Begin, and take a step."""
        self.events.launched(pid)
        self.events.begun()
        self.events.ready()


class FakeLauncher:
    """Keeps the processes that it was asked for; a definition whose query is "wrong" has a problem."""

    def __init__(self) -> None:
        self.processes: list[FakeProcess] = []
        self.closed = False

    @property
    def last(self) -> FakeProcess:
        return self.processes[-1]

    def launch(self, order: LaunchOrder, events: ProcessEvents) -> FakeProcess:
        self.processes.append(FakeProcess(order, events))
        return self.last

    def check(self, content: Mapping[str, Any], done: Callable[[Sequence[str]], None]) -> None:
        done(["line 1: that is wrong"] if content.get("query") == "wrong" else [])

    def close(self) -> None:
        self.closed = True
