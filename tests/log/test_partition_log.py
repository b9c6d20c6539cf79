"""The log against a list, and what it guarantees, one by one."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.log.support import FaultyFiles, HeldCommitter, InlineCommitter, SetClock, append, open_log, stored
from tests.patience import PATIENCE_S
from tests.profiles import example_count
from tidegate.log import Appended, Committer, LogClosed, LogError, PartitionLog, SegmentReader

SEGMENT_BYTES = 700


class LogMachine(RuleBasedStateMachine):
    """A partition log is a list whose beginning may go away by whole segments."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.clock = SetClock()
        self.committer = HeldCommitter()
        self.model: list[tuple[int, int, int, bytes]] = []
        self.waiting: list[tuple[list[bytes], list[Appended | LogError]]] = []
        self.grown = 0
        self.log = self.open()

    def open(self) -> PartitionLog:
        log = open_log(self.directory, clock=self.clock, committer=self.committer, segment_bytes=SEGMENT_BYTES)
        assert log.recovery.truncated_bytes == 0
        assert log.recovery.damages == ()
        return log

    @rule(events=st.lists(st.binary(max_size=30), min_size=1, max_size=5))
    def append(self, events: list[bytes]) -> None:
        answers: list[Appended | LogError] = []
        self.log.append(events, answers.append)
        self.waiting.append((events, answers))
        assert not answers

    @rule()
    def commit(self) -> None:
        self.committer.run()
        for events, answers in self.waiting:
            (appended,) = answers
            assert isinstance(appended, Appended)
            first = self.model[-1][0] + 1 if self.model else self.log.next_sequence_number - self.waiting_events()
            assert appended.first_sequence_number == first
            assert appended.count == len(events)
            assert appended.last_offset == appended.first_offset + 4 * (len(events) - 1)
            if self.model:
                assert appended.first_offset > self.model[-1][1]
                assert appended.enqueued_time_ms >= self.model[-1][2]
            assert appended.enqueued_time_ms >= self.clock.time_ms or self.model
            for number, event in enumerate(events):
                offset = appended.first_offset + 4 * number
                self.model.append((first + number, offset, appended.enqueued_time_ms, event))
        self.waiting.clear()

    def waiting_events(self) -> int:
        return sum(len(events) for events, _ in self.waiting)

    @rule(step=st.integers(-5000, 5000))
    def set_clock(self, step: int) -> None:
        self.clock.time_ms += step

    @precondition(lambda self: not self.waiting)
    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = self.open()

    @precondition(lambda self: not self.waiting)
    @rule(lose=st.sampled_from(["cut", "half", "garbage"]))
    def reopen_with_a_lost_index(self, lose: str) -> None:
        self.log.close()
        for path in self.directory.glob("*.index"):
            data = path.read_bytes()
            path.write_bytes({"cut": b"", "half": data[: len(data) // 2], "garbage": b"\x07" * len(data)}[lose])
        self.log = self.open()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def retain_by_time(self, data: st.DataObject) -> None:
        before_ms = data.draw(st.sampled_from(self.model))[2] + data.draw(st.integers(-1, 1))
        keep_from = data.draw(st.none() | st.integers(self.model[0][0], self.model[-1][0] + 1))
        self.log.apply_retention(before_ms=before_ms, keep_from=keep_from)
        gone = [row for row in self.model if row[0] < self.log.begin_sequence_number]
        assert all(row[2] < before_ms for row in gone)
        assert keep_from is None or all(row[0] < keep_from for row in gone)
        self.model = self.model[len(gone) :]

    @rule(max_bytes=st.integers(0, 4 * SEGMENT_BYTES))
    def retain_by_size(self, max_bytes: int) -> None:
        self.log.apply_retention(max_bytes=max_bytes)
        self.model = [row for row in self.model if row[0] >= self.log.begin_sequence_number]
        assert self.log.size_bytes <= max_bytes or len(list(self.directory.glob("*.log"))) == 1

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def search(self, data: st.DataObject) -> None:
        sequence, offset, time_ms, _ = data.draw(st.sampled_from(self.model))
        end = self.log.next_sequence_number
        assert self.log.sequence_after_offset(offset, inclusive=True) == sequence
        assert self.log.sequence_after_offset(offset, inclusive=False) == sequence + 1
        off = offset + data.draw(st.integers(-9, 9))
        for inclusive in (True, False):
            after = [row[0] for row in self.model if row[1] > off or (inclusive and row[1] == off)]
            assert self.log.sequence_after_offset(off, inclusive=inclusive) == (after[0] if after else end)
            at = time_ms + data.draw(st.integers(-2, 2))
            later = [row[0] for row in self.model if row[2] > at or (inclusive and row[2] == at)]
            assert self.log.sequence_at_time(at, inclusive=inclusive) == (later[0] if later else end)
        later = [row[0] for row in self.model if row[2] >= time_ms]
        assert SegmentReader(self.directory).sequence_at_time(time_ms) == later[0]

    @rule(data=st.data())
    def read_some(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, self.log.next_sequence_number + 2))
        max_events = data.draw(st.integers(1, 5))
        max_bytes = data.draw(st.integers(1, 100))
        expected = [row for row in self.model if row[0] >= start]
        assert stored(self.log, start, max_events=max_events, max_bytes=max_bytes) == expected
        for batches in [self.log.read_batches(start, max_events=max_events, max_bytes=max_bytes)]:
            events = [event for batch in batches for event in batch.events]
            assert len(events) <= max_events
            assert len(events) <= 1 or sum(map(len, events)) <= max_bytes

    @rule(data=st.data())
    def read_from_another_process(self, data: st.DataObject) -> None:
        end = self.log.next_sequence_number
        start = data.draw(st.integers(self.log.begin_sequence_number, end))
        stop = data.draw(st.integers(start, end))
        reader = SegmentReader(self.directory)
        rows = [
            (entry.base_sequence_number + i, entry.first_offset + 4 * i, entry.enqueued_time_ms, event)
            for entry in reader.read_entries(start, stop)
            for i, event in enumerate(entry.events())
        ]
        assert [row for row in rows if start <= row[0] < stop] == [row for row in self.model if start <= row[0] < stop]
        assert reader.begin_sequence_number() == self.log.begin_sequence_number
        assert reader.end_sequence_number() == end

    @invariant()
    def what_is_visible_is_the_model(self) -> None:
        log = self.log
        assert log.is_empty == (not self.model)
        assert log.begin_sequence_number == (self.model[0][0] if self.model else log.next_sequence_number)
        if self.model:
            assert log.next_sequence_number == self.model[-1][0] + 1
            assert log.last_offset == self.model[-1][1]
            assert log.last_enqueued_time_ms == self.model[-1][2]
        assert stored(log) == self.model

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            shutil.rmtree(self.directory)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=example_count(60), stateful_step_count=30, deadline=None)


def test_an_append_is_visible_only_after_the_sync(tmp_path: Path) -> None:
    committer = HeldCommitter()
    log = open_log(tmp_path, committer=committer)
    answers: list[Any] = []
    log.append([b"a", b"b"], answers.append)
    assert log.next_sequence_number == 0
    assert log.read_batches(0) == []
    committer.run()
    assert log.next_sequence_number == 2
    assert answers == [Appended(0, 2, 64, 68, 1_000_000)]


def test_appends_that_wait_make_one_group(tmp_path: Path) -> None:
    committer = HeldCommitter()
    log = open_log(tmp_path, committer=committer)
    order: list[str] = []
    log.on_grow(lambda: order.append("grown"))
    for number in range(100):
        log.append([b"%d" % number], lambda _: order.append("stored"))
    assert len(committer.work) == 1
    committer.run()
    assert order == ["stored"] * 100 + ["grown"]
    assert len(log.read_batches(0)) == 1


def test_an_append_is_never_split_over_entries(tmp_path: Path) -> None:
    committer = HeldCommitter()
    log = open_log(tmp_path, committer=committer)
    sizes = [300_000, 10, 200_000, 200_000, 1_000_000, 1]
    for size in sizes:
        log.append([bytes(size // 2), bytes(size - size // 2)], lambda _: None)
    committer.run()
    counts = [entry.count for entry in SegmentReader(tmp_path).read_entries(0)]
    assert sum(counts) == 2 * len(sizes)
    assert all(count % 2 == 0 for count in counts)


def test_an_append_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one event"):
        open_log(tmp_path).append([], lambda _: None)


def test_enqueued_times_never_decrease_not_even_over_a_restart_with_the_clock_set_back(tmp_path: Path) -> None:
    clock = SetClock(5000)
    log = open_log(tmp_path, clock=clock)
    append(log, [b"a"])
    clock.time_ms = 3000
    assert append(log, [b"b"]).enqueued_time_ms == 5000
    log.close()
    clock.time_ms = 1000
    log = open_log(tmp_path, clock=clock)
    assert append(log, [b"c"]).enqueued_time_ms == 5000
    clock.time_ms = 6000
    assert append(log, [b"d"]).enqueued_time_ms == 6000


def test_numbering_and_times_go_on_when_retention_has_taken_everything(tmp_path: Path) -> None:
    clock = SetClock(5000)
    log = open_log(tmp_path, clock=clock)
    last = append(log, [b"a", b"b", b"c"])
    assert log.apply_retention(before_ms=5001) == 3
    log.close()
    clock.time_ms = 10
    log = open_log(tmp_path, clock=clock)
    assert log.is_empty
    assert (log.begin_sequence_number, log.next_sequence_number) == (3, 3)
    assert (log.last_offset, log.last_enqueued_time_ms) == (last.last_offset, 5000)
    again = append(log, [b"d"])
    assert again.first_sequence_number == 3
    assert again.first_offset > last.last_offset
    assert again.enqueued_time_ms == 5000


def test_a_reader_behind_retention_begins_at_the_oldest_event(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    for number in range(20):
        append(log, [b"%02d" % number * 20])
    log.apply_retention(max_bytes=500)
    assert log.begin_sequence_number > 0
    assert stored(log, 0)[0][0] == log.begin_sequence_number


class TellingFiles(FaultyFiles):
    """Lets a test look at the log while its sync is under way."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self.look = look

    def sync(self, fd: int) -> None:
        self.look()
        super().sync(fd)


def test_the_arrival_lower_bound_holds_for_what_is_in_flight(tmp_path: Path) -> None:
    clock = SetClock(1000)
    committer = HeldCommitter()
    bounds: list[Any] = []
    logs: list[PartitionLog] = []

    def look() -> None:
        if logs:
            clock.time_ms = 2000
            bounds.append(logs[0].arrival_lower_bound())

    logs.append(open_log(tmp_path, clock=clock, committer=committer, files=TellingFiles(look)))
    (log,) = logs
    log.append([b"a"], lambda _: None)
    assert log.arrival_lower_bound() == (0, 1000), "not stamped yet, but not earlier than now"
    committer.run()
    assert bounds == [(0, 1000)], "an event stamped 1000 was on its way while the clock said 2000"
    assert log.arrival_lower_bound() == (1, 2000)


def test_many_threads(tmp_path: Path) -> None:
    committer = Committer(2)
    logs = [open_log(tmp_path / str(n), committer=committer, segment_bytes=50_000) for n in range(3)]
    results: list[list[tuple[int, bytes]]] = [[] for _ in logs]
    done = threading.Semaphore(0)

    def publish(thread: int) -> None:
        for number in range(200):
            event = b"%d-%d" % (thread, number)
            partition = number % len(logs)

            def store(answer: Appended | LogError, partition: int = partition, event: bytes = event) -> None:
                assert isinstance(answer, Appended)
                results[partition].append((answer.first_sequence_number, event))
                done.release()

            logs[partition].append([event], store)

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(800):
        assert done.acquire(timeout=PATIENCE_S)
    for log, acknowledged in zip(logs, results, strict=True):
        assert [(row[0], row[3]) for row in stored(log)] == sorted(acknowledged)
        for number in range(4):  # one thread's events keep their order
            own = [int(row[3].split(b"-")[1]) for row in stored(log) if row[3].startswith(b"%d-" % number)]
            assert own == sorted(own)
        log.close()
    committer.close()


def test_closing_fails_what_waits(tmp_path: Path) -> None:
    committer = HeldCommitter()
    log = open_log(tmp_path, committer=committer)
    answers: list[Any] = []
    log.append([b"a"], answers.append)
    log.close()
    assert isinstance(answers[0], LogClosed)
    with pytest.raises(LogClosed):
        log.append([b"b"], answers.append)
    committer.run()
    log.close()
    assert stored(open_log(tmp_path)) == []


def test_retention_leaves_a_closed_log_and_the_files_that_were_opened_since_alone(tmp_path: Path) -> None:
    """Retention runs in a thread of its own, and a hub may be deleted or end meanwhile."""
    log = open_log(tmp_path / "log", segment_bytes=SEGMENT_BYTES)
    while len(list(log.directory.glob("*.log"))) < 3:
        append(log, [b"x" * 100])
    log.close()
    with ExitStack() as opened:
        others = [tmp_path / f"other {number}" for number in range(10)]
        for path in others:
            opened.enter_context(path.open("wb"))
        assert log.apply_retention(max_bytes=0) == 0
        assert [path.read_bytes() for path in others] == [b""] * len(others)
    with closing(open_log(tmp_path / "log", segment_bytes=SEGMENT_BYTES)) as again:
        assert again.begin_sequence_number == 0


def test_a_callback_that_raises_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path)

    def bad(_: object = None) -> None:
        raise RuntimeError("not my log's fault")

    unsubscribe = log.on_grow(bad)
    log.append([b"a"], bad)
    unsubscribe()
    append(log, [b"b"])
    assert [row[3] for row in stored(log)] == [b"a", b"b"]
    assert sum("a callback of the log failed" in record.getMessage() for record in caplog.records) == 2


def test_unsubscribing_ends_the_calls(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    calls: list[int] = []
    unsubscribe = log.on_grow(lambda: calls.append(1))
    append(log, [b"a"])
    unsubscribe()
    unsubscribe()
    append(log, [b"b"])
    assert calls == [1]


def test_without_durability_nothing_is_synced(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files, durable=False, committer=InlineCommitter())
    before = files.syncs
    append(log, [b"a"])
    assert files.syncs == before
    log.close()
    assert [row[3] for row in stored(open_log(tmp_path))] == [b"a"]


def test_a_segment_is_rolled_when_its_first_event_is_old_or_it_has_grown(tmp_path: Path) -> None:
    clock = SetClock(1000)
    with closing(open_log(tmp_path, clock=clock)) as log:
        assert not log.roll(before_ms=10**9, max_bytes=0), "an empty segment is new enough"
        append(log, [b"a"])
        clock.time_ms = 2000
        append(log, [b"b"])
        assert not log.roll(before_ms=1000)
        assert not log.roll(max_bytes=log.size_bytes)
        assert not log.roll()
        assert log.roll(before_ms=1001)
        assert not log.roll(before_ms=1001)
        append(log, [b"c"])
        assert log.roll(max_bytes=1)
        assert [event for batch in log.read_batches(0) for event in batch.events] == [b"a", b"b", b"c"]
        assert log.apply_retention(before_ms=1500) == 0, "b is in the same segment"
        assert log.apply_retention(before_ms=2001) == 3
