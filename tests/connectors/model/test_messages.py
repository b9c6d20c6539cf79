"""Bodies out of messages: the walk over columns finds what the decoder finds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.amqp import Header, Message, Properties, Symbol, encode_message
from tidegate.connectors.model.messages import Messages, bodies, body_spans, details

text = st.text(max_size=12)
sections = st.fixed_dictionaries(
    {},
    optional={
        "header": st.just(Header(durable=True)),
        "delivery_annotations": st.dictionaries(text.map(Symbol), text, max_size=2),
        "message_annotations": st.dictionaries(text.map(Symbol), text | st.just("x" * 300), max_size=3),
        "properties": st.builds(Properties, message_id=text, content_type=text.map(Symbol)),
        "application_properties": st.dictionaries(text, text | st.integers(-5, 5) | st.booleans(), max_size=3),
    },
)
data = st.binary(max_size=40) | st.binary(min_size=256, max_size=300)


@given(messages=st.lists(st.tuples(sections, st.lists(data, min_size=1, max_size=3), st.booleans()), max_size=8))
def test_the_body_is_the_data_whatever_stands_around_it(
    messages: list[tuple[dict[str, object], list[bytes], bool]],
) -> None:
    encoded = [
        encode_message(Message(body_kind="data", body=parts, footer={Symbol("f"): 1} if footer else None, **head))
        for head, parts, footer in messages
    ]
    ends = np.cumsum([len(message) for message in encoded], dtype=np.int64)
    assert bodies(b"".join(encoded), ends) == [b"".join(parts) for _, parts, _ in messages]


@given(value=st.one_of(text, st.binary(max_size=20)))
def test_a_value_body_is_its_text_or_bytes(value: str | bytes) -> None:
    encoded = encode_message(Message(body_kind="value", body=value))
    expected = value.encode() if isinstance(value, str) else value
    assert bodies(encoded, np.array([len(encoded)], dtype=np.int64)) == [expected]


def test_a_value_body_that_is_a_map_is_json() -> None:
    encoded = encode_message(Message(body_kind="value", body={"a": [1, None]}))
    assert bodies(encoded, np.array([len(encoded)], dtype=np.int64)) == [b'{"a": [1, null]}']


def test_details_are_texts_and_leave_out_what_the_broker_adds() -> None:
    encoded = [
        encode_message(Message(body_kind="data", body=[b"plain"])),
        encode_message(
            Message(
                message_annotations={
                    Symbol("x-opt-partition-key"): "k",
                    Symbol("x-opt-sequence-number"): 4,
                    Symbol("x-opt-publisher"): "p",
                },
                application_properties={"n": 1, "yes": True, "s": "text"},
                body_kind="data",
                body=[b""],
            )
        ),
    ]
    ends = np.cumsum([len(message) for message in encoded], dtype=np.int64)
    zeros = np.zeros(2, dtype=np.int64)
    plain, full = details(Messages(zeros, zeros, ["0", "1"], b"".join(encoded), ends))
    assert (plain.publisher, plain.partition_key, plain.properties) == (None, None, {})
    assert (full.publisher, full.partition_key) == ("p", "k")
    assert full.properties == {"n": "1", "yes": "true", "s": "text"}
    assert full.system_properties == {"x-opt-partition-key": "k", "x-opt-publisher": "p"}


@pytest.mark.parametrize("positions", [[str(n) for n in range(8, 14)], np.arange(8, 14)], ids=["texts", "numbers"])
def test_parts_are_the_same_messages(positions: list[str] | npt.NDArray[np.int64]) -> None:
    sizes = [3, 4, 9, 1, 1, 5]
    ends = np.cumsum(sizes, dtype=np.int64)
    whole = Messages(np.arange(6), np.arange(6) * 10, positions, bytes(range(23)), ends)
    parts = list(whole.parts(7))
    assert [np.diff(part.ends, prepend=0).tolist() for part in parts] == [[3, 4], [9], [1, 1, 5]]
    assert b"".join(part.buffer for part in parts) == whole.buffer
    assert [offset for part in parts for offset in part.offsets] == ["8", "9", "10", "11", "12", "13"]
    assert np.concatenate([part.sequence_numbers for part in parts]).tolist() == list(range(6))


@given(messages=st.lists(st.tuples(sections, data, st.booleans()), min_size=1, max_size=30), cut=st.integers(0, 400))
def test_bodies_are_found_without_the_decoder_and_never_beyond_the_end(
    messages: list[tuple[dict[str, object], bytes, bool]], cut: int
) -> None:
    encoded = [
        encode_message(Message(body_kind="data", body=[body], footer={Symbol("f"): 1} if footer else None, **head))
        for head, body, footer in messages
    ]
    ends = np.cumsum([len(message) for message in encoded], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1]))
    body_start, body_end = body_spans(b"".join(encoded), starts, ends)
    joined = b"".join(encoded)
    found = [joined[start:end] for start, end in zip(body_start.tolist(), body_end.tolist(), strict=True)]
    assert found == [body for _, body, _ in messages]
    # The last message may be cut off anywhere, also within the first eight bytes of a section.
    short = max(int(starts[-1]), int(ends[-1]) - cut)
    ends[-1] = short
    body_start, body_end = body_spans(joined[:short], starts, ends)
    assert (body_start[:-1] >= 0).all()
    assert body_end[-1] <= short
