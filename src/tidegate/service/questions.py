"""Questions to the workbench (`tidegate.service.workbench`), whose process has limits of time and memory.

The process starts with the first question, answers one at a time, is replaced when it takes too long, and ends when
none came for a while. The modules of the workbench load the engine; this one does not.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from tidegate import outbound

SHORT_TIMEOUT_S = 30.0
IDLE_S = 600.0
MAX_WAITING = 20
MAX_ANSWER_BYTES = 32 << 20
"""Above what the workbench answers (its own `MAX_ANSWER_BYTES`): reading stops there whatever the process writes."""
_MODULE = "tidegate.service.workbench"


class ProblemKind(StrEnum):
    """Why a question has no answer."""

    COMPILER = "compiler"
    INPUT = "input"
    RUNTIME = "runtime"
    UNKNOWN = "unknown"
    TIMEOUT = "timeout"
    BUSY = "busy"


class Unanswered(Exception):
    """A question without an answer; the message says why. Where `passes`, another attempt may have one."""

    def __init__(self, kind: ProblemKind, message: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.passes = passes


def engine_is_installed() -> bool:
    """Return whether the extra `spark` is there, without loading it."""
    return all(importlib.util.find_spec(name) is not None for name in ("numpy", "pyarrow", "msgspec"))


class Workbench:
    """One process. Safe to call from any thread."""

    def __init__(self, timeout_s: float = SHORT_TIMEOUT_S, idle_s: float = IDLE_S, *, is_warmed: bool = False) -> None:
        """`is_warmed`: whether the process first loads what later questions would need."""
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._options = () if is_warmed else ("--once",)
        self._lock = threading.Lock()
        self._waiting = threading.Semaphore(MAX_WAITING)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_abandoned = False
        self._idle: threading.Timer | None = None

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer. Raises Unanswered."""
        if not self._waiting.acquire(blocking=False):
            raise Unanswered(ProblemKind.BUSY, "too many questions are waiting; try again in a moment", passes=True)
        try:
            with self._lock:
                return self._exchange(json.dumps(question, default=str).encode("utf-8", "replace") + b"\n")
        finally:
            self._waiting.release()

    @property
    def pid(self) -> int | None:
        """The number of its process; None if there is none."""
        return None if self._process is None else self._process.pid

    def interrupt(self) -> None:
        """Kill the process: nobody waits for the answer that it is working on. The next question starts another."""
        self._is_abandoned = True
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process, and wait until it has ended."""
        self.interrupt()
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if self._idle is not None:
            self._idle.cancel()
        if process is not None:
            process.kill()
            process.communicate()

    def _exchange(self, line: bytes) -> dict[str, Any]:
        if self._idle is not None:
            self._idle.cancel()
        self._is_abandoned = False
        is_new = self._process is None or self._process.poll() is not None
        if self._process is None or is_new:
            self._end()
            self._process = self._started()
        process, is_late = self._process, threading.Event()

        def give_up() -> None:
            is_late.set()
            process.kill()

        watch = threading.Timer(self._timeout_s, give_up)
        watch.daemon = True
        watch.start()
        try:
            answer = _answer_of(process, line)
        finally:
            watch.cancel()
        if not answer.endswith(b"\n"):
            self._end()
            if is_late.is_set():
                said = f"this took longer than {self._timeout_s:g} s: ask about fewer events or a shorter query"
                raise Unanswered(ProblemKind.TIMEOUT, said, passes=True)
            if not is_new and not self._is_abandoned:
                # It may have been killed for the question before, whose asker left just as the answer came.
                return self._exchange(line)
            raise Unanswered(ProblemKind.UNKNOWN, "the process for questions ended; try again", passes=True)
        self._idle = threading.Timer(self._idle_s, self._rest)
        self._idle.daemon = True
        self._idle.start()
        answered: dict[str, Any] = json.loads(answer)
        if "problem" in answered:
            raise Unanswered(ProblemKind(answered["kind"]), answered["problem"])
        found: dict[str, Any] = answered["answer"]
        return found

    def _rest(self) -> None:
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        """Start the process, which ends when its standard input does."""
        return subprocess.Popen(
            [sys.executable, "-m", _MODULE, *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **outbound.current().environment, "OMP_NUM_THREADS": "1"},
        )


def _answer_of(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Return the line that a process answers, or what it wrote of one before it ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(line)
        process.stdin.flush()
    except OSError:
        return b""
    return process.stdout.readline(MAX_ANSWER_BYTES)
