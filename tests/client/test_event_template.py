"""Events made from a template are those that the encoder makes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.amqp import Message, encode_message, parse_message
from tidegate.amqp.encoding.types import Int, Short
from tidegate.client.producer import EventTemplate

NUMBER = "com.microsoft:producer-sequence-number"
TEXTS = st.text(max_size=300)


@given(
    key=st.none() | TEXTS,
    properties=st.none() | st.dictionaries(st.text(max_size=5), TEXTS | st.integers(-9, 9) | st.booleans(), max_size=3),
    number=st.integers(0, 2**33),
    body=st.binary(max_size=600),
    numbered=st.booleans(),
)
def test_a_filled_template_is_the_encoded_event(
    key: str | None, properties: dict[str, Any] | None, number: int, body: bytes, numbered: bool
) -> None:
    annotations: dict[str, Any] = {"com.microsoft:producer-epoch": Short(7)} | ({"key": key} if key is not None else {})
    event = EventTemplate.of(annotations, properties, NUMBER if numbered else None).fill(number, body)
    own = {NUMBER: Int(number % 2**31)} if numbered else {}
    expected = encode_message(
        Message(
            message_annotations=own | annotations,
            application_properties=properties or None,
            body_kind="data",
            body=[body],
        )
    )
    assert parse_message(event) == parse_message(expected)


def test_a_placeholder_in_a_key_is_left_alone() -> None:
    event = EventTemplate.of({"key": (0x5EEDBEAD).to_bytes(4, "big")}, None, NUMBER).fill(5, b"")
    found = parse_message(event).message_annotations or {}
    assert found[NUMBER] == 5
    assert bytes(found["key"]) == (0x5EEDBEAD).to_bytes(4, "big")
