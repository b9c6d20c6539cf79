"""The workbench's process, asked by pages: in threads, as the hub's event loop waits for nobody."""

from __future__ import annotations

import asyncio
from typing import Any

from tidegate.hub.errors import ArgumentError, HubError, ServerBusy
from tidegate.service.questions import (
    IDLE_S,
    MAX_WAITING,
    SHORT_TIMEOUT_S,
    Unanswered,
    Workbench,
    engine_is_installed,
)


class EngineMissing(HubError):
    """The packages that queries need are not installed."""

    http_status = 501


class WorkbenchClient:
    """One process. It ends when nothing was asked for a while, and with the hub."""

    def __init__(self, timeout_s: float = SHORT_TIMEOUT_S, idle_s: float = IDLE_S) -> None:
        self._workbench = Workbench(timeout_s, idle_s, is_warmed=True)
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def ask(self, ask: str, **question: Any) -> Any:
        """Return the answer to a question of the workbench.

        Raises:
            ArgumentError: the question has no answer; the message says why.
            ServerBusy: it took too long, or too many others wait.
            EngineMissing: the engine is not installed.
        """
        if not engine_is_installed():
            raise EngineMissing('queries need the engine: pip install "tidegate[spark]"')
        if self._waiting >= MAX_WAITING:
            raise ServerBusy("too many questions are waiting; try again in a moment")
        self._waiting += 1
        try:
            async with self._lock:  # so that one thread waits, and not as many as there are questions
                return await self._answer({"ask": ask, **question})
        except Unanswered as error:
            raise (ServerBusy if error.passes else ArgumentError)(str(error)) from None
        finally:
            self._waiting -= 1

    async def _answer(self, question: dict[str, Any]) -> Any:
        try:
            return await asyncio.to_thread(self._workbench.ask, question)
        except asyncio.CancelledError:  # the visitor has left
            self._workbench.interrupt()
            raise

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._workbench.pid is not None

    async def close(self) -> None:
        """End the process, and wait until it has ended."""
        await asyncio.to_thread(self._workbench.close)
