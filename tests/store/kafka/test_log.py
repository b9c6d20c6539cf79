"""Numbers, times and lower bounds of a partition, whatever the brokers' clocks do and wherever reading begins."""

import asyncio
from itertools import accumulate
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from tests.store.kafka.simulated import WHERE, SimulatedPartition
from tidegate.kafka.compression import Compression
from tidegate.kafka.records import HEADER_BYTES, decode, encode, parse_batch
from tidegate.log import EventBatch
from tidegate.store.kafka.log import KafkaLog, running_maximum_ms
from tidegate.store.kafka.records import Marker, encode_marker, encode_messages

PRODUCER = (1, 0, 0)

stamps = st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 4)), min_size=1, max_size=12)
"""The stamps of batches, and how many events each has; none is a marker."""


def filled(batches: list[tuple[int, int]]) -> tuple[SimulatedPartition, list[tuple[int, int, bytes]]]:
    """Return a partition, and the number, enqueued time and content of each event in it."""
    partition = SimulatedPartition()
    expected: list[tuple[int, int, bytes]] = []
    last, last_ms, highest = -1, 0, 0
    for stamp_ms, count in batches:
        highest = max(highest, stamp_ms)
        if not count:
            partition.append(encode_marker(Marker(last, last_ms, partition.end), 1, PRODUCER), stamp_ms)
            continue
        events = [b"%d" % (partition.end + index) for index in range(count)]
        first = partition.append(encode_messages(events, 1, PRODUCER), stamp_ms)
        expected += [(first + index, highest, event) for index, event in enumerate(events)]
        last, last_ms = expected[-1][:2]
    return partition, expected


def opened(partition: SimulatedPartition) -> KafkaLog:
    log = KafkaLog(
        SimpleNamespace(
            cluster=partition,
            producer=(1, 0),
            wake=lambda log: None,
            forget=lambda log: None,
            wait=asyncio.run,
        ),
        WHERE,
        "id",
    )
    asyncio.run(log.locate())
    return log


def flat(batches: list[EventBatch]) -> list[tuple[int, int, bytes]]:
    return [
        (batch.base_sequence_number + index, batch.enqueued_time_ms, event)
        for batch in batches
        for index, event in enumerate(batch.events)
    ]


def test_clients_of_kafka_read_batches_as_they_came_and_messages_as_records() -> None:
    partition, _ = filled([(5, 2)])
    log = opened(partition)
    values, headers = [b"x" * 100, b"y"], [[("colour", b"red")], []]
    batch = encode(values, timestamps_ms=[1, 2], keys=[b"k", None], headers=headers, compression=Compression.GZIP)
    partition.append(encode_marker(Marker(1, 5, 2), 1, PRODUCER), 6)
    first = partition.append(batch, 4)
    partition.append(encode_messages([b"", b""], 1, PRODUCER), 9)

    def read(at: int, max_bytes: int = 1 << 20) -> list[tuple[int, int, int]]:
        found = log.read_record_batches(at, max_bytes=max_bytes)
        batches = [parse_batch(one) for one in found.batches]
        for one in batches:
            one.check()
            if one.base_offset == first:
                assert bytes(one.data[HEADER_BYTES:]) == batch[HEADER_BYTES:]
                columns = decode(one)
                assert (columns.values, columns.headers) == (values, [(("colour", b"red"),), ()])
        assert found.next_sequence_number == (batches[-1].next_offset if batches else at)
        assert found.event_count == sum(one.next_offset - max(at, one.base_offset) for one in batches)
        return [(one.base_offset, one.count, one.max_timestamp_ms) for one in batches]

    ways = ["fetched", "among the last"]
    for way in ways:
        if way == "fetched":
            log = opened(partition)
        else:
            log = opened(filled([(5, 2)])[0])
            log._cluster.batches[:], log._cluster.end = partition.batches, partition.end
            asyncio.run(log.catch_up_soon())
        assert read(first, 1) == [(first, 2, 6)]
        assert read(first + 1) == [(first, 2, 6), (first + 2, 2, 9)]
        assert read(0)[0] == (0, 2, 5)
        assert read(partition.end) == []


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=20))
def test_the_running_maximum_is_found_without_reading_what_lies_before(stamps_ms: list[int]) -> None:
    partition = SimulatedPartition()
    for stamp_ms in stamps_ms:
        partition.append(encode_messages([b"x", b"y"], 1, PRODUCER), stamp_ms)
    highest = [0, *(value for stamp in accumulate(stamps_ms, max) for value in (stamp, stamp))]
    for offset in range(partition.end + 1):
        partition.lookups = 0
        assert asyncio.run(running_maximum_ms(partition, WHERE, offset)) == highest[offset]
        assert partition.lookups < 2 * 45


def test_clocks_that_agree_cost_one_question() -> None:
    partition, _ = filled([(stamp_ms, 1) for stamp_ms in range(1, 50)])
    asyncio.run(running_maximum_ms(partition, WHERE, 40))
    assert partition.lookups == 2  # where the partition begins, and whether there was a later stamp


@given(stamps, st.integers(1, 200))
def test_wherever_reading_begins_events_have_the_same_numbers_and_times(
    batches: list[tuple[int, int]], max_bytes: int
) -> None:
    partition, expected = filled(batches)
    log = opened(partition)
    assert log.next_sequence_number == (expected[-1][0] + 1 if expected else 0)
    assert log.last_enqueued_time_ms == (expected[-1][1] if expected else 0)
    assert log.is_empty == (not expected)
    for first in range(partition.end + 1):
        found: list[tuple[int, int, bytes]] = []
        position = first
        while batch := asyncio.run(log.read(position, max_bytes=max_bytes)):
            found += flat(batch)
            position = found[-1][0] + 1
        assert found == [event for event in expected if event[0] >= first]


@given(stamps, st.integers(1, 60_000))
def test_a_position_by_time_is_the_first_event_at_it_or_after(batches: list[tuple[int, int]], time_ms: int) -> None:
    partition, expected = filled(batches)
    log = opened(partition)
    found = asyncio.run(log.find_time(time_ms, inclusive=True))
    due = [number for number, enqueued_ms, _ in expected if enqueued_ms >= time_ms]
    if due:
        # markers, which nobody sees, may lie before the event
        assert found <= due[0]
        assert not [number for number, _, _ in expected if found <= number < due[0]]
    else:
        assert found == log.next_sequence_number


@given(stamps, stamps)
def test_no_event_comes_before_a_lower_bound(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> None:
    bound = opened(filled(before)[0]).arrival_lower_bound()
    _, expected = filled([*before, *after])
    assert all(
        enqueued_ms >= bound.lower_bound_ms
        for number, enqueued_ms, _ in expected
        if number >= bound.next_sequence_number
    )


def test_a_marker_raises_the_bound_of_an_idle_partition() -> None:
    before = opened(filled([(100, 1)])[0]).arrival_lower_bound()
    after = opened(filled([(100, 1), (900, 0)])[0]).arrival_lower_bound()
    assert (before.lower_bound_ms, after.lower_bound_ms) == (100, 900)
    assert before.next_sequence_number == after.next_sequence_number == 1


def test_an_event_between_a_marker_and_what_its_writer_knew_is_found() -> None:
    partition, _ = filled([(100, 1), (200, 3)])
    partition.append(encode_marker(Marker(0, 100, 1), 1, PRODUCER), 300)
    log = opened(partition)
    assert (log.next_sequence_number, log.last_enqueued_time_ms) == (4, 200)


def test_limits_of_a_read() -> None:
    partition, expected = filled([(5, 4), (6, 4)])
    log = opened(partition)
    assert flat(asyncio.run(log.read(1, max_events=2))) == expected[1:3]
    assert flat(asyncio.run(log.read(0, max_events=6))) == expected[:6]
    assert flat(asyncio.run(log.read(0, max_bytes=0))) == expected[:1]
    assert asyncio.run(log.read(8)) == []


def test_events_are_kept_only_for_those_who_read_and_are_the_same_either_way() -> None:
    partition, expected = filled([(5, 2)])
    log = opened(partition)

    def append(events: list[bytes]) -> None:
        log.append(events, lambda result: None)
        sent = log.next_batch()
        assert sent is not None
        first = partition.append(sent.encoded, 6)
        log.acknowledged(first, 6)
        expected.extend((first + index, 6, event) for index, event in enumerate(events))

    append([b"a", b"b"])
    assert log.read_cached(2) is None
    assert flat(log.read_batches(0)) == expected
    append([b"c"])
    kept = log.read_cached(4)
    assert kept is not None
    assert flat(kept) == expected[4:]
    assert flat(log.read_batches(0)) == expected
