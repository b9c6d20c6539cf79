from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.amqp.encoding.types import Symbol, Ulong
from tidegate.amqp.messages import Message, encode_message, message_annotation, parse_message
from tidegate.hub.checks import check_events
from tidegate.kafka.records import Header, decode, encode, parse_batch
from tidegate.kafka.translation import batch_of, events_of, record_of

texts = st.text(max_size=20)
headers = st.lists(st.tuples(texts, st.none() | st.binary(max_size=300)), max_size=4)


def event_of(key: bytes | None, value: bytes | None, some: list[Header]) -> bytes:
    (event,) = events_of(parse_batch(encode([value], timestamps_ms=[0], keys=[key], headers=[some])))
    return event


@given(texts.filter(bool), st.binary(max_size=300), headers)
def test_a_record_is_an_event(key: str, value: bytes, some: list[Header]) -> None:
    event = event_of(key.encode(), value, some)
    check_events([event])
    message = parse_message(event)
    assert message.body == [value]
    assert message.message_annotations == {"x-opt-partition-key": key}
    assert (message.application_properties or {}) == dict(some)
    assert record_of(event)[:2] == (key.encode(), value)


@given(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=300))
def test_every_record_is_a_valid_event(key: bytes | None, value: bytes | None) -> None:
    event = event_of(key, value, [])
    check_events([event])
    assert parse_message(event).body == [value or b""]


def test_a_key_that_cannot_be_a_partition_key_is_left_out() -> None:
    for key in (b"\xff\xfe", b"k" * 129, b""):
        assert message_annotation(event_of(key, b"x", []), "x-opt-partition-key") is None
    assert message_annotation(event_of("é".encode() * 128, b"x", []), "x-opt-partition-key") == "é" * 128


def test_the_last_of_repeated_headers_counts() -> None:
    message = parse_message(event_of(None, b"x", [("a", b"1"), ("a", b"2")]))
    assert message.application_properties == {"a": b"2"}


def test_many_headers_are_a_large_map() -> None:
    some = [(f"name {number}", b"v" * 10) for number in range(200)]
    assert parse_message(event_of(None, b"x", some)).application_properties == dict(some)


def record(**fields: Any) -> tuple[bytes | None, bytes, tuple[Header, ...]]:
    return record_of(encode_message(Message(**fields)))


def test_an_event_is_a_record() -> None:
    key = {Symbol("x-opt-partition-key"): "device 7", Symbol("x-opt-other"): 1}
    properties = {"text": "é", "count": Ulong(3), "nothing": None}
    found = record(message_annotations=key, application_properties=properties, body_kind="data", body=[b"ab", b"c"])
    assert found == (b"device 7", b"abc", (("text", b"\xa1\x02\xc3\xa9"), ("count", b"\x53\x03"), ("nothing", None)))


def test_bodies_of_other_kinds_have_a_value_too() -> None:
    assert record(body_kind="value", body="é")[1] == "é".encode()
    assert record(body_kind="value", body=b"ab")[1] == b"ab"
    assert record(body_kind="value", body=None)[1] == b""
    assert record(body_kind="value", body=Ulong(3))[1] == b"\x53\x03"
    assert record(body_kind="sequence", body=[[True]])[1] == b"\xc0\x02\x01\x41" or record(
        body_kind="sequence", body=[[True]]
    )[1].endswith(b"\x41")


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_events_are_a_batch_of_their_enqueued_time(bodies: list[bytes]) -> None:
    events = [encode_message(Message(body_kind="data", body=[body])) for body in bodies]
    batch = parse_batch(batch_of(events, 40, 1_700_000_000_000))
    batch.check()
    columns = decode(batch)
    assert batch.has_append_time
    assert (list(columns.offsets), columns.values) == (list(range(40, 40 + len(bodies))), bodies)
    assert set(columns.timestamps_ms) == {1_700_000_000_000}
