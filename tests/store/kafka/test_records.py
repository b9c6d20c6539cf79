"""Events, records of others and markers in a topic's record batches."""

import pytest

from tidegate.kafka.records import BatchError, Header, encode, parse_batch, rebase
from tidegate.kafka.translation import event_of
from tidegate.log import EventBatch
from tidegate.store.kafka.records import (
    MARKER,
    MESSAGE,
    Marker,
    encode_marker,
    encode_messages,
    last_append_time_ms,
    parse_marker,
    read_records,
)

PRODUCER = (7, 0, 0)
EVENTS = [b"\0Su\xa0\x01a", b"", b"anything, byte for byte"]


def stored(encoded: bytes, offset: int, stamp_ms: int) -> bytes:
    return rebase(parse_batch(encoded), offset, stamp_ms)


def batch(first: int, time_ms: int, events: list[bytes]) -> EventBatch:
    return EventBatch(first, time_ms, range(first, first + len(events)), events)


def test_messages_come_back_byte_for_byte() -> None:
    found = read_records(stored(encode_messages(EVENTS, 1, PRODUCER), 10, 500), 10, 0)
    assert found.batches == [batch(10, 500, EVENTS)]
    assert (found.next_offset, found.floor_ms, found.marker) == (13, 500, None)


def test_reading_begins_in_the_middle_of_a_batch_and_ends_before_one_that_is_cut_off() -> None:
    records = stored(encode_messages(EVENTS, 1, PRODUCER), 10, 500) + stored(
        encode_messages(EVENTS, 1, PRODUCER), 13, 600
    )
    found = read_records(records[:-1], 12, 0)
    assert found.batches == [batch(12, 500, EVENTS[2:])]
    assert found.next_offset == 13


def test_times_never_go_back() -> None:
    records = b"".join(
        stored(encode_messages([b"x"], 1, PRODUCER), number, stamp) for number, stamp in enumerate([5, 3, 9, 8])
    )
    assert [one.enqueued_time_ms for one in read_records(records, 0, 4).batches] == [5, 5, 9, 9]


def test_markers_are_left_out_and_their_time_counts() -> None:
    marker = Marker(11, 500, 13)
    records = stored(encode_marker(marker, 1, PRODUCER), 13, 900)
    found = read_records(records, 13, 500)
    assert (found.batches, found.next_offset, found.floor_ms, found.marker) == ([], 14, 900, marker)


def test_a_marker_that_cannot_be_read_says_nothing() -> None:
    assert parse_marker(None) == parse_marker(b"?") == parse_marker(b"\x02" + bytes(24)) == Marker(-1, 0, 0)


def test_records_of_others_are_translated_between_ours() -> None:
    headers: list[tuple[Header, ...]] = [MESSAGE, (("h", b"v"),), (), MARKER, MESSAGE]
    encoded = encode(
        [b"message", b"value", None, b"?", b"last"],
        timestamps_ms=[1] * 5,
        keys=[None, b"key", None, None, None],
        headers=headers,
    )
    found = read_records(stored(encoded, 20, 7), 20, 0)
    translated = event_of(b"key", b"value", (("h", b"v"),))
    assert found.batches == [
        batch(20, 7, [b"message", translated, event_of(None, None, ())]),
        batch(24, 7, [b"last"]),
    ]
    assert found.marker is None


def test_damage_is_noticed() -> None:
    records = bytearray(stored(encode_messages(EVENTS, 1, PRODUCER), 0, 5))
    records[-1] ^= 1
    with pytest.raises(BatchError, match="checksum"):
        read_records(bytes(records), 0, 0)


def test_the_time_of_a_place() -> None:
    records = stored(encode_messages(EVENTS, 1, PRODUCER), 10, 500) + stored(encode_messages([b""], 1, PRODUCER), 13, 4)
    assert [last_append_time_ms(records, offset) for offset in (9, 10, 12, 13, 14)] == [None, 500, 500, 4, None]
