"""An event is shown as what it is: JSON, text, bytes, compressed or broken."""

from __future__ import annotations

import base64
import gzip
import json
import uuid
from typing import Any

import pytest

from tidegate.amqp.encoding.types import Symbol, Timestamp, Ulong
from tidegate.amqp.messages import Message, Properties, encode_message
from tidegate.kafka.translation import event_of
from tidegate.portal.events.reading import StoredEvent, body_of, describe, plain, schema_header_of, schema_of


def stored(**message: Any) -> StoredEvent:
    return StoredEvent("1", 42, 1680, 1_700_000_000_250, encode_message(Message(**message)))


def body(content: bytes) -> dict[str, Any]:
    return describe(stored(body_kind="data", body=[content]))


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b"[1, 2]", "json", "[1, 2]"),
        (b"plain", "text", "plain"),
        (b'{"a": ', "text", '{"a": '),
        ("grün".encode(), "text", "grün"),
        (b"", "text", ""),
        (b"\xff\xfe\x00", "binary", base64.b64encode(b"\xff\xfe\x00").decode()),
        (b"a\x00b", "binary", base64.b64encode(b"a\x00b").decode()),
        (gzip.compress(b'{"z": 1}', mtime=0), "json", '{"z": 1}'),
    ],
)
def test_the_body_is_told_by_its_bytes(content: bytes, kind: str, text: str) -> None:
    described = body(content)
    assert (described["kind"], described["body"], described["size"]) == (kind, text, len(content))
    assert described.get("compression") == ("gzip" if content[:2] == b"\x1f\x8b" else None)


def test_a_long_body_is_cut_between_characters_and_says_so() -> None:
    event = stored(body_kind="data", body=["ä".encode() * 100])
    cut = describe(event, 99)
    assert (cut["isCut"], cut["body"], cut["size"]) == (True, "ä" * 49, 200)
    whole = describe(event, None)
    assert "isCut" not in whole
    assert whole["body"] == "ä" * 100


def test_place_key_and_properties_are_shown_apart() -> None:
    described = describe(
        stored(
            message_annotations={Symbol("x-opt-partition-key"): "k", Symbol("x-own"): 5},
            properties=Properties(message_id=Ulong(1), content_type=Symbol("text/plain"), creation_time_ms=0),
            application_properties={"at": Timestamp(0), "id": uuid.UUID(int=1), "big": 1 << 60, "bytes": b"\x00"},
            body_kind="value",
            body={"a": [1, None]},
        )
    )
    assert described["partitionKey"] == "k"
    assert described["enqueuedTime"] == "2023-11-14T22:13:20.250Z"
    assert (described["partition"], described["sequenceNumber"], described["offset"]) == ("1", 42, "1680")
    assert described["systemProperties"] == {
        "message-id": 1,
        "content-type": "text/plain",
        "creation-time": None,
        "x-own": 5,
    }
    assert described["properties"] == {
        "at": "1970-01-01T00:00:00.000Z",
        "id": "00000000-0000-0000-0000-000000000001",
        "big": str(1 << 60),
        "bytes": "AA==",
    }
    assert json.loads(described["body"]) == {"a": [1, None]}


def test_what_is_no_message_is_shown_as_bytes() -> None:
    event = StoredEvent("0", 0, 0, 0, b"\x00\x01broken")
    assert "not an AMQP message" in describe(event)["error"]
    assert body_of(event) == b"\x00\x01broken"


def test_values_that_json_cannot_say_become_texts() -> None:
    assert plain([float("nan"), float("inf"), -(1 << 60), True]) == ["nan", "inf", str(-(1 << 60)), True]


def test_headers_of_kafka_are_shown_as_the_texts_that_they_are() -> None:
    described = describe(StoredEvent("1", 1, 4, 0, event_of(b"\xff\x00", b"{}", [("trace", "grün".encode())])))
    assert described["properties"] == {"trace": "grün"}
    assert described["kind"] == "json"
    text_key = describe(StoredEvent("1", 1, 4, 0, event_of(b"k1", b"{}", ())))
    assert text_key["partitionKey"] == "k1"


def test_an_avro_container_is_told_by_its_first_bytes() -> None:
    described = body(b"Obj\x01 and more")
    assert (described["kind"], described["format"]) == ("binary", "avro")
    assert "format" not in body(b"Obj and more")


def test_a_value_that_names_its_schema_may_be_decoded() -> None:
    named = stored(
        properties=Properties(content_type=Symbol("avro/binary+0a1b")), body_kind="data", body=[b"\x0anorth"]
    )
    assert schema_of(named) == "0a1b"
    assert describe(named)["format"] == "avro"
    assert schema_of(stored(body_kind="data", body=[b"x"])) is None
    assert body(b"\x00\x00\x00\x00\x01x")["format"] == "framed"
    header = b"\x01" + bytes(16)
    in_header = stored(application_properties={"__value_schema_id": header}, body_kind="data", body=[b"x"])
    assert schema_header_of(in_header) == header
    assert describe(in_header)["format"] == "framed"
    assert schema_header_of(named) is None
