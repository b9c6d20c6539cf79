"""A schema as it was given, whatever its format: its identity, and what keeps it from reading what another wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tidegate.schemas import avro, json_schema, protobuf
from tidegate.schemas.schema import MAX_SCHEMA_BYTES, Reference, SchemaError, SchemaFormat


class _AnyText:
    """Texts of which nothing is known: each is a schema, equal only to itself, and compatible with anything."""

    def identity(self, text: str, imported: Mapping[str, str]) -> str:
        """Return the text itself. Raises SchemaError for an empty or a long one."""
        if not text or len(text) > MAX_SCHEMA_BYTES:
            raise SchemaError(f"a schema has 1 to {MAX_SCHEMA_BYTES} characters, this one {len(text)}")
        return text

    def differences(self, *schemas: object) -> list[str]:
        """Return nothing."""
        return []


_FORMATS: Mapping[SchemaFormat, Any] = {
    SchemaFormat.AVRO: avro,
    SchemaFormat.JSON: json_schema,
    SchemaFormat.PROTOBUF: protobuf,
    SchemaFormat.CUSTOM: _AnyText(),
}


@dataclass(frozen=True)
class SchemaText:
    """A schema as it was given.

    Attributes:
        format: What it is written in.
        text: The schema.
        references: What it imports.
        imported: The texts of all that it imports, directly or not, by the names that importers use.
        extra: What else belongs to it: `metadata` and `ruleSet` of Confluent's clients.
    """

    format: SchemaFormat
    text: str
    references: tuple[Reference, ...] = ()
    imported: Mapping[str, str] = field(default_factory=dict, compare=False)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def identity(self) -> UUID:
        """Return what texts that mean the same have in common. Raises SchemaError."""
        content = [
            self.format.value,
            _FORMATS[self.format].identity(self.text, self.imported),
            [reference.as_json() for reference in self.references],
            self.extra,
        ]
        data = json.dumps(content, separators=(",", ":"), sort_keys=True).encode("utf-8", "surrogatepass")
        return UUID(bytes=hashlib.sha256(data).digest()[:16])

    def check(self) -> None:
        """Raise SchemaError unless the text is a schema."""
        self.identity()

    def differences(self, written: SchemaText) -> list[str]:
        """Return why data of another schema cannot always be read with this one; nothing if it can.

        Raises:
            SchemaError: One of the two is no schema.
        """
        if self.format is not written.format:
            return [f"FORMAT_CHANGED: {written.format} became {self.format}"]
        found: list[str] = _FORMATS[self.format].differences(self.text, self.imported, written.text, written.imported)
        return found
