"""Messages and batches, against their own round trip and against Microsoft's client."""

import contextlib
from typing import Any
from uuid import UUID

import pytest
from azure.eventhub import EventData, EventDataBatch
from azure.eventhub._pyamqp._decode import decode_payload
from azure.eventhub._pyamqp._encode import encode_payload
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.values import longs, names, same, scalars, text, unsigned, uuids, values
from tidegate.amqp import DecodeError, Described, Message, Properties, Symbol, Ulong, encode
from tidegate.amqp.messages import Header, encode_message, parse_message, split_batch

ids = st.one_of(unsigned(64).map(Ulong), uuids, st.binary(max_size=9), text)
headers = st.builds(Header, st.booleans(), unsigned(8), st.none() | unsigned(32), st.booleans(), unsigned(32))
properties = st.builds(
    Properties,
    message_id=st.none() | ids,
    user_id=st.none() | st.binary(max_size=9),
    to=st.none() | text,
    subject=st.none() | text,
    reply_to=st.none() | text,
    correlation_id=st.none() | ids,
    content_type=st.none() | names.map(Symbol),
    content_encoding=st.none() | names.map(Symbol),
    absolute_expiry_time_ms=st.none() | longs,
    creation_time_ms=st.none() | longs,
    group_id=st.none() | text,
    group_sequence=st.none() | unsigned(32),
    reply_to_group_id=st.none() | text,
)
annotations = st.none() | st.dictionaries(names.map(Symbol), values, max_size=3)
bodies = st.one_of(
    st.tuples(st.just("data"), st.lists(st.binary(max_size=300), min_size=1, max_size=3)),
    st.tuples(st.just("sequence"), st.lists(st.lists(values, max_size=3), min_size=1, max_size=3)),
    st.tuples(st.just("value"), values),
)
messages = st.builds(
    lambda body, *sections: Message(*sections[:5], body[0], body[1], sections[5]),
    bodies,
    st.none() | headers,
    annotations,
    annotations,
    st.none() | properties,
    st.none() | st.dictionaries(text, scalars, max_size=3),
    annotations,
)


def section(code: int, value: Any) -> bytes:
    return encode(Described(Ulong(code), value))


@given(messages)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    parsed = parse_message(encode_message(message))
    assert parsed == message
    assert same(parsed.body, message.body)
    assert same(parsed.message_annotations, message.message_annotations)
    if message.properties is not None and parsed.properties is not None:
        assert same(parsed.properties.message_id, message.properties.message_id)
        assert same(parsed.properties.correlation_id, message.properties.correlation_id)


@given(messages)
def test_microsofts_decoder_finds_the_same_sections(message: Message) -> None:
    if message.body_kind != "data":
        return
    decoded = decode_payload(memoryview(encode_message(Message(message.header, body_kind="data", body=message.body))))
    assert decoded.data == message.body
    assert (decoded.header is None) == (message.header is None)
    if message.header is not None:
        assert decoded.header.priority == message.header.priority
        assert decoded.header.ttl == message.header.ttl_ms


def by_microsoft(batch: EventDataBatch) -> bytes:
    output = bytearray()
    encode_payload(output, batch._message)
    return bytes(output)


def test_an_event_of_the_python_client_is_read_whole() -> None:
    event = EventData(b"body")
    event.properties = {"site": "a", "weight": 1.5, "raw": b"\x01", "flag": True}
    event.message_id = "m"
    event.correlation_id = "c"
    event.content_type = "text/plain"
    batch = EventDataBatch(1 << 20)
    batch.add(event)
    message = parse_message(split_batch(by_microsoft(batch))[0])
    assert message.application_properties == {"site": "a", "weight": 1.5, "raw": b"\x01", "flag": True}
    assert message.properties == Properties(message_id="m", correlation_id="c", content_type="text/plain")
    assert (message.body_kind, message.body) == ("data", [b"body"])


def test_delivery_annotations_may_stand_last_as_the_python_client_writes_them() -> None:
    last = encode_message(Message(body_kind="data", body=[b"x"])) + section(0x71, {Symbol("x-trace"): "t"})
    message = parse_message(last)
    assert message.delivery_annotations == {"x-trace": "t"}
    assert message.body == [b"x"]


def test_symbolic_and_wide_descriptors_name_sections_too() -> None:
    encoded = encode(Described(Symbol("amqp:application-properties:map"), {"a": 1}))
    encoded += b"\x00\x80" + (0x75).to_bytes(8, "big") + b"\xa0\x01x"
    assert parse_message(encoded) == Message(application_properties={"a": 1}, body_kind="data", body=[b"x"])


MALFORMED = {
    "half a section": b"\x00\x53\x75\xa0\x05x",
    "no section": encode(5),
    "an unknown section": section(0x79, b"x"),
    "a symbol of no section": encode(Described(Symbol("amqp:nothing"), b"x")),
    "a header that is no list": section(0x70, {}),
    "annotations that are no map": section(0x72, [1]),
    "data that is not binary": section(0x75, "x"),
    "two kinds of body": section(0x75, b"x") + section(0x77, 1),
    "two values": section(0x77, 1) + section(0x77, 1),
    "a priority that is text": section(0x70, [None, "high"]),
}


@pytest.mark.parametrize("encoded", MALFORMED.values(), ids=MALFORMED)
def test_malformed_messages_are_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_message(encoded)


@given(st.lists(messages, max_size=5), st.booleans())
def test_a_batch_holds_its_events_as_they_were(batch: list[Message], keyed: bool) -> None:
    events = [encode_message(message) for message in batch]
    outer = Message(Header(durable=True), None, {Symbol("x-opt-partition-key"): "k"}) if keyed else Message()
    outer.body_kind, outer.body = "data", events
    assert split_batch(encode_message(outer)) == events


def test_a_batch_of_the_python_client_is_split_into_what_it_encoded() -> None:
    batch = EventDataBatch(1 << 20, partition_key="key")
    for size in (0, 10, 255, 256, 70_000):
        batch.add(EventData(b"x" * size))
    events = [parse_message(event) for event in split_batch(by_microsoft(batch))]
    assert [event.body for event in events] == [[b"x" * size] for size in (0, 10, 255, 256, 70_000)]
    assert {event.message_annotations["x-opt-partition-key"] for event in events if event.message_annotations} == {
        "key"
    }


def test_an_empty_batch_has_no_events() -> None:
    assert split_batch(b"") == []
    assert split_batch(section(0x70, [True])) == []


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x00\x53\x75\xa0\x05x",
        b"\x00\x53\x75\xb0\x00\x00",
        b"\x00\x53\x75",
        section(0x77, 1),
        section(0x75, "x"),
        b"x",
    ],
)
def test_what_is_no_batch_is_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        split_batch(encoded)


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (parse_message, split_batch):
        with contextlib.suppress(DecodeError):
            read(data)


@given(messages, st.data())
def test_mutated_messages_are_read_or_refused(message: Message, data: st.DataObject) -> None:
    encoded = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    for read in (parse_message, split_batch):
        with contextlib.suppress(DecodeError):
            read(bytes(encoded))


def test_a_reply_echoes_ids_with_their_type() -> None:
    for message_id in (Ulong(7), UUID(int=7), b"7", "7"):
        request = parse_message(encode_message(Message(properties=Properties(message_id=message_id))))
        assert request.properties is not None
        reply = Message(properties=Properties(correlation_id=request.properties.message_id), body_kind="value")
        parsed = parse_message(encode_message(reply)).properties
        assert parsed is not None
        assert same(parsed.correlation_id, message_id)
