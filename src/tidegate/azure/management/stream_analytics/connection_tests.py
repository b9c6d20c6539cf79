"""Whether an input or output can be reached: what the API's test operations ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.azure.management.access.requests import ArmError
from tidegate.azure.management.stream_analytics.engine_questions import NoAnswer, ProblemKind, asked


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
