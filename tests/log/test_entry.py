"""Entries to bytes and back, and bytes that are none."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.log.entry import (
    EntryDamaged,
    EntryView,
    JoinedEvents,
    ReadAt,
    encode_entry,
    next_intact,
    walk,
    walk_past_damage,
)

events_lists = st.lists(st.binary(max_size=40), min_size=1, max_size=12)


def reader(data: bytes, base: int = 0) -> ReadAt:
    return lambda position, size: data[position - base : position - base + size]


def encode(events: list[bytes], sequence: int = 5, time_ms: int = 7, position: int = 64, synced: int = 64) -> bytes:
    return b"".join(encode_entry(events, sequence, time_ms, position, synced))


@given(events_lists, st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**50).map(lambda n: 8 * n))
def test_an_entry_comes_back_as_it_went(events: Any, sequence: Any, time_ms: Any, position: Any) -> None:
    data = encode(events, sequence, time_ms, position, position // 2)
    assert len(data) % 8 == 0
    (entry,) = walk(reader(data, position), position, position + len(data))
    assert entry.events() == events
    assert entry.base_sequence_number == sequence
    assert entry.enqueued_time_ms == time_ms
    assert entry.first_offset == position
    assert entry.synced_position == position // 2
    assert entry.next_sequence_number == sequence + len(events)
    assert entry.end_position == position + len(data)


@given(st.lists(events_lists, min_size=1, max_size=4), st.data())
def test_joined_events_become_the_same_entry(publications: list[list[bytes]], data: st.DataObject) -> None:
    events = [event for publication in publications for event in publication]
    parts = [data.draw(st.sampled_from([part, JoinedEvents.of([part])])) for part in publications]
    joined = JoinedEvents.of(parts)
    assert len(joined) == len(events)
    assert b"".join(encode_entry(joined, 5, 7, 64, 64)) == encode(events)


@given(events_lists)
def test_numpy_reads_the_table_and_the_payload_as_documented(events: Any) -> None:
    data = encode(events)
    (entry,) = walk(reader(data, 64), 64, 64 + len(data))
    ends = np.frombuffer(entry.ends, "<u4")
    assert ends.tolist() == np.cumsum([len(event) for event in events]).tolist()
    assert ends.flags.aligned
    assert bytes(entry.payload) == b"".join(events)
    offsets = entry.first_offset + 4 * np.arange(entry.count)
    assert len(set(offsets.tolist())) == len(events)
    assert offsets[-1] < entry.end_position


@given(events_lists, st.data())
def test_a_flipped_bit_anywhere_is_noticed(events: Any, data: Any) -> None:
    good = encode(events)
    bit = data.draw(st.integers(0, 8 * len(good) - 1))
    bad = bytearray(good)
    bad[bit // 8] ^= 1 << bit % 8
    with pytest.raises(EntryDamaged):
        list(walk(reader(bytes(bad), 64), 64, 64 + len(bad)))


@given(events_lists, st.data())
def test_a_cut_entry_is_noticed(events: Any, data: Any) -> None:
    good = encode(events)
    short = good[: data.draw(st.integers(1, len(good) - 1))]
    with pytest.raises(EntryDamaged):
        list(walk(reader(short, 64), 64, 64 + len(short)))


@given(st.binary(max_size=300), st.integers(0, 3))
def test_any_bytes_are_entries_or_damage(data: Any, marks: Any) -> None:
    data = data[:100] + b"TGE1" * marks + data[100:]
    list(walk_past_damage(reader(data), 0, len(data)))


def test_an_entry_that_lies_elsewhere_is_not_this_logs() -> None:
    data = encode([b"x"], position=64)
    with pytest.raises(EntryDamaged, match="belongs to position 64"):
        list(walk(reader(data, 128), 128, 128 + len(data)))


@given(st.lists(events_lists, min_size=1, max_size=8), st.integers(64, 400))
def test_the_size_of_chunks_changes_nothing(entries: Any, chunk_bytes: Any) -> None:
    data = b""
    for events in entries:
        data += encode(events, 0, 0, len(data), 0)
    found = list(walk(reader(data), 0, len(data), chunk_bytes))
    assert [entry.events() for entry in found] == entries


def test_after_damage_the_walk_goes_on_at_the_next_intact_entry() -> None:
    parts: list[bytes] = []
    for number in range(5):
        parts.append(encode([b"%d" % number], number, 0, sum(map(len, parts)), 0))
    data = bytearray(b"".join(parts))
    second = len(parts[0])
    data[second + 50] ^= 1
    found = list(walk_past_damage(reader(bytes(data)), 0, len(data)))
    kinds = [item.base_sequence_number if isinstance(item, EntryView) else "damage" for item in found]
    assert kinds == [0, "damage", 2, 3, 4]


def test_an_entry_quoted_in_a_payload_is_not_taken_for_one() -> None:
    inner = encode([b"fake"], 9, 0, 0, 2**40)
    data = encode([b"1234" + inner], 0, 0, 0, 0)
    assert next_intact(reader(data), 8, len(data)) is None


@given(events_lists, st.data())
def test_a_part_of_the_events(events: Any, data: Any) -> None:
    encoded = encode(events)
    (entry,) = walk(reader(encoded, 64), 64, 64 + len(encoded))
    first = data.draw(st.integers(0, len(events)))
    last = data.draw(st.integers(first, len(events)))
    assert entry.events(first, last) == events[first:last]
