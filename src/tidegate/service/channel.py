"""Messages between the service and the process of a job: one JSON object a line, in both directions.

The first line to a process is its order, `{"order": {...}}` or `{"check": {...}}`; a later `{"stop": true}` asks it to
stop. What a process says is named by its only key, as in `{"trouble": "input 'tolls' unreachable since …"}`. The end
of the stream means that the other side is gone: a process whose service is gone ends itself.

`{"spark": "attach"}` asks for the Spark that jobs share. The answer has its address, `{"spark": {"port": …}}`, or says
what the `problem` is. `{"spark": "release"}` gives it back.
"""

from __future__ import annotations

import json
from typing import Any

ORDER, CHECK, STOP, SPARK = "order", "check", "stop", "spark"
ATTACH, RELEASE = "attach", "release"
BEGUN, READY, TROUBLE, MEASURED, ENDED, PROBLEMS = "begun", "ready", "trouble", "measured", "ended", "problems"


def line_of(message: dict[str, Any]) -> bytes:
    """Return a message as a line."""
    return json.dumps(message).encode() + b"\n"


class MessageSplitter:
    """Collects bytes into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that are complete after some more bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]
