"""The hub's annotations, put in without decoding: always what decoding, changing and encoding would have given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from azure.eventhub import EventData, EventDataBatch
from azure.eventhub._pyamqp._decode import decode_payload
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.test_messages import by_microsoft, messages, section
from tests.amqp.values import names, text, values
from tidegate.amqp import DecodeError, Described, Message, Symbol, Timestamp, Ulong, encode
from tidegate.amqp.messages import (
    annotate,
    annotate_run,
    encode_message,
    message_annotation,
    parse_message,
    split_batch,
    with_annotations,
    with_delivery_annotations,
)

HUB = {"x-opt-sequence-number": 5, "x-opt-offset": "77", "x-opt-enqueued-time": Timestamp(1234)}
EMPTY_MAP32 = bytes.fromhex("005372d10000000400000000")
BODY = section(0x75, b"body")
forged = st.sampled_from(
    ["x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time", "x-opt-partition-key", "x-own"]
)


def annotated(encoded: bytes) -> Message:
    return parse_message(annotate(encoded, 5, 77, 1234))


@st.composite
def published(draw: st.DrawFn) -> bytes:
    """Any message, with annotations that may carry the hub's names, perhaps in an unusual place or encoding."""
    message = draw(messages)
    entries = draw(st.none() | st.dictionaries(forged.map(Symbol) | names.map(Symbol), values | text, max_size=4))
    message.message_annotations = None
    encoded = encode_message(message)
    if entries is None:
        return encoded
    descriptor = draw(st.sampled_from([Ulong(0x72), Symbol("amqp:message-annotations:map")]))
    annotations = encode(Described(descriptor, entries))
    if draw(st.booleans()):
        annotations = b"\x00\x80" + (0x72).to_bytes(8, "big") + encode(entries)
    return annotations + encoded if draw(st.booleans()) else encoded + annotations


@given(published())
def test_it_is_as_if_the_message_were_decoded_and_encoded_again(encoded: bytes) -> None:
    before = parse_message(encoded)
    after = annotated(encoded)
    kept = {name: value for name, value in (before.message_annotations or {}).items() if name not in HUB}
    assert after.message_annotations == {**kept, **HUB}
    after.message_annotations = before.message_annotations
    assert after == before


@given(st.lists(published(), max_size=4))
def test_a_run_is_annotated_as_its_events_one_by_one(events: list[bytes]) -> None:
    offsets = [number * 100 for number in range(len(events))]
    assert annotate_run(events, 7, offsets, 1234) == [
        annotate(event, 7 + index, offsets[index], 1234) for index, event in enumerate(events)
    ]


def test_a_run_without_any_annotations_is_annotated_as_its_events_one_by_one() -> None:
    body = b"\x00\x53\x75\xa0\x01x"
    header, properties = b"\x00\x53\x70\xc0\x02\x01\x41", b"\x00\x53\x73\xc0\x03\x01\xa1\x00"
    events = [body, header + body, properties + body, body, header + properties + body]
    offsets = [0, 9, 10, 11, 2**40]
    assert annotate_run(events, 2**33, offsets, 1234) == [
        annotate(event, 2**33 + index, offsets[index], 1234) for index, event in enumerate(events)
    ]


@given(published(), st.dictionaries(forged, text, max_size=3))
def test_annotations_can_be_set_and_looked_up(encoded: bytes, added: dict[str, Any]) -> None:
    before = parse_message(encoded)
    changed = with_annotations(encoded, added)
    after = parse_message(changed)
    assert (after.message_annotations or {}) == {**(before.message_annotations or {}), **added}
    for name, value in (after.message_annotations or {}).items():
        assert message_annotation(changed, name) == value
    after.message_annotations = before.message_annotations
    assert after == before


@given(published(), st.dictionaries(names, text, max_size=3))
def test_delivery_annotations_join_the_producers(encoded: bytes, added: dict[str, Any]) -> None:
    before = parse_message(encoded)
    after = parse_message(with_delivery_annotations(encoded, added))
    assert (after.delivery_annotations or {}) == {**(before.delivery_annotations or {}), **added}
    after.delivery_annotations = before.delivery_annotations
    assert after == before


def test_a_producers_delivery_annotations_come_back_wherever_they_stood() -> None:
    last = BODY + section(0x71, {Symbol("x-trace"): "t"})
    assert annotated(last).delivery_annotations == {"x-trace": "t"}
    first = section(0x71, {Symbol("x-trace"): "t"}) + BODY
    assert annotated(first).delivery_annotations == {"x-trace": "t"}


def test_the_empty_section_of_the_javascript_client_is_filled() -> None:
    assert annotated(EMPTY_MAP32 + BODY) == Message(message_annotations=HUB, body_kind="data", body=[b"body"])


@pytest.mark.parametrize("key", [None, "key", "k" * 100, "é"])
def test_the_python_client_reads_what_the_hub_delivers(key: str | None) -> None:
    batch = EventDataBatch(1 << 20, partition_key=key)
    batch.add(EventData(b"body"))
    (event,) = split_batch(by_microsoft(batch))
    assert message_annotation(event, "x-opt-partition-key") == key
    received = EventData._from_message(decode_payload(memoryview(annotate(event, 5, 77, 1234))))
    assert (received.sequence_number, received.offset) == (5, "77")
    assert received.enqueued_time.timestamp() == 1.234
    assert received.partition_key == (None if key is None else key.encode())
    assert received.body_as_str() == "body"


@pytest.mark.parametrize(
    "name",
    [
        lambda text: text,
        lambda text: text.encode(),
        lambda text: Described(Ulong(1), Symbol(text)),
        lambda text: Described(Symbol("a"), Described(Symbol("b"), text.encode())),
    ],
    ids=["text", "bytes", "described", "described twice"],
)
def test_the_hub_s_own_annotations_are_the_only_ones_of_their_names_for_microsoft_s_client(
    name: Callable[[str], Any],
) -> None:
    """Its decoder takes symbols, text, bytes and described values for the same key."""
    forged = {"x-opt-sequence-number": 777, "x-opt-offset": "999", "x-opt-enqueued-time": 1, "x-opt-publisher": "boss"}
    body = section(0x75, b"x")
    entries = b"".join(encode(name(key)) + encode(value) for key, value in forged.items())
    head = b"\x00\x53\x72\xd1" + (4 + len(entries)).to_bytes(4, "big") + (2 * len(forged)).to_bytes(4, "big")
    event = with_annotations(head + entries + body, {"x-opt-publisher": "me"})
    assert message_annotation(event, "x-opt-publisher") == "me"
    received = EventData._from_message(decode_payload(memoryview(annotate(event, 5, 77, 1234))))
    assert (received.sequence_number, received.offset) == (5, "77")
    assert received.system_properties[b"x-opt-enqueued-time"] == 1234
    assert received.system_properties[b"x-opt-publisher"] == b"me"


def test_a_forged_section_is_found_behind_the_quick_ways() -> None:
    forged = encode(Described(Ulong(0x72), {Symbol("x-opt-sequence-number"): 999}))
    keyed = section(0x72, {Symbol("x-opt-partition-key"): "k"})
    for encoded in (BODY + forged, keyed + BODY + forged, EMPTY_MAP32 + BODY + forged, keyed + forged + BODY):
        assert (annotated(encoded).message_annotations or {})["x-opt-sequence-number"] == 5


def test_bytes_of_a_body_that_look_like_a_section_are_left_alone() -> None:
    body = section(0x75, b"\x00\x53\x72 amqp:message-annotations:map \x00\x80\x00\x00\x00\x00\x00\x00\x00\x72")
    assert annotate(body, 5, 77, 1234).endswith(body)


def test_a_key_written_as_text_does_not_pass_for_the_hubs() -> None:
    encoded = section(0x72, {"x-opt-offset": "999"}) + BODY
    assert annotated(encoded).message_annotations == HUB


def test_an_absent_annotation_is_none() -> None:
    assert message_annotation(BODY, "x-opt-partition-key") is None
    assert message_annotation(section(0x75, b"x-opt-partition-key"), "x-opt-partition-key") is None
    assert message_annotation(section(0x72, None), "x-opt-partition-key") is None


@pytest.mark.parametrize(
    "encoded",
    [
        section(0x72, [1]) + BODY,
        b"\x00\x53\x72\xc1\x05\x02\xa3\x01a\xa1",
        b"\x00\x53\x70\xc0\xff",
        b"\x00\x53\x72\xc1\x01",
    ],
)
def test_malformed_annotations_are_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        annotate(encoded, 1, 1, 1)


@given(st.binary(max_size=60) | published(), st.data())
def test_any_bytes_are_annotated_or_refused(encoded: bytes, data: st.DataObject) -> None:
    mutated = bytearray(encoded)
    if mutated:
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    for change in (
        lambda: annotate(bytes(mutated), 1, 1, 1),
        lambda: with_annotations(bytes(mutated), {"x": "y"}),
        lambda: with_delivery_annotations(bytes(mutated), {"x": "y"}),
        lambda: message_annotation(bytes(mutated), "x-opt-offset"),
    ):
        with contextlib.suppress(DecodeError):
            change()
