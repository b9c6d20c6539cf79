"""A template in a process of its own, with limits of time and memory: what it means is not known until it is expanded.

The parent writes a line of JSON and reads one. The first has the template, its parameters and constants; the answer
lists its resources, in the order in which they must be made. Then the parent asks for the body of one, or for the
outputs. In between, the process may ask for what depends on other resources: `{"call": [function, arguments]}`, which
the parent answers with `{"value": …}`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

from tidegate.azure.templates.expressions import TemplateError
from tidegate.azure.templates.template import Template

MEMORY_BYTES = 1 << 30
PROCESSOR_S = 20
MAX_LINE_BYTES = 8 << 20
"""Of an answer: twice what a request to make a resource may have."""


class Expansion:
    """One template, expanded on request."""

    def __init__(self, questions: BinaryIO, answers: BinaryIO) -> None:
        self._questions = questions
        self._answers = answers

    def run(self) -> None:
        """Answer questions until there are none left."""
        first = self._next()
        if first is None:
            return
        try:
            template = Template(first["template"], first["parameters"], first["constants"])
            resources = template.resources()
            listed = [{"id": one.resource_id, "kind": one.kind, "version": one.api_version} for one in resources]
            symbols = {one.resource_id.rpartition("/")[2].lower(): one.resource_id for one in resources}
            text = json.dumps(first["template"], sort_keys=True).encode("ascii")
            head = {
                "templateHash": str(int(hashlib.sha256(text).hexdigest()[:15], 16)),
                "parameters": template.parameters_shown(),
            }
            self._say({"head": head, "resources": listed, "symbols": {**symbols, **template.symbols}})
        except Exception as error:
            self._say({"problem": _reason(error)})
            return
        while (question := self._next()) is not None:
            try:
                if "body" in question:
                    resource = resources[question["body"]]
                    answer = resource.body(resource.scope.with_runtime(self._call))
                else:
                    answer = template.outputs(template.scope.with_runtime(self._call))
                self._say({"answer": answer})
            except Exception as error:
                self._say({"problem": _reason(error)})

    def _call(self, function: str, arguments: list[Any]) -> Any:
        self._say({"call": [function, arguments]})
        answered = self._next()
        if answered is None:
            raise SystemExit  # the parent has given up
        return answered["value"]

    def _next(self) -> dict[str, Any] | None:
        line = self._questions.readline()
        found: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return found

    def _say(self, answer: Mapping[str, Any]) -> None:
        line = json.dumps(answer, separators=(",", ":")).encode("ascii") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise TemplateError(
                f"a resource has more than {MAX_LINE_BYTES >> 20} MiB when its expressions are evaluated"
            )
        self._answers.write(line)
        self._answers.flush()


def _reason(error: BaseException) -> str:
    match error:
        case TemplateError():
            return str(error)
        case MemoryError():
            return f"the template needs more than {MEMORY_BYTES >> 20} MiB of memory when it is expanded"
        case RecursionError():
            return "the template is nested too deeply"
        case _:
            logging.getLogger(__name__).error("a template could not be expanded", exc_info=error)
            return "the template could not be expanded; the hub's log says why"


def main() -> None:
    """Answer on standard output what is asked on standard input."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
        os.nice(5)
    Expansion(sys.stdin.buffer, sys.stdout.buffer).run()


if __name__ == "__main__":
    main()
