"""Questions to the engine, and what the management API answers where there is no answer.

A test has a process to itself, which ends with its answer. Short questions, such as whether a query compiles, share one
that stays for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from tidegate.azure.management.access.requests import ArmError
from tidegate.service.questions import ProblemKind, Unanswered, Workbench

TIMEOUT_S = 120.0
SHARED = Workbench()
"""For short questions."""


class NoAnswer(ArmError):
    """A question that the engine could not answer; the message says why."""

    def __init__(self, kind: ProblemKind, message: str) -> None:
        super().__init__(400, f"{kind.value.capitalize()}Error", message)
        self.kind = kind


def ask(question: Mapping[str, Any], workbench: Workbench = SHARED) -> dict[str, Any]:
    """Return the engine's answer. Raises NoAnswer, and ArmError if too many others wait."""
    try:
        return workbench.ask(question)
    except Unanswered as error:
        if error.kind is ProblemKind.BUSY:
            raise ArmError(429, "TooManyRequests", str(error), headers={"Retry-After": "5"}) from None
        raise NoAnswer(error.kind, str(error)) from None


def asked(question: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Return the engine's answer to a question that has a process to itself. Raises NoAnswer."""
    with closing(Workbench(timeout_s)) as workbench:
        return ask(question, workbench)


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
