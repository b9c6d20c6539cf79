"""The source's columns, made from whole batches, say what decoding each event says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.amqp import Message, encode_message
from tidegate.amqp.encoding.types import Int
from tidegate.client.event import decode
from tidegate.client.producer import PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE_NUMBER
from tidegate.connectors.model.messages import Messages
from tidegate.spark import source_columns
from tidegate.spark.source import COLUMN_TYPES
from tidegate.spark.source_columns import record_batch


def without_producer(properties: dict[str, str]) -> dict[str, str]:
    """System properties other than those by which an idempotent producer numbers its events."""
    hidden = (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQUENCE_NUMBER)
    return {name: text for name, text in properties.items() if name not in hidden}


def message(head: tuple[str | None, dict[str, str] | None], body: Any, kind: str) -> bytes:
    key, properties = head
    annotations = None if key is None else {"x-opt-partition-key": key, "x-opt-publisher": key, "other": 1}
    return encode_message(
        Message(message_annotations=annotations, application_properties=properties, body_kind=kind, body=body)
    )


@st.composite
def numbered(draw: st.DrawFn) -> bytes:
    """An event of an idempotent producer, or one that has the same bytes somewhere else, or twice."""
    name = PRODUCER_SEQUENCE_NUMBER
    number: Any = draw(st.builds(Int, st.integers(0, 2**31 - 1)) | st.just(7) | st.just("text"))
    lookalike = bytes((0xA3, len(name))) + name.encode() + b"q\x00\x00\x00" + draw(st.binary(max_size=3))
    others = draw(
        st.sampled_from([{}, {"x-opt-partition-key": "a"}, {PRODUCER_ID: 3, PRODUCER_EPOCH: 0}, {"other": lookalike}])
    )
    properties = draw(st.sampled_from([None, {"a": "b"}, {"a": lookalike}, {name: Int(3)}]))
    annotations = draw(st.sampled_from([{name: number, **others}, {**others, name: number}, others]))
    body = draw(st.binary(max_size=4))
    return encode_message(
        Message(message_annotations=annotations, application_properties=properties, body_kind="data", body=[body])
    )


HEADS = st.tuples(
    st.none() | st.sampled_from(["a", "b", "long" * 80]),
    st.none() | st.dictionaries(st.sampled_from("xyz"), st.text(max_size=4), min_size=1, max_size=3),
)
DATA = st.builds(lambda head, body: message(head, [body], "data"), HEADS, st.binary(max_size=20) | st.just(b"x" * 400))
# Several sections, or a value: a body that only the decoder finds.
OTHER = st.builds(lambda head, body: message(head, [body, body], "data"), HEADS, st.binary(max_size=9)) | st.builds(
    lambda head, body: message(head, body, "value"), HEADS, st.text(max_size=9)
)


@given(
    st.one_of(st.lists(each, min_size=1, max_size=30) for each in (DATA, DATA | OTHER, numbered(), numbered() | DATA))
)
def test_columns_are_what_each_event_says(events: list[bytes]) -> None:
    count = len(events)
    messages = Messages(
        sequence_numbers=np.arange(7, 7 + count),
        enqueued_times_ms=np.arange(count) * 1_000,
        positions=[str(4 * n) for n in range(count)],
        buffer=b"".join(events),
        ends=np.cumsum([len(event) for event in events]),
    )
    rows = record_batch(messages, "3", tuple(COLUMN_TYPES)).to_pylist()
    for n, (row, event) in enumerate(zip(rows, events, strict=True)):
        body, details = decode(event)
        assert (row["body"], row["partition"], row["offset"]) == (body, "3", str(4 * n))
        assert (row["sequenceNumber"], row["enqueuedTime"].timestamp()) == (7 + n, n)
        assert (row["publisher"], row["partitionKey"]) == (details.publisher, details.partition_key)
        assert dict(row["properties"]) == details.properties
        assert dict(row["systemProperties"]) == without_producer(details.system_properties)
    assert record_batch(messages, "3", ("offset", "body")).schema.names == ["offset", "body"]


def details_of(events: list[bytes]) -> list[dict[str, Any]]:
    """The rows of events, with what their annotations say."""
    messages = Messages(
        sequence_numbers=np.arange(len(events)),
        enqueued_times_ms=np.arange(len(events)),
        positions=[""] * len(events),
        buffer=b"".join(events),
        ends=np.cumsum([len(event) for event in events]),
    )
    found: list[dict[str, Any]] = record_batch(messages, "0", ("partitionKey", "systemProperties")).to_pylist()
    return found


def test_heads_that_differ_in_a_producers_number_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the sink's own events do, each of which was decoded."""
    decoded: list[bytes] = []

    def details(head: bytes) -> Any:
        decoded.append(head)
        return decode(head + b"\x00Su\xa0\x00")[1]

    monkeypatch.setattr(source_columns, "_parsed", details)
    keys = [None, "a", "b"]
    events = []
    first = 1_000  # a number below 128 is encoded in one byte
    for n in range(3_000):
        annotations = {PRODUCER_SEQUENCE_NUMBER: Int(first + n), PRODUCER_ID: 5} | (
            {} if keys[n % 3] is None else {"x-opt-partition-key": keys[n % 3]}
        )
        events.append(encode_message(Message(message_annotations=annotations, body_kind="data", body=[b"body"])))
    rows = details_of(events)
    assert not any(PRODUCER_SEQUENCE_NUMBER in dict(row["systemProperties"]) for row in rows)
    assert [row["partitionKey"] for row in rows] == keys * 1_000
    assert len(set(decoded)) <= 2 * len(keys)


def test_heads_of_one_producer_are_compared_and_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a few bytes' comparison; a head with something else in it is found beside them."""
    hashed: list[int] = []
    of_any = source_columns._DistinctDetails._of_any

    def counted(heads: Any) -> Any:
        hashed.append(len(heads))
        return of_any(heads)

    monkeypatch.setattr(source_columns._DistinctDetails, "_of_any", counted)
    annotations = [{PRODUCER_SEQUENCE_NUMBER: Int(1_000 + n), PRODUCER_ID: 5 + n // 600 % 2} for n in range(3_000)]
    for others in ({}, {7: {"x-opt-partition-key": "a"}, 1_500: {"other": "b"}}):
        events = [
            encode_message(
                Message(message_annotations={**own, **others.get(n, {})}, body_kind="data", body=[b"body" * (n % 3)])
            )
            for n, own in enumerate(annotations)
        ]
        rows = details_of(events)
        for row, event in zip(rows, events, strict=True):
            _, details = decode(event)
            assert row["partitionKey"] == details.partition_key
            assert dict(row["systemProperties"]) == without_producer(details.system_properties)
    assert not hashed
