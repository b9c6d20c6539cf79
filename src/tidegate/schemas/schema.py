"""What the modules of all formats use: errors, limits, references, and JSON of bounded depth."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_SCHEMA_BYTES = 1 << 20
MAX_DEPTH = 100
"""How deeply a schema may be nested: what compares schemas recurses."""


class SchemaError(Exception):
    """A text that is no schema of its format; the message says why."""


class ComparisonBudget:
    """The steps that one comparison may take, because what strangers send may be made to take for ever."""

    def __init__(self, steps: int = 200_000) -> None:
        self._left = steps

    def spend(self) -> None:
        """Take a step. Raises SchemaError when none is left."""
        self._left -= 1
        if self._left < 0:
            raise SchemaError("the schemas are too complex to be compared")


class SchemaFormat(StrEnum):
    """What schemas are written in."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"
    CUSTOM = "CUSTOM"
    """Any text: it is kept, and nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one imports.

    Attributes:
        name: What the importing schema calls it: a full name in Avro, a URI in JSON Schema, a path in Protobuf.
        subject: The subject it is registered under.
        version: Its version there.
    """

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """Return the form that it has in requests and in storage."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


def parse_json(text: str) -> Any:
    """Return a JSON document of bounded size and depth. Raises SchemaError."""
    if len(text) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"a schema has at most {MAX_SCHEMA_BYTES} characters, this one {len(text)}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise SchemaError(f"a schema is nested at most {MAX_DEPTH} deep")
        level = [
            part
            for node in level
            for part in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
        ]
    return document
