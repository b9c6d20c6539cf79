"""The source's columns, made from whole batches, say what decoding each event says."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.amqp import Message, encode_message
from tidegate.client.event import decode
from tidegate.connectors.model.messages import Messages
from tidegate.spark.source_columns import COLUMNS, record_batch


def message(head: tuple[str | None, dict[str, str] | None], body: Any, kind: str) -> bytes:
    key, properties = head
    annotations = None if key is None else {"x-opt-partition-key": key, "x-opt-publisher": key, "other": 1}
    return encode_message(
        Message(message_annotations=annotations, application_properties=properties, body_kind=kind, body=body)
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


@given(st.lists(DATA, min_size=1, max_size=30) | st.lists(DATA | OTHER, min_size=1, max_size=30))
def test_columns_are_what_each_event_says(events: list[bytes]) -> None:
    count = len(events)
    messages = Messages(
        sequence_numbers=np.arange(7, 7 + count),
        enqueued_times_ms=np.arange(count) * 1_000,
        positions=[str(4 * n) for n in range(count)],
        buffer=b"".join(events),
        ends=np.cumsum([len(event) for event in events]),
    )
    rows = record_batch(messages, "3", tuple(COLUMNS)).to_pylist()
    for n, (row, event) in enumerate(zip(rows, events, strict=True)):
        body, details = decode(event)
        assert (row["body"], row["partition"], row["offset"]) == (body, "3", str(4 * n))
        assert (row["sequenceNumber"], row["enqueuedTime"].timestamp()) == (7 + n, n)
        assert (row["publisher"], row["partitionKey"]) == (details.publisher, details.partition_key)
        assert dict(row["properties"]) == details.properties
        assert dict(row["systemProperties"]) == details.system_properties
    assert record_batch(messages, "3", ("offset", "body")).schema.names == ["offset", "body"]
