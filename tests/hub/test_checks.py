"""The quick look at an event agrees with taking it apart."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hub.support import message
from tidegate.amqp.message import DecodeError, Message, Properties, annotate, encode_message, sections
from tidegate.hub.checks import check_event

SHAPES: list[Any] = [
    Message(body_kind="data", body=[b"x"]),
    Message(body_kind="data", body=[b"x" * 300, b"y"]),
    Message(body_kind="value", body="text"),
    Message(body_kind="value", body=None),
    Message(body_kind="value", body=7),
    Message(body_kind="sequence", body=[[1, 2], ["three"]]),
    Message(body_kind="data", body=[b"x"], message_annotations={}),
    Message(body_kind="data", body=[b"x"], message_annotations={"x-opt-partition-key": "key"}),
    Message(body_kind="data", body=[b"x"], message_annotations={"x-opt-partition-key": "k" * 300}),
    Message(body_kind="data", body=[b"x"], message_annotations={"a": 1, "x-opt-partition-key": "key"}),
    Message(body_kind="data", body=[b"x"], delivery_annotations={"d": 1}, footer={"f": "g"}),
    Message(
        body_kind="data",
        body=[b"x"],
        properties=Properties(message_id="m", subject="s"),
        application_properties={"n": 1, "t": "u" * 300},
        message_annotations={"b": [1]},
    ),
]


def can_be_delivered(event: bytes) -> bool:
    """The rule, at length."""
    try:
        for _ in sections(event):
            pass
        annotate(event, 0, "0", 0)
    except DecodeError:
        return False
    return bool(event)


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_messages_pass(shape):
    check_event(encode_message(shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_messages_cut_anywhere_are_refused_unless_the_cut_is_between_sections(shape):
    whole = encode_message(shape)
    ends = {section.end for section in sections(whole)}
    for size in range(len(whole)):
        if size in ends:
            check_event(whole[:size])
        else:
            with pytest.raises(DecodeError):
                check_event(whole[:size])


@given(
    st.sampled_from([encode_message(shape) for shape in SHAPES]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    st.binary(max_size=4),
)
def test_altered_messages_are_judged_as_by_taking_them_apart(event, changes, tail):
    altered = bytearray(event + tail)
    for place, value in changes:
        altered[place % len(altered)] = value
    expected = can_be_delivered(bytes(altered))
    try:
        check_event(bytes(altered))
        passed = True
    except DecodeError:
        passed = False
    assert passed == expected


def test_an_empty_event_is_refused():
    with pytest.raises(DecodeError):
        check_event(b"")
    check_event(message(b""))
