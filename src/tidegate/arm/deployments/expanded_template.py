"""A template that is expanded by another process: see `tidegate.arm_templates.process`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tidegate.arm.model.errors import ArmError
from tidegate.arm_templates import Runtime
from tidegate.arm_templates.process import MAX_LINE_BYTES, PROCESSOR_S

TIMEOUT_S = 60.0
"""For one answer of the process, which has `PROCESSOR_S` of its processor for all."""
_MODULE = "tidegate.arm_templates.process"


@dataclass(frozen=True, slots=True)
class DeployedResource:
    """One resource of a template.

    Attributes:
        number: its place in the order in which they are made.
        resource_id: where it will be.
        kind: its full type.
        api_version: the version that it is written for.
    """

    number: int
    resource_id: str
    kind: str
    api_version: str


class ExpandedTemplate:
    """A template and the process that expands it, which ends with `close`."""

    def __init__(
        self,
        content: Mapping[str, Any],
        parameters: Mapping[str, Any] | None,
        constants: Mapping[str, Any],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Raises ArmError for a template that means nothing, or too much."""
        self._timeout_s = timeout_s
        self._process = subprocess.Popen([sys.executable, "-m", _MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            found = self._ask({"template": content, "parameters": parameters, "constants": constants})
        except BaseException:
            self.close()
            raise
        self.head: Mapping[str, Any] = found["head"]
        """The template's hash, and its parameters without secrets."""
        self.symbols: Mapping[str, str] = found["symbols"]
        """The ids of its resources, by their names and symbolic names in lower case."""
        self.resources = [
            DeployedResource(number, one["id"], one["kind"], one["version"])
            for number, one in enumerate(found["resources"])
        ]

    def body(self, resource: DeployedResource, runtime: Runtime) -> dict[str, Any]:
        """Return what is sent to make a resource. Raises ArmError."""
        found: dict[str, Any] = self._answer({"body": resource.number}, runtime)
        return found

    def outputs(self, runtime: Runtime) -> dict[str, Any]:
        """Return the outputs, without secrets. Raises ArmError."""
        found: dict[str, Any] = self._answer({"outputs": True}, runtime)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(OSError):
            self._process.communicate()

    def _answer(self, question: Mapping[str, Any], runtime: Runtime) -> Any:
        answered = self._ask(question)
        while "call" in answered:
            function, arguments = answered["call"]
            answered = self._ask({"value": runtime(function, arguments)})
        return answered["answer"]

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(self._timeout_s, self._process.kill)
        watch.daemon = True
        watch.start()
        line = b""
        try:
            self._process.stdin.write(json.dumps(question).encode("ascii") + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline(MAX_LINE_BYTES)
        except OSError:
            pass  # it has ended, which an answer that is not whole says
        finally:
            watch.cancel()
        if not line.endswith(b"\n"):
            raise invalid_template(f"it takes more than {PROCESSOR_S} s to expand; make it smaller")
        answered: dict[str, Any] = json.loads(line)
        if "problem" in answered:
            raise invalid_template(answered["problem"])
        return answered


def invalid_template(message: str) -> ArmError:
    """Return the refusal of a template."""
    return ArmError(400, "InvalidTemplate", f"Deployment template validation failed: '{message}'.")
