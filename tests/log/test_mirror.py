"""A log as another process sees it: what its owner says is durable, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.support import HeldCommitter, InlineCommitter, QuickFiles, SetClock
from tidegate.kafka.records import RecordBatch
from tidegate.log import FACTS_BYTES, LogClosed, LogDamaged, LogError, LogFacts, LogMirror, PartitionLog, facts_of
from tidegate.log.group import OnDurable


class Owner:
    """The owner's log in this process."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.asked = 0
        self.watched = False

    def append(self, events: Sequence[bytes | memoryview], on_durable: OnDurable) -> None:
        self.log.append(events, on_durable)

    def append_batch(self, batch: RecordBatch, on_durable: OnDurable) -> None:
        self.log.append_batch(batch, on_durable)

    def watch(self, is_watched: bool) -> None:
        self.watched = is_watched

    def facts(self) -> tuple[LogFacts, int]:
        self.asked += 1
        bound = self.log.arrival_lower_bound()
        return facts_of(self.log), bound.lower_bound_ms


def open_log(folder: Path, clock: SetClock) -> PartitionLog:
    return PartitionLog.open(folder, clock=clock, committer=InlineCommitter(), segment_bytes=700, files=QuickFiles())


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def owner(tmp_path: Path, clock: SetClock) -> Iterator[Owner]:
    log = open_log(tmp_path / "log", clock)
    yield Owner(log)
    log.close()


@pytest.fixture
def mirror(owner: Owner) -> LogMirror:
    return LogMirror(owner.log.directory, facts_of(owner.log), owner)


def events(log: PartitionLog, first: int = 0) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while batches := log.read_batches(first, max_events=7):
        for batch in batches:
            found += enumerate(batch.events, batch.base_sequence_number)
        first = found[-1][0] + 1
    return found


def test_it_shows_what_the_owner_has_said_is_durable(owner: Owner, mirror: LogMirror) -> None:
    grown = []
    unsubscribe = mirror.on_grow(lambda: grown.append(mirror.next_sequence_number))
    assert owner.watched
    for number in range(100):
        owner.log.append([b"event %d" % number], lambda _: None)
    assert mirror.is_empty
    assert events(mirror) == []
    mirror.update(facts_of(owner.log))
    assert grown == [100]
    unsubscribe()
    unsubscribe()
    assert not owner.watched
    assert events(mirror) == events(owner.log) == [(number, b"event %d" % number) for number in range(100)]
    assert (mirror.last_offset, mirror.log_id) == (owner.log.last_offset, owner.log.log_id)
    offset = owner.log.read_batches(60)[0].offsets[0]
    assert mirror.sequence_after_offset(offset, inclusive=True) == 60
    assert mirror.sequence_at_time(0, inclusive=True) == 0


def test_facts_that_are_older_than_known_ones_change_nothing(owner: Owner, mirror: LogMirror) -> None:
    owner.log.append([b"a"], lambda _: None)
    older = facts_of(owner.log)
    owner.log.append([b"b"], lambda _: None)
    mirror.update(facts_of(owner.log))
    mirror.update(older)
    assert mirror.next_sequence_number == 2


def test_a_bound_holds_for_what_comes_after_the_events_that_are_shown(
    owner: Owner, mirror: LogMirror, clock: SetClock
) -> None:
    owner.log.append([b"a"], lambda _: None)
    clock.time_ms += 1000
    bound = mirror.arrival_lower_bound()
    assert bound == (1, clock.time_ms)
    assert mirror.next_sequence_number == 1


def test_what_retention_deletes_meanwhile_is_passed_over(owner: Owner, mirror: LogMirror, clock: SetClock) -> None:
    for number in range(100):
        owner.log.append([b"event %d" % number], lambda _: None)
    mirror.update(facts_of(owner.log))
    clock.time_ms += 1000
    owner.log.apply_retention(before_ms=clock.time_ms, keep_from=50)
    begin = owner.log.begin_sequence_number
    assert 0 < begin <= 50
    assert events(mirror) == events(owner.log)
    assert mirror.begin_sequence_number == begin


def test_damage_is_reported(owner: Owner, mirror: LogMirror) -> None:
    for number in range(3):
        owner.log.append([b"event %d" % number], lambda _: None)
    mirror.update(facts_of(owner.log))
    (segment,) = owner.log.directory.glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b"event 1", b"EVENT 1"))
    with pytest.raises(LogDamaged):
        mirror.read_batches(1)
    assert owner.asked == 1


def test_appends_go_to_the_owner_until_it_is_closed(owner: Owner, mirror: LogMirror) -> None:
    mirror.append([b"a"], lambda _: None)
    assert owner.log.next_sequence_number == 1
    with pytest.raises(ValueError, match="at least one"):
        mirror.append([], lambda _: None)
    mirror.close()
    with pytest.raises(LogClosed):
        mirror.append([b"b"], lambda _: None)


def test_a_folder_without_the_segments_is_refused(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(LogError, match="no segment"):
        LogMirror(tmp_path / "other", facts_of(owner.log), owner)


def test_an_append_in_progress_is_not_shown(tmp_path: Path, clock: SetClock) -> None:
    committer = HeldCommitter()
    log = PartitionLog.open(tmp_path / "held", clock=clock, committer=committer, files=QuickFiles())
    mirror = LogMirror(log.directory, facts_of(log), Owner(log))
    mirror.append([b"a"], lambda _: None)
    mirror.refresh()
    assert mirror.is_empty
    committer.run()
    mirror.refresh()
    assert events(mirror) == [(0, b"a")]
    log.close()


@given(numbers=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 9), log_id=st.binary(min_size=16, max_size=16))
def test_facts_travel_unchanged(numbers: tuple[int, ...], log_id: bytes) -> None:
    encoded = b"x" * 3 + b"".join(number.to_bytes(8, "little", signed=True) for number in numbers[:6])
    encoded += log_id + b"".join(number.to_bytes(8, "little", signed=True) for number in numbers[6:])
    facts = LogFacts.decode(encoded, 3)
    assert facts.encode() == encoded[3:]
    assert len(facts.encode()) == FACTS_BYTES
