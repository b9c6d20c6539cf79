"""What every store of a partition must do, whatever it keeps events in: `StoreContract`, and a model beside it.

A test module of a store subclasses both and says how to open its log. Nothing here waits for a time, so a store may be
as slow as it likes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.patience import PATIENCE_S, eventually
from tidegate.durable_files import FileDamaged
from tidegate.log import Appended, EventBatch, LogClosed, LogError, PartitionStore


class OpenedStore(Protocol):
    """A log that a test opened, and can open again."""

    log: PartitionStore

    def reopen(self) -> None:
        """Close the log, and open it as after a restart."""

    def close(self) -> None:
        """Close the log, and remove what it kept."""


class Row(NamedTuple):
    """An event as a store shows it."""

    sequence_number: int
    offset: int
    enqueued_time_ms: int
    event: bytes


def rows(batches: Sequence[EventBatch]) -> list[Row]:
    """Return the events of batches, one by one."""
    return [
        Row(batch.base_sequence_number + index, batch.offsets[index], batch.enqueued_time_ms, bytes(event))
        for batch in batches
        for index, event in enumerate(batch.events)
    ]


def everything(log: PartitionStore, first: int = 0, **limits: int) -> list[Row]:
    """Return the events from a number on, read piece by piece."""
    found: list[Row] = []
    while batches := log.read_batches(first, **limits):
        found += rows(batches)
        first = found[-1].sequence_number + 1
    return found


def append(log: PartitionStore, *batches: Sequence[bytes]) -> list[Appended]:
    """Append batches without waiting between them, and return where they are. Raises what the store answers."""
    answers: list[Appended | LogError] = []
    is_done = threading.Event()

    def answer(result: Appended | LogError) -> None:
        answers.append(result)
        if len(answers) == len(batches):
            is_done.set()

    for batch in batches:
        log.append(batch, answer)
    assert is_done.wait(PATIENCE_S)
    for result in answers:
        if isinstance(result, LogError):
            raise result
    return [result for result in answers if isinstance(result, Appended)]


class StoreContract:
    """The guarantees one by one. A subclass has a fixture `store` that yields an OpenedStore with an empty log."""

    def test_a_new_log_is_empty(self, store: OpenedStore) -> None:
        log = store.log
        assert log.is_empty
        assert log.begin_sequence_number == log.next_sequence_number
        assert (log.last_offset, log.last_enqueued_time_ms) == (-1, 0)
        assert log.read_batches(0) == log.read_cached(0) == log.start_read(0).result(PATIENCE_S) == []
        assert log.write_failure is None
        assert (log.refused_appends, log.last_write_s) == (0, 0)
        assert log.damages == () == tuple(log.check())

    def test_a_batch_is_durable_with_consecutive_numbers_when_it_is_reported(self, store: OpenedStore) -> None:
        (stored,) = append(store.log, [b"a", b"b", b"c"])
        assert stored.count == 3
        assert stored.first_sequence_number == store.log.begin_sequence_number
        assert store.log.next_sequence_number == stored.first_sequence_number + 3
        assert (store.log.last_offset, store.log.last_enqueued_time_ms) == (stored.last_offset, stored.enqueued_time_ms)
        assert not store.log.is_empty
        assert store.log.last_write_s > 0
        found = everything(store.log)
        assert [row.event for row in found] == [b"a", b"b", b"c"]
        assert [row.sequence_number for row in found] == [stored.first_sequence_number + n for n in range(3)]
        assert (found[0].offset, found[-1].offset) == (stored.first_offset, stored.last_offset)

    def test_appends_keep_their_order(self, store: OpenedStore) -> None:
        answers = append(store.log, *([b"%d" % number] for number in range(200)))
        numbers = [answer.first_sequence_number for answer in answers]
        assert numbers == sorted(set(numbers))
        assert [row.event for row in everything(store.log)] == [b"%d" % number for number in range(200)]

    def test_nothing_is_no_batch(self, store: OpenedStore) -> None:
        with pytest.raises(ValueError, match="at least one event"):
            store.log.append([], lambda _: None)

    def test_each_form_of_reading_finds_the_same(self, store: OpenedStore) -> None:
        first = append(store.log, [b"x" * 100] * 50, [b"y" * 100] * 50)[0].first_sequence_number
        for number in (first, first + 7, first + 50, first + 99, first + 100):
            for limits in ({}, {"max_events": 3}, {"max_bytes": 1}, {"max_bytes": 1000}):
                expected = store.log.read_batches(number, **limits)
                assert rows(store.log.start_read(number, **limits).result(PATIENCE_S)) == rows(expected)
                assert rows(store.log.read_cached(number, **limits) or expected) == rows(expected)
                assert len(rows(expected)) <= limits.get("max_events", 100)
                assert len(rows(expected)) >= (number < first + 100)

    def test_growth_is_reported_until_nobody_asks(self, store: OpenedStore) -> None:
        grown = threading.Event()
        unsubscribe = store.log.on_grow(grown.set)
        append(store.log, [b"a"])
        assert grown.wait(PATIENCE_S)
        unsubscribe()
        grown.clear()
        append(store.log, [b"b"])
        assert everything(store.log)[-1].event == b"b"
        assert not grown.is_set()

    def test_events_outlive_a_restart(self, store: OpenedStore) -> None:
        append(store.log, [b"a", b"b"], [b"c"])
        before, log_id = everything(store.log), store.log.log_id
        last = store.log.last_offset, store.log.last_enqueued_time_ms, store.log.next_sequence_number
        store.reopen()
        assert everything(store.log) == before
        assert store.log.log_id == log_id
        assert (store.log.last_offset, store.log.last_enqueued_time_ms, store.log.next_sequence_number) == last

    def test_a_closed_log_takes_nothing(self, store: OpenedStore) -> None:
        store.log.close()
        store.log.close()
        with pytest.raises(LogClosed):
            store.log.append([b"a"], lambda _: None)

    def test_no_event_comes_before_a_bound_that_was_given_out(self, store: OpenedStore) -> None:
        for _ in range(20):
            bound = store.log.arrival_lower_bound()
            (stored,) = append(store.log, [b"a"])
            assert stored.first_sequence_number >= bound.next_sequence_number
            assert stored.enqueued_time_ms >= bound.lower_bound_ms

    def test_the_bound_passes_the_last_event_of_an_idle_partition(self, store: OpenedStore) -> None:
        (stored,) = append(store.log, [b"a"])
        eventually(lambda: store.log.arrival_lower_bound().lower_bound_ms >= stored.enqueued_time_ms)

    def test_a_document_is_kept(self, store: OpenedStore) -> None:
        advice = "ask an operator"
        document = store.log.document("capture/journal.json", advice=advice)
        assert (document.exists, document.read()) == (False, None)
        document.write({"next": 7})
        document.write({"next": 8})
        other = store.log.document("producers.json", advice=advice)
        other.write({"producers": []})
        store.reopen()
        document = store.log.document("capture/journal.json", advice=advice)
        assert (document.exists, document.read()) == (True, {"next": 8})
        damaged = document.damaged("it makes no sense")
        assert isinstance(damaged, FileDamaged)
        assert str(document) in str(damaged)
        assert str(damaged).endswith("it makes no sense; ask an operator")

    def test_events_before_a_number_are_deleted_whatever_they_are_stored_with(self, store: OpenedStore) -> None:
        append(store.log, [b"a", b"b", b"c"], [b"d", b"e"])
        rows_before = everything(store.log)
        from_second = rows_before[1]
        store.log.delete_before(from_second.sequence_number)
        assert store.log.begin_sequence_number == from_second.sequence_number
        for _ in range(2):
            assert everything(store.log) == rows_before[1:]
            assert store.log.begin_sequence_number == from_second.sequence_number
            assert store.log.sequence_at_time(0, inclusive=True) == from_second.sequence_number
            assert store.log.sequence_after_offset(-1, inclusive=False) == from_second.sequence_number
            assert not store.log.is_empty
            store.reopen()
        store.log.delete_before(0)
        assert everything(store.log) == rows_before[1:], "what is deleted stays deleted"
        (stored,) = append(store.log, [b"f"])
        assert [row.event for row in everything(store.log)] == [b"b", b"c", b"d", b"e", b"f"]
        store.log.delete_before(stored.first_sequence_number + 1)
        assert store.log.is_empty

    def test_what_is_due_is_deleted_and_the_numbering_continues(self, store: OpenedStore) -> None:
        append(store.log, [b"a", b"b"])
        last = store.log.last_offset, store.log.last_enqueued_time_ms, store.log.next_sequence_number
        later_ms = store.log.last_enqueued_time_ms + 10_000
        assert store.log.retain(now_ms=later_ms, retention_ms=20_000, retention_bytes=None) == 0
        keep_from = store.log.begin_sequence_number
        options: dict[str, Any] = {"now_ms": later_ms, "retention_ms": 1000, "retention_bytes": None}
        assert store.log.retain(**options, keep_from=keep_from) == 0
        assert store.log.retain(**options) == 2
        assert store.log.is_empty
        assert everything(store.log) == []
        assert (store.log.last_offset, store.log.last_enqueued_time_ms, store.log.next_sequence_number) == last
        (stored,) = append(store.log, [b"c"])
        assert stored.first_sequence_number >= last[2]
        assert [row.event for row in everything(store.log)] == [b"c"]


class StoreMachine(RuleBasedStateMachine):
    """A log is a list of rows that only grows. A subclass sets `new_store`."""

    store: OpenedStore | None = None

    new_store: ClassVar[Callable[[], OpenedStore]]
    """Opens an empty log; a subclass says which."""

    @initialize()
    def begin(self) -> None:
        self.model: list[Row] = []
        self.bound_ms = 0
        self.store = type(self).new_store()

    @property
    def log(self) -> PartitionStore:
        assert self.store is not None
        return self.store.log

    @rule(batches=st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=5), min_size=1, max_size=4))
    def append(self, batches: list[list[bytes]]) -> None:
        for batch, stored in zip(batches, append(self.log, *batches), strict=True):
            assert stored.count == len(batch)
            if self.model:
                assert stored.first_sequence_number > self.model[-1].sequence_number
                assert stored.first_offset > self.model[-1].offset
                assert stored.enqueued_time_ms >= self.model[-1].enqueued_time_ms
            assert stored.enqueued_time_ms >= self.bound_ms
            step = (stored.last_offset - stored.first_offset) // max(1, stored.count - 1)
            for index, event in enumerate(batch):
                place = stored.first_sequence_number + index, stored.first_offset + step * index
                self.model.append(Row(*place, stored.enqueued_time_ms, event))

    @rule()
    def ask_for_the_bound(self) -> None:
        bound = self.log.arrival_lower_bound()
        assert bound.next_sequence_number == self.log.next_sequence_number
        self.bound_ms = max(self.bound_ms, bound.lower_bound_ms)

    @rule()
    def reopen(self) -> None:
        assert self.store is not None
        self.store.reopen()

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, self.log.next_sequence_number + 2))
        limits = {"max_events": data.draw(st.integers(1, 5)), "max_bytes": data.draw(st.integers(1, 100))}
        assert everything(self.log, start, **limits) == [row for row in self.model if row.sequence_number >= start]
        once = rows(self.log.read_batches(start, **limits))
        assert len(once) <= limits["max_events"]
        assert len(once) <= 1 or sum(len(row.event) for row in once) <= limits["max_bytes"]
        cached = self.log.read_cached(start, **limits)
        assert cached is None or rows(cached) == once
        assert rows(self.log.start_read(start, **limits).result(PATIENCE_S)) == once

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def find(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.model))
        offset = row.offset + data.draw(st.integers(-9, 9))
        time_ms = row.enqueued_time_ms + data.draw(st.integers(-2, 2))
        for inclusive in (True, False):
            after = [row for row in self.model if row.offset > offset or (inclusive and row.offset == offset)]
            self._is_place(self.log.sequence_after_offset(offset, inclusive=inclusive), after)
            later = [
                row
                for row in self.model
                if row.enqueued_time_ms > time_ms or (inclusive and row.enqueued_time_ms == time_ms)
            ]
            self._is_place(self.log.sequence_at_time(time_ms, inclusive=inclusive), later)

    def _is_place(self, number: int, expected: Sequence[Row]) -> None:
        """Check that reading from a number on begins with an event; it may be that of a record of the store's own."""
        found = self.log.read_batches(number, max_events=1)
        assert rows(found) == list(expected[:1])

    @rule(name=st.sampled_from(["capture/journal.json", "producers.json"]), value=st.integers())
    def keep_a_document(self, name: str, value: int) -> None:
        self.log.document(name, advice="").write({"value": value})
        assert self.log.document(name, advice="").read() == {"value": value}

    @invariant()
    def what_is_visible_is_the_model(self) -> None:
        if self.store is None:
            return
        log = self.log
        assert log.is_empty == (not self.model)
        if self.model:
            last = self.model[-1]
            assert log.begin_sequence_number <= self.model[0].sequence_number
            assert log.next_sequence_number == last.sequence_number + 1
            assert (log.last_offset, log.last_enqueued_time_ms) == (last.offset, last.enqueued_time_ms)
        assert everything(log) == self.model

    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()
