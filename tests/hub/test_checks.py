"""The quick look at an event agrees with taking it apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hub.support import message
from tidegate.amqp.encoding.codec import decode
from tidegate.amqp.encoding.types import Int
from tidegate.amqp.messages import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    DecodeError,
    Message,
    Properties,
    annotate,
    encode_message,
    parse_message,
    sections,
)
from tidegate.hub import checks
from tidegate.hub.checks import check_event, check_events
from tidegate.hub.producers import PRODUCER_ID, PRODUCER_SEQUENCE_NUMBER

SHAPES: list[Any] = [
    Message(body_kind="data", body=[b"x"]),
    Message(body_kind="data", body=[b"x" * 300, b"y"]),
    Message(body_kind="value", body="text"),
    Message(body_kind="value", body=None),
    Message(body_kind="value", body=7),
    Message(body_kind="value", body={"a": [1, 2.5, None, True, "é", b"x"], "é": {"b": []}}),
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
    *(
        Message(body_kind="data", body=[b"x"], message_annotations=annotations, application_properties=properties)
        for number in (Int(1), Int(2))
        for annotations in (
            {PRODUCER_SEQUENCE_NUMBER: number, PRODUCER_ID: 5},
            {"x-opt-partition-key": "key", PRODUCER_SEQUENCE_NUMBER: number, "a": "é"},
            {"long": "k" * 300, PRODUCER_SEQUENCE_NUMBER: number},
            {PRODUCER_SEQUENCE_NUMBER: number, "long": "k" * 300},
        )
        for properties in (None, {"a": "b"})
    ),
]


LIST, MAP = list, dict | None
TYPES: dict[int, Any] = {
    HEADER: LIST,
    DELIVERY_ANNOTATIONS: MAP,
    MESSAGE_ANNOTATIONS: MAP,
    PROPERTIES: LIST,
    APPLICATION_PROPERTIES: MAP,
    DATA: bytes,
    SEQUENCE: LIST,
    VALUE: object,
    FOOTER: MAP,
}


def can_be_delivered(event: bytes) -> bool:
    """The rule, at length."""
    try:
        for section in sections(event):
            value, end = decode(event, section.value)
            if end != section.end or not isinstance(value, TYPES[section.code]):
                return False
        annotate(event, 0, 0, 0)
    except DecodeError:
        return False
    return bool(event)


@pytest.fixture
def taken_apart(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The events that were walked through section by section."""
    found: list[bytes] = []
    walk = checks._walk

    def counted(event: bytes) -> tuple[int, bool]:
        found.append(event)
        return walk(event)

    monkeypatch.setattr(checks, "_walk", counted)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_messages_pass(shape: Any) -> None:
    check_event(encode_message(shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_messages_cut_anywhere_are_refused_unless_the_cut_is_between_sections(shape: Any) -> None:
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
def test_altered_messages_are_judged_as_by_taking_them_apart(event: Any, changes: list[Any], tail: bytes) -> None:
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


DATA_X = b"\x00\x53\x75\xa0\x01x"


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(b"\x00\x53\x73\xc0\x05\x02\xff\xff\xff\xff" + DATA_X, id="no such constructor in the properties"),
        pytest.param(b"\x00\x53\x74\xc1\x04\x02\xa1\x09a" + DATA_X, id="a name that runs over the end of its map"),
        pytest.param(
            b"\x00\x53\x74\xc1\x06\x02\xa1\x01a\xa1\x05" + DATA_X, id="a text that runs over the end of its map"
        ),
        pytest.param(b"\x00\x53\x74\xc1\x06\x02\xa1\x01a\x41\x41" + DATA_X, id="one value too many in a map"),
        pytest.param(b"\x00\x53\x74\xc1\x05\x03\xa1\x01a\x41" + DATA_X, id="a name without its value"),
        pytest.param(b"\x00\x53\x74\xc1\x06\x02\xa1\x01\xff\x41" + DATA_X, id="a name that is not UTF-8"),
        pytest.param(b"\x00\x53\x74\xa0\x01a" + DATA_X, id="properties that are bytes"),
        pytest.param(b"\x00\x53\x73\xc1\x01\x00" + DATA_X, id="a map in place of a list"),
        pytest.param(b"\x00\x53\x75\xa1\x01x", id="data that is text"),
        pytest.param(b"\x00\x53\x75\xc0\x01\x00", id="data that is a list"),
        pytest.param(b"\x00\x53\x77\xa1\x01\xff", id="a text that is not UTF-8"),
        pytest.param(b"\x00\x53\x77\xb1\x00\x00\x00\x01\xff", id="a long text that is not UTF-8"),
        pytest.param(b"\x00\x53\x77\xc0\x03\x05\x41\x41", id="a list that is shorter than it says"),
        pytest.param(b"\x00\x53\x76\xc0\x02\x01\x01", id="no such constructor in a sequence"),
        pytest.param(
            b"\x00\x53\x72\xc1\x19\x02\xa3\x13x-opt-partition-key\xa1\x01\xff" + DATA_X,
            id="a partition key that is not UTF-8",
        ),
        pytest.param(b"\x00\x53\x72\xc1\x07\x02\xa3\x01a\xa1\x01\xff" + DATA_X, id="an annotation that is not UTF-8"),
    ],
)
def test_what_no_consumer_could_decode_is_refused(event: Any) -> None:
    for _ in range(2):  # what was refused once is not taken for known
        with pytest.raises(DecodeError):
            check_event(event)


@given(
    st.dictionaries(
        st.text(max_size=5), st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(), max_size=5
    )
)
def test_any_properties_that_can_be_encoded_pass(properties: Any) -> None:
    check_event(encode_message(Message(application_properties=properties, body_kind="data", body=[b"x"])))
    check_event(encode_message(Message(body_kind="value", body=properties)))


@pytest.mark.parametrize("code", range(256))
def test_the_quick_look_knows_the_sizes_of_simple_values(code: int) -> None:
    """Each constructor in a list of one, with all lengths of what follows it."""
    for size in range(20):
        value = bytes((code,)) + b"\x01" * size
        event = b"\x00\x53\x76\xc0" + bytes((1 + len(value), 1)) + value
        if can_be_delivered(event):
            check_event(event)
        else:
            with pytest.raises(DecodeError):
                check_event(event)


def test_an_event_without_a_body_is_named() -> None:
    """JavaScript's client sends no bytes for `body: null`, and shows the refusal."""
    with pytest.raises(DecodeError, match="without a body: give it one"):
        check_event(b"\x00\x53\x75\x40")


def test_an_empty_event_is_refused() -> None:
    with pytest.raises(DecodeError):
        check_event(b"")
    check_event(message(b""))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([encode_message(shape) for shape in SHAPES] + [b"\x00\x53\x72\xc1\x01\x00" + DATA_X]),
            st.sampled_from([DATA_X, b"\x00\x53\x75\xb0\x00\x00\x00\x02xy", b"", b"\x00\x53\x75\xa0\x09x"]),
            st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=1),
        ),
        max_size=6,
    )
)
def test_events_together_are_judged_as_each_alone(made: list[Any]) -> None:
    events = []
    for start, end, changes in made:
        event = bytearray(start + end)
        for place, value in changes:
            event[place % len(event)] = value
        events.append(bytes(event))
    good = [event for event in events if can_be_delivered(event)]
    assert check_events(good) >= any(parse_message(event).message_annotations for event in good if is_message(event))
    if good != events:
        with pytest.raises(DecodeError):
            check_events(events)


def is_message(event: bytes) -> bool:
    try:
        parse_message(event)
    except DecodeError:
        return False
    return True


def test_annotations_are_found_behind_events_without() -> None:
    plain, keyed = message(b"a"), message(b"a", "key")
    assert not check_events([plain, plain, message(b"b" * 300), plain])
    assert check_events([plain, keyed, plain])
    assert check_events([plain, plain, plain + keyed[: -len(plain)] + plain])
    assert not check_events([])


@pytest.mark.parametrize("key", [{}, {"x-opt-partition-key": "key"}])
@pytest.mark.parametrize("number_first", [True, False])
def test_events_that_differ_in_their_producers_number_are_taken_apart_once(
    key: dict[str, Any], number_first: bool, taken_apart: list[bytes]
) -> None:
    events = []
    for number in range(1_000, 1_100):  # a number below 128 is encoded in one byte
        numbered = {PRODUCER_SEQUENCE_NUMBER: Int(number)}
        annotations = {**numbered, PRODUCER_ID: 5, **key} if number_first else {**key, PRODUCER_ID: 5, **numbered}
        body = [b"x" * (number - 900)]
        events.append(encode_message(Message(body_kind="data", body=body, message_annotations=annotations)))
    assert check_events(events)
    assert len(taken_apart) == 1


@pytest.mark.parametrize("body", [b"x" * 200, b"x" * 300])
@pytest.mark.parametrize("key", [None, "key"])
@pytest.mark.parametrize("at", [0, 1, 50, 99])
def test_one_bad_event_among_many_that_begin_alike_is_found(body: bytes, key: str | None, at: int) -> None:
    events = [message(body[: 50 * index + 130], key) for index in range(100)]
    assert check_events(events) == (key is not None)
    good = events[at]
    # cut off, with a byte too many, and of another kind than its first byte says
    for bad in (good[:-1], good + b"x", good[: 5 if key is None else 40], b"", b"\x01" + good[1:]):
        events[at] = bad
        with pytest.raises(DecodeError):
            check_events(events)
    events[at] = message(body, "another" if key is None else "a longer one")
    assert check_events(events)


def test_many_events_that_begin_alike_are_taken_apart_once(taken_apart: list[bytes]) -> None:
    assert not check_events([message(b"x" * size) for size in range(1, 200)])
    assert len(taken_apart) == 1
