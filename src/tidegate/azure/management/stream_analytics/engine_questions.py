"""Questions to the engine, in a process of its own with limits of time and memory: see `tidegate.service.workbench`.

A test has a process to itself, which ends with its answer. Short questions, such as whether a query compiles, share one
that stays for a while.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from tidegate import outbound
from tidegate.azure.management.access.requests import ArmError

TIMEOUT_S = 120.0
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


class NoAnswer(ArmError):
    """A question that the engine could not answer; the message says why."""

    def __init__(self, kind: ProblemKind, message: str) -> None:
        super().__init__(400, f"{kind.value.capitalize()}Error", message)
        self.kind = kind


class Engine:
    """A process that answers one question at a time. It starts with the first, and ends when none came for a while."""

    def __init__(self, timeout_s: float = SHORT_TIMEOUT_S, idle_s: float = IDLE_S) -> None:
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._waiting = threading.Semaphore(MAX_WAITING)
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: threading.Timer | None = None

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the engine's answer. Raises NoAnswer, and ArmError if too many others wait."""
        if not self._waiting.acquire(blocking=False):
            raise ArmError(429, "TooManyRequests", "too many questions are waiting", headers={"Retry-After": "5"})
        try:
            with self._lock:
                return self._exchange(json.dumps(question, default=str).encode("utf-8", "replace") + b"\n")
        finally:
            self._waiting.release()

    @property
    def pid(self) -> int | None:
        """The number of its process; None if there is none."""
        return None if self._process is None else self._process.pid

    def end(self) -> None:
        """End the process; the next question starts another."""
        process, self._process = self._process, None
        if self._idle is not None:
            self._idle.cancel()
        if process is not None:
            process.kill()
            process.communicate()

    def _exchange(self, line: bytes) -> dict[str, Any]:
        if self._idle is not None:
            self._idle.cancel()
        if self._process is None or self._process.poll() is not None:
            self.end()
            self._process = _started()
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
            self.end()
            if is_late.is_set():
                raise _timed_out(self._timeout_s)
            raise NoAnswer(ProblemKind.UNKNOWN, "the process for questions ended; try again")
        self._idle = threading.Timer(self._idle_s, self._rest)
        self._idle.daemon = True
        self._idle.start()
        return _read(answer)

    def _rest(self) -> None:
        with self._lock:
            self.end()


ENGINE = Engine()
"""For short questions."""


def asked(question: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Return the engine's answer to a question that has a process to itself. Raises NoAnswer."""
    engine = Engine(timeout_s)
    try:
        return engine.ask(question)
    finally:
        engine.end()


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE, "--once"],
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


def _read(line: bytes) -> dict[str, Any]:
    answered: dict[str, Any] = json.loads(line)
    if "problem" in answered:
        raise NoAnswer(ProblemKind(answered["kind"]), answered["problem"])
    found: dict[str, Any] = answered["answer"]
    return found


def _timed_out(timeout_s: float) -> NoAnswer:
    return NoAnswer(
        ProblemKind.TIMEOUT, f"this took longer than {timeout_s:g} s: ask about fewer events or a shorter query"
    )


def reach(section: Mapping[str, Any], *, is_input: bool) -> None:
    """Try to reach what a section of a job file describes, in a process that obeys the address policy in force.

    Raises:
        ArmError: it cannot be reached, and the message says why; or nothing can be tried without writing to it, which
            is no success either.
    """
    kind = "inputs" if is_input else "outputs"
    try:
        found = asked({"ask": "reach", "kind": kind, "name": "tested", "settings": section})
    except NoAnswer as error:
        code = "Timeout" if error.kind is ProblemKind.TIMEOUT else "ConnectionFailed"
        raise ArmError(400, code, error.message) from None
    if found["status"] == "untested":
        raise ArmError(400, "ConnectionNotTested", found["text"])
