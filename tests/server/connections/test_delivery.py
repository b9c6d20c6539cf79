"""Reads that have to wait for the disk hold up their own link and no other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import RawClient
from tidegate.amqp import Detached
from tidegate.log import EventBatch, LogDamaged, LogError, PartitionStore
from tidegate.server import Server

Sign = Callable[..., RawClient]


class SlowLog:
    """A partition's log of which nothing is cached, and whose reads end when the test says so."""

    def __init__(self, log: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log = log
        self.reads: list[tuple[int, Future[list[EventBatch]]]] = []
        monkeypatch.setattr(log, "read_cached", self._read_cached)
        monkeypatch.setattr(log, "start_read", self._start_read)

    def _read_cached(self, sequence_number: int, **_: int) -> list[EventBatch] | None:
        return [] if sequence_number >= self._log.next_sequence_number else None

    def _start_read(self, sequence_number: int, **_: int) -> Future[list[EventBatch]]:
        reading: Future[list[EventBatch]] = Future()
        self.reads.append((sequence_number, reading))
        return reading

    def finish(self, *, failure: LogError | None = None, **limits: int) -> None:
        """End the oldest read once it has begun, with what is stored there or with a failure."""
        eventually(lambda: self.reads)
        sequence_number, reading = self.reads.pop(0)
        if failure is None:
            reading.set_result(self._log.read_batches(sequence_number, **limits))
        else:
            reading.set_exception(failure)


@pytest.fixture
def raw(server: Server, sign_in: Sign, hub: str) -> Any:
    return sign_in(server, hub)


@pytest.fixture
def log(server: Server, hub: str) -> PartitionStore:
    return server.namespace.event_hub(hub).partition("0").log


@pytest.fixture
def slow(log: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> SlowLog:
    return SlowLog(log, monkeypatch)


def publish(raw: Any, hub: str, *bodies: bytes) -> None:
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), *bodies)


def flush(raw: Any) -> None:
    """Send what the client wants to say, without waiting for an answer."""
    raw.socket.sendall(raw.amqp.data_to_send())


def opened(raw: Any, hub: str, **options: Any) -> Any:
    """A reader of the partition, with credit for ten events."""
    reader = raw.reader(source(hub), credit=10, **options)
    flush(raw)
    return reader


def source(hub: str) -> str:
    return f"{hub}/ConsumerGroups/$Default/Partitions/0"


def test_other_links_go_on_while_a_read_waits(slow: SlowLog, raw: Any, hub: str) -> None:
    publish(raw, hub, b"a", b"b")
    reader = opened(raw, hub)
    eventually(lambda: slow.reads)
    publish(raw, hub, b"c")
    assert len(slow.reads) == 1, "growth begins no second read"
    slow.finish(max_events=1)
    slow.finish(max_events=1)
    slow.finish(max_events=1)
    assert [b"".join(message.body) for message in raw.receive(reader, 3)] == [b"a", b"b", b"c"]


def test_a_reader_that_follows_shares_what_was_read(slow: SlowLog, raw: Any, hub: str) -> None:
    publish(raw, hub, b"a", b"b")
    first = opened(raw, hub)
    slow.finish()
    raw.receive(first, 2)
    second = opened(raw, hub)
    assert [b"".join(message.body) for message in raw.receive(second, 2)] == [b"a", b"b"]
    assert not slow.reads


def test_a_link_is_drained_only_after_the_read(slow: SlowLog, raw: Any, hub: str) -> None:
    publish(raw, hub, b"a")
    reader = raw.reader(source(hub))
    reader.flow(5, drain=True)
    flush(raw)
    eventually(lambda: slow.reads)
    assert reader.credit == 5
    slow.finish()
    raw.receive(reader, 1)
    while reader.credit:
        raw.exchange()


def test_damage_is_skipped_and_any_other_failure_ends_the_link(
    slow: SlowLog, log: PartitionStore, raw: Any, hub: str
) -> None:
    publish(raw, hub, b"a", b"b", b"c")
    reader = opened(raw, hub)
    assert log.directory is not None
    slow.finish(failure=LogDamaged(log.directory, 0, "its bytes have changed", 0, 2))
    slow.finish()
    (message,) = raw.receive(reader, 1)
    assert b"".join(message.body) == b"c"
    publish(raw, hub, b"d")
    slow.finish(failure=LogError("the store does not answer"))
    detached = raw.until(lambda event: isinstance(event, Detached) and event.link is reader)
    assert "the store does not answer" in str(detached.error.description)


def test_a_link_may_close_while_a_read_waits(slow: SlowLog, raw: Any, hub: str) -> None:
    publish(raw, hub, b"a")
    reader = opened(raw, hub)
    eventually(lambda: slow.reads)
    _, reading = slow.reads.pop()
    reader.detach()
    flush(raw)
    eventually(reading.cancelled)
    publish(raw, hub, b"b")
    again = opened(raw, hub)
    slow.finish()
    assert len(raw.receive(again, 2)) == 2


def test_other_links_go_on_while_a_position_is_searched(
    log: PartitionStore, raw: Any, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(raw, hub, b"a", b"b")
    is_let_through = threading.Event()
    search = log.sequence_after_offset

    def slow_search(offset: int, *, inclusive: bool) -> int:
        assert is_let_through.wait(PATIENCE_S)
        return search(offset, inclusive=inclusive)

    monkeypatch.setattr(log, "sequence_after_offset", slow_search)
    first_offset = log.read_batches(0)[0].offsets[0]
    selector = f"amqp.annotation.x-opt-offset > '{first_offset}'"
    reader = opened(raw, hub, selector=selector)
    publish(raw, hub, b"c")
    is_let_through.set()
    assert [b"".join(message.body) for message in raw.receive(reader, 2)] == [b"b", b"c"]


def test_properties_are_told_while_another_request_searches_the_log(
    log: PartitionStore, server: Server, sign_in: Sign, raw: Any, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(raw, hub, b"a", b"b")
    is_let_through = threading.Event()
    search = log.sequence_at_time

    def slow_search(enqueued_time_ms: int, *, inclusive: bool) -> int:
        assert is_let_through.wait(PATIENCE_S)
        return search(enqueued_time_ms, inclusive=inclusive)

    monkeypatch.setattr(log, "sequence_at_time", slow_search)
    asked = {"operation": "READ", "type": "com.microsoft:partition", "name": hub, "partition": "0"}
    found: list[Any] = []
    position = {"tidegate:consumer-group": "$Default", "tidegate:at-time": 0}
    other = sign_in(server, hub)
    asking = threading.Thread(target=lambda: found.append(other.request("$management", {**asked, **position})))
    asking.start()
    assert raw.request("$management", asked)["body"]["last_enqueued_sequence_number"] == 1
    assert not found
    is_let_through.set()
    asking.join(PATIENCE_S)
    assert found[0]["body"]["tidegate:found-sequence-number"] == 0


def test_a_search_is_refused_before_it_begins(raw: Any, hub: str) -> None:
    asked = {"operation": "READ", "type": "com.microsoft:partition", "name": hub, "partition": "0"}
    position = {"tidegate:consumer-group": "nobody", "tidegate:at-time": 0}
    assert raw.request("$management", {**asked, **position})["status-code"] == 404
    other = {**asked, **position, "name": "missing"}
    assert raw.request("$management", other)["status-code"] in (401, 404)
