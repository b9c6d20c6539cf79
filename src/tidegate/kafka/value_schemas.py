"""How Kafka's serializers name the schema of a value: in the bytes before it, or in a header of its record.

Before a value are a zero and four bytes of the schema's number. In the header are the same, or a one and the schema's
GUID. Either is followed by what the format adds, such as which message of a schema of Protobuf the value is
(https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format).
"""

from __future__ import annotations

from uuid import UUID

SCHEMA_HEADER = "__value_schema_id"
_NUMBER, _GUID = 0, 1
_NUMBER_END, _GUID_END = 5, 17


def named_schema(value: bytes, header: object = None) -> tuple[int | UUID, bytes] | None:
    """Return the schema that a value names, and what its format adds with the value behind; None if it names none.

    Args:
        header: what the record's header `SCHEMA_HEADER` holds, if it has one.
    """
    if isinstance(header, bytes) and len(header) >= _GUID_END and header[0] == _GUID:
        return UUID(bytes=header[1:_GUID_END]), header[_GUID_END:] + value
    if isinstance(header, bytes) and len(header) >= _NUMBER_END and header[0] == _NUMBER:
        return int.from_bytes(header[1:_NUMBER_END]), header[_NUMBER_END:] + value
    if len(value) >= _NUMBER_END and value[0] == _NUMBER:
        return int.from_bytes(value[1:_NUMBER_END]), value[_NUMBER_END:]
    return None
