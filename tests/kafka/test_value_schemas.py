"""Compared with what confluent-kafka's serializers write."""

from uuid import UUID

import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer, prefix_schema_id_serializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext

from tidegate.kafka.value_schemas import SCHEMA_HEADER, named_schema

GUID = "71aa5e69-56d6-ea95-9ccb-a11b638d3409"


def test_a_schema_is_named_before_the_value() -> None:
    assert named_schema(prefix_schema_id_serializer(b"value", None, SchemaId("AVRO", 258))) == (258, b"value")
    written = prefix_schema_id_serializer(b"value", None, SchemaId("PROTOBUF", 7, None, [1, 0]))
    assert named_schema(written) == (7, b"\4\2\0value")


@pytest.mark.parametrize(("places", "before"), [(None, b""), ([0], b"\0"), ([1, 2], b"\4\2\4")])
def test_a_schema_is_named_in_a_header(places: list[int] | None, before: bytes) -> None:
    headers: list[tuple[str, bytes]] = []
    schema = SchemaId("AVRO" if places is None else "PROTOBUF", 7, GUID, places)
    value = header_schema_id_serializer(
        b"\0\0\0\0\0value", SerializationContext("t", MessageField.VALUE, headers), schema
    )
    ((name, header),) = headers
    assert name == SCHEMA_HEADER
    assert named_schema(value, header) == (UUID(GUID), before + b"\0\0\0\0\0value")


def test_a_header_may_hold_a_number() -> None:
    assert named_schema(b"value", b"\0\0\0\1\2\4\2\0") == (258, b"\4\2\0value")


@pytest.mark.parametrize("header", [None, b"", b"\1short", b"\2" + bytes(16), "text", 5])
def test_other_values_name_none(header: object) -> None:
    assert named_schema(b"{}", header) is None
    assert named_schema(b"\0\0\0\0", header) is None
    assert named_schema(b"\0\0\0\0\1x", header) == (1, b"x")
