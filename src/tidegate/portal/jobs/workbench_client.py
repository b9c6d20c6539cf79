"""The workbench's process, from the hub's side: started when it is needed, asked one question at a time, and replaced
when it takes too long.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from tidegate.hub.errors import ArgumentError, HubError, ServerBusy

_logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0
IDLE_S = 600.0
MAX_WAITING = 20
_LINE_BYTES = 32 << 20
_MODULE = "tidegate.service.workbench"


class EngineMissing(HubError):
    """The packages that queries need are not installed."""

    http_status = 501


def engine_is_installed() -> bool:
    """Return whether the extra `spark` is there, without loading it."""
    return all(importlib.util.find_spec(name) is not None for name in ("numpy", "pyarrow", "msgspec"))


class WorkbenchClient:
    """One process. It ends when nothing was asked for a while, and with the hub."""

    def __init__(self, timeout_s: float = TIMEOUT_S, idle_s: float = IDLE_S) -> None:
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None

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
            async with self._lock:
                answer = await self._exchange({"ask": ask, **question})
        finally:
            self._waiting -= 1
        if "problem" in answer:
            raise ArgumentError(answer["problem"])
        return answer["answer"]

    async def _exchange(self, question: Mapping[str, Any]) -> dict[str, Any]:
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        try:
            async with asyncio.timeout(self._timeout_s):
                process.stdin.write(json.dumps(question, default=str).encode("utf-8", "replace") + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            raise ServerBusy(f"this took longer than {self._timeout_s:g} s: ask about fewer events") from None
        except (BrokenPipeError, ConnectionResetError, ValueError):
            line = b""
        finally:
            if not line.endswith(
                b"\n"
            ):  # also where the visitor has left: the answer would be taken for the next one's
                self.end()
        if not line:
            raise ServerBusy("the process for questions ended; try again")
        self._rest()
        found: dict[str, Any] = json.loads(line)
        return found

    async def _running(self) -> asyncio.subprocess.Process:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._process is None or self._process.returncode is not None:
            # An address space of its own; it ends when its standard input does.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _MODULE,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        return self._process

    def _rest(self) -> None:
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self.end)

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    async def close(self) -> None:
        """End the process, and wait until it has ended."""
        process = self._process
        self.end()
        if process is not None:
            await process.wait()

    def end(self) -> None:
        """End the process; the next question starts another."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
