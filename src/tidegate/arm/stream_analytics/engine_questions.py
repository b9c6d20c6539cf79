"""A question to the engine, in a process that ends with its answer: see `tidegate.service.workbench`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from tidegate import outbound
from tidegate.arm.model.errors import ArmError

TIMEOUT_S = 120.0
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


def asked(question: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Return the engine's answer. Raises NoAnswer."""
    line = json.dumps(question, default=str).encode("utf-8", "replace") + b"\n"
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE, "--once"],
            input=line,
            stdout=subprocess.PIPE,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **outbound.current().environment, "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        message = f"this took longer than {timeout_s:g} s: test with fewer events"
        raise NoAnswer(ProblemKind.TIMEOUT, message) from None
    if not done.stdout.endswith(b"\n"):
        raise NoAnswer(ProblemKind.UNKNOWN, f"the process of the test ended with {done.returncode}")
    answered: dict[str, Any] = json.loads(done.stdout)
    if "problem" in answered:
        raise NoAnswer(ProblemKind(answered["kind"]), answered["problem"])
    found: dict[str, Any] = answered["answer"]
    return found
