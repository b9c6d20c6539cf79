"""Record batches of Kafka's clients in the log: stored as they came, read as batches and as events."""

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.support import HeldCommitter, InlineCommitter, SetClock, append, open_log
from tidegate.kafka.compression import Compression
from tidegate.kafka.records import decode, encode, parse_batch
from tidegate.kafka.translation import events_of
from tidegate.log import Appended, LogDamaged, LogError, PartitionLog, SegmentReader


def batch_of(values: list[bytes], compression: Compression = Compression.NONE) -> bytes:
    return encode(values, timestamps_ms=[5] * len(values), compression=compression)


def append_batch(log: PartitionLog, data: bytes) -> Appended:
    answers: list[Appended | LogError] = []
    log.append_batch(parse_batch(data), answers.append)
    (appended,) = answers
    assert isinstance(appended, Appended)
    return appended


def read(log: PartitionLog, sequence_number: int, max_bytes: int = 1 << 20) -> list[tuple[int, list[bytes | None]]]:
    found = []
    for data in log.read_record_batches(sequence_number, max_bytes=max_bytes).batches:
        batch = parse_batch(data)
        batch.check()
        assert batch.has_append_time
        found.append((batch.base_offset, decode(batch).values))
    return found


def test_a_batch_is_stored_as_it_came_but_for_its_place_and_time(tmp_path: Path) -> None:
    clock = SetClock()
    with closing(open_log(tmp_path, clock=clock, committer=InlineCommitter())) as log:
        append(log, [b"\x00\x53\x75\xa0\x01a"])
        sent = batch_of([b"one" * 30, b"two" * 30], Compression.ZSTD)
        appended = append_batch(log, sent)
        assert (appended.first_sequence_number, appended.count) == (1, 2)
        (stored,) = log.read_record_batches(1, max_bytes=1).batches
        batch = parse_batch(stored)
        batch.check()
        assert (batch.base_offset, batch.max_timestamp_ms) == (1, appended.enqueued_time_ms)
        assert batch.data[61:] == sent[61:]
        assert log.next_sequence_number == 3


def test_offsets_of_tiny_records_are_inside_the_entry(tmp_path: Path) -> None:
    with closing(open_log(tmp_path, clock=SetClock(), committer=InlineCommitter())) as log:
        first = append_batch(log, batch_of([b""] * 1000, Compression.GZIP))
        second = append_batch(log, batch_of([b"x"]))
        assert first.last_offset == first.first_offset + 4 * 999 < second.first_offset
        assert log.sequence_after_offset(first.last_offset, inclusive=True) == 999
        assert log.sequence_after_offset(first.last_offset, inclusive=False) == 1000
        assert log.sequence_after_offset(first.first_offset + 8, inclusive=True) == 2


kinds = st.lists(st.tuples(st.booleans(), st.lists(st.binary(max_size=40), min_size=1, max_size=4)), max_size=8)


@given(kinds, st.integers(0, 40), st.sampled_from(list(Compression)))
def test_both_kinds_are_read_as_batches_and_as_events(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[tuple[bool, list[bytes]]],
    first: int,
    compression: Compression,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    committer = HeldCommitter()
    bodies: list[bytes] = []
    with closing(open_log(directory, clock=SetClock(), committer=committer, segment_bytes=500)) as log:
        for as_batch, values in appends:
            if as_batch:
                log.append_batch(parse_batch(batch_of(values, compression)), lambda _: None)
            else:
                log.append(events_of(parse_batch(batch_of(values))), lambda _: None)
            bodies += values
            if len(values) > 1:  # otherwise together with the next one
                committer.run()
        committer.run()
        wanted = list(enumerate(bodies))[first:]
        pairs = [(base + place, value) for base, values in read(log, first) for place, value in enumerate(values)]
        assert [pair for pair in pairs if pair[0] >= first] == wanted
        events = [
            (batch.base_sequence_number + place, event)
            for batch in log.read_batches(first)
            for place, event in enumerate(batch.events)
        ]
        assert events == [(number, events_of(parse_batch(batch_of([body])))[0]) for number, body in wanted]
        entries = list(SegmentReader(directory).read_entries(0, log.next_sequence_number))
        assert [event for entry in entries for event in entry.events()] == [
            events_of(parse_batch(batch_of([body])))[0] for body in bodies
        ]
    with closing(open_log(directory, clock=SetClock(), committer=InlineCommitter())) as log:
        assert log.next_sequence_number == len(bodies)


def test_events_are_given_as_batches_within_the_limit(tmp_path: Path) -> None:
    with closing(open_log(tmp_path, clock=SetClock(), committer=InlineCommitter())) as log:
        for number in range(4):
            append_batch(log, batch_of([b"%d" % number * 100]))
        one = len(log.read_record_batches(0, max_bytes=1).batches[0])
        assert [base for base, _ in read(log, 1, 2 * one)] == [1, 2]
        assert log.read_record_batches(4, max_bytes=10) == ([], 0, 4)
        found = log.read_record_batches(1, max_bytes=2 * one)
        assert (found.event_count, found.next_sequence_number) == (2, 3)


def test_a_batch_of_which_a_byte_has_changed_is_damaged(tmp_path: Path) -> None:
    with closing(open_log(tmp_path, clock=SetClock(), committer=InlineCommitter())) as log:
        append_batch(log, batch_of([b"first record"]))
        append_batch(log, batch_of([b"second"]))
        (path,) = tmp_path.glob("*.log")
        data = path.read_bytes()
        path.write_bytes(data.replace(b"first record", b"worst record"))
        with pytest.raises(LogDamaged) as damage:
            log.read_record_batches(0, max_bytes=10)
        assert damage.value.resume_sequence_number == 1
        assert read(log, 1) == [(1, [b"second"])]
