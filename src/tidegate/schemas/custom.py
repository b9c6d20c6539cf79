"""Texts of which nothing is known: each is a schema, equal only to itself, and compatible with anything."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.schemas.schema import MAX_SCHEMA_BYTES, SchemaError


def identity(text: str, imported: Mapping[str, str]) -> str:
    """Return the text itself. Raises SchemaError for an empty or a long one."""
    if not text or len(text) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"a schema has 1 to {MAX_SCHEMA_BYTES} characters, this one {len(text)}")
    return text


def differences(
    reader: str, reader_imports: Mapping[str, str], writer: str, writer_imports: Mapping[str, str]
) -> list[str]:
    """Return nothing."""
    return []
