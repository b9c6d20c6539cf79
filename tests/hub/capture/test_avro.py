"""Capture files are what readers of the service's own files expect; two libraries that are not ours read them."""

import io
import json
import uuid
from typing import Any

import avro.datafile
import avro.io
import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.amqp.encoding.types import Array, Float, Int, Symbol, Timestamp, Ulong
from tidegate.amqp.messages import Message, Properties, encode_message
from tidegate.hub.capture.avro import PROPERTY_TYPES, SCHEMA, AvroFile, container_header, format_time
from tidegate.log import EventBatch

MARKER = b"0123456789abcdef"
TIME_MS = 1754103845678  # 2025-08-02T03:04:05.678Z
UNLIMITED = 1 << 40


def written(events: list[bytes], *, first: int = 7, offset: int = 100, cut: int | None = None) -> bytes:
    file = io.BytesIO()
    container = AvroFile(file, MARKER)
    cut = len(events) if cut is None else cut
    for part, start in ((events[:cut], 0), (events[cut:], cut)):
        if part:
            offsets = range(offset + 4 * start, offset + 4 * (start + len(part)), 4)
            container.add(EventBatch(first + start, TIME_MS, offsets, part), UNLIMITED)
    container.finish()
    return file.getvalue()


def read(content: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(content)))


def only(message: Message) -> Any:
    (record,) = read(written([encode_message(message)]))
    return record


def body(content: bytes) -> bytes:
    return encode_message(Message(body_kind="data", body=[content]))


def test_the_schema_is_the_services() -> None:
    schema = json.loads(SCHEMA)
    assert schema["namespace"] + "." + schema["name"] == "Microsoft.ServiceBus.Messaging.EventData"
    assert {field["name"]: field["type"] for field in schema["fields"]} == {
        "SequenceNumber": "long",
        "Offset": "string",
        "EnqueuedTimeUtc": "string",
        "SystemProperties": {"type": "map", "values": ["long", "double", "string", "bytes"]},
        "Properties": {"type": "map", "values": ["long", "double", "string", "bytes", "null"]},
        "Body": ["null", "bytes"],
    }


def test_a_file_without_events_is_a_header() -> None:
    content = written([])
    assert content == container_header(MARKER)
    assert read(content) == []
    # Samples for the service's files take one of up to 508 bytes for empty.
    assert len(content) <= 508


def test_a_plain_event() -> None:
    first, second = read(written([body(b"\x00\xff"), body(b"")]))
    assert first == {
        "SequenceNumber": 7,
        "Offset": "100",
        "EnqueuedTimeUtc": "8/2/2025 3:04:05 AM",
        "SystemProperties": {"x-opt-enqueued-time": TIME_MS},
        "Properties": {},
        "Body": b"\x00\xff",
    }
    assert (second["SequenceNumber"], second["Offset"], second["Body"]) == (8, "104", b"")


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1/1/1970 12:00:00 AM"),
        (1638457104816, "12/2/2021 2:58:24 PM"),
        (1479314651000, "11/16/2016 4:44:11 PM"),
        (1754136000000, "8/2/2025 12:00:00 PM"),
    ],
)
def test_times_are_written_as_dotnet_does(time_ms: int, text: str) -> None:
    assert format_time(time_ms) == text


def test_annotations_and_properties() -> None:
    record = only(
        Message(
            message_annotations={
                Symbol("x-opt-partition-key"): "dev-1",
                Symbol("x-opt-publisher"): "pub",
                Symbol("x-opt-offset"): "not ours",
                Symbol("none"): None,
            },
            properties=Properties(
                message_id="m-1", content_type=Symbol("application/json"), creation_time_ms=Timestamp(5), user_id=b"u"
            ),
            application_properties={
                "text": "é",
                "whole": Int(-3),
                "large": Ulong(2**64 - 1),
                "real": 1.5,
                "short": Float(0.5),
                "flag": True,
                "raw": b"\x01",
                "none": None,
                "time": Timestamp(TIME_MS),
                "id": uuid.UUID(int=1),
            },
            body_kind="data",
            body=[b"one ", b"two"],
        )
    )
    assert record["SystemProperties"] == {
        "x-opt-enqueued-time": TIME_MS,
        "x-opt-partition-key": "dev-1",
        "x-opt-publisher": "pub",
        "message-id": "m-1",
        "content-type": "application/json",
        PROPERTY_TYPES: '{"large": "ulong", "flag": "boolean", "time": "timestamp", "id": "uuid"}',
        "creation-time": 5,
        "user-id": b"u",
    }
    assert record["Properties"] == {
        "text": "é",
        "whole": -3,
        "large": "18446744073709551615",
        "real": 1.5,
        "short": 0.5,
        "flag": "true",
        "raw": b"\x01",
        "none": None,
        "time": TIME_MS,
        "id": "00000000-0000-0000-0000-000000000001",
    }
    assert record["Body"] == b"one two"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("value", "text é", "text é".encode()),
        ("value", b"\x00", b"\x00"),
        ("value", None, None),
        ("value", True, b"true"),
        ("value", Int(5), b"5"),
        ("value", {"a": [1, None, b"\xff"]}, b'{"a": [1, null, "/w=="]}'),
        ("value", Array.of(str, ["a", "b"]), b'["a", "b"]'),
        ("sequence", [[1, "a"], [2.5]], b'[[1, "a"], [2.5]]'),
        (None, None, None),
    ],
)
def test_bodies_of_all_kinds(kind: Any, value: Any, expected: bytes | None) -> None:
    assert only(Message(body_kind=kind, body=value))["Body"] == expected


def test_an_event_that_is_no_message_is_kept_as_it_is() -> None:
    (record,) = read(written([b"not amqp"]))
    assert record["Body"] == b"not amqp"
    assert "tidegate:undecoded" in record["SystemProperties"]


@given(st.binary(max_size=40))
@example(b"\x00Su\xa0")  # a data section cut off before its size
def test_no_bytes_stop_capture(event: bytes) -> None:
    records = read(written([body(b"before"), event, body(b"after")]))
    assert [record["SequenceNumber"] for record in records] == [7, 8, 9]
    assert records[2]["Body"] == b"after"


@given(st.lists(st.binary(max_size=400), max_size=30), st.data())
def test_the_reference_implementation_reads_the_same(bodies: list[bytes], data: st.DataObject) -> None:
    events = [body(content) for content in bodies]
    content = written(events, first=data.draw(st.integers(0, 2**62)), offset=data.draw(st.integers(0, 2**62)))
    reader = avro.datafile.DataFileReader(io.BytesIO(content), avro.io.DatumReader())
    reference = list(reader)
    assert [record["Body"] for record in reference] == bodies
    assert reference == read(content)


@given(st.lists(st.binary(max_size=200), max_size=200), st.data())
def test_the_bytes_do_not_depend_on_how_events_come_in(bodies: list[bytes], data: st.DataObject) -> None:
    events = [body(content) for content in bodies]
    cut = data.draw(st.integers(0, len(events)))
    assert written(events) == written(events, cut=cut)


def test_a_file_ends_with_the_event_that_brings_it_to_its_size() -> None:
    container = AvroFile(io.BytesIO(), MARKER)
    events = [body(bytes(1000))] * 300
    taken = container.add(EventBatch(0, TIME_MS, range(0, 1200, 4), events), 100_000)
    assert 100 < taken < 300
    assert container.size_bytes >= 100_000
    assert container.add(EventBatch(taken, TIME_MS, range(0, 4, 4), events[:1]), 100_000) == 0
