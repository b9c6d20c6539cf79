"""Group commit: appends gather while a sync is under way and are stored together by the next.

Callers submit appends and continue. A committer thread takes all pending appends, stamps them with one arrival time,
joins them into entries, writes these with one call and syncs; only then are they visible and acknowledged. So every
visible event is durable. See Gray and Reuter, "Transaction Processing", section 9.4, for group commit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidegate.kafka.records import RecordBatch
from tidegate.log.clock import Clock
from tidegate.log.entry import JoinedEvents
from tidegate.log.errors import LogClosed, LogError
from tidegate.log.group import Append, Committer, OnDurable, encode_group, first_group
from tidegate.log.segment_table import LogState
from tidegate.log.tail_writer import TailWriter

_logger = logging.getLogger(__name__)
_TRIED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """Why a log takes no events.

    Attributes:
        reason: What the operating system says.
        since_s: When the first write failed, Unix time.
        refused: How many appends have been refused since.
        size: The bytes of the first group that was refused.
    """

    reason: str
    since_s: float
    refused: int
    size: int


class LogWriter:
    """The pending and in-flight appends of one log. Safe to call from any thread.

    `writing` is held while the files are written.
    """

    def __init__(self, state: LogState, tail: TailWriter, clock: Clock, committer: Committer) -> None:
        self.writing = threading.Lock()
        self.tail = tail
        self._state = state
        self._clock = clock
        self._committer = committer
        # guards the fields below; taken after `writing`, never before
        self._lock = threading.Lock()
        self.failure: WriteFailure | None = None
        self.refused_appends = 0
        self.last_write_s = 0.0
        self._pending: list[Append] = []
        self._submitted = False
        self.is_closed = False
        self._listeners: tuple[Callable[[], None], ...] = ()

    def append(self, events: Sequence[bytes | memoryview] | JoinedEvents, on_durable: OnDurable) -> None:
        if not events:
            raise ValueError("an append needs at least one event")
        self._submit(Append(events, on_durable))

    def append_batch(self, batch: RecordBatch, on_durable: OnDurable) -> None:
        self._submit(Append((), on_durable, batch))

    def _submit(self, append: Append) -> None:
        with self._lock:
            if self.is_closed:
                raise LogClosed("the log is closed")
            self._pending.append(append)
            if self._submitted:
                return
            self._submitted = True
        self._committer.submit(self._commit)

    def on_grow(self, callback: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            self._listeners += (callback,)

        def unsubscribe() -> None:
            with self._lock:
                listeners = list(self._listeners)
                if callback in listeners:
                    listeners.remove(callback)
                self._listeners = tuple(listeners)

        return unsubscribe

    def _commit(self) -> None:
        """Store one group (in a committer thread)."""
        with self.writing:
            with self._lock:
                waiting, self._pending = self._pending, []
            runs = first_group(waiting)
            count = sum(map(len, runs))
            appends, later = waiting[:count], waiting[count:]
            if later:
                with self._lock:
                    self._pending[:0] = later
            if appends:
                self._store(appends, runs)
        with self._lock:
            if not self._pending:
                self._submitted = False
                return
        self._committer.submit(self._commit)

    def _store(self, appends: Sequence[Append], runs: Sequence[Sequence[Append]]) -> None:
        state = self._state
        try:
            self.tail.make_ready()
            with state.lock:
                end = state.end
                time_ms = state.in_flight_ms = max(self._clock.now_ms(), end.last_enqueued_time_ms)
            group = encode_group(runs, end.next_sequence_number, time_ms, end.end_position)
            self.tail.store(group)
        except (OSError, LogError, ValueError) as error:
            if not isinstance(error, ValueError):
                self._note_failure(error, sum(append.size for append in appends))
            self._refuse_with_those_behind(appends, error)
            return
        self.tail.publish(group)
        self.last_write_s = time.time()
        if self.failure is not None:
            self._note_success()
        for on_durable, appended in group.results:
            call(on_durable, appended)
        for callback in self._listeners:
            call(callback)

    def _refuse_with_those_behind(self, appends: Sequence[Append], error: Exception) -> None:
        """Refuse appends, and all that come before their callers know.

        A caller that appends twice must not find the second append stored without the first.
        """
        while appends:
            self._refuse(appends, error)
            with self._lock:
                appends, self._pending = self._pending, []

    def _refuse(self, appends: Sequence[Append], error: Exception) -> None:
        with self._state.lock:
            self._state.in_flight_ms = None
        self.refused_appends += len(appends)
        if self.failure is None:
            _logger.error("%s: %d appends were not stored: %s", self._state.directory, len(appends), error)
        else:
            self.failure = replace(self.failure, refused=self.failure.refused + len(appends))
        failure = LogError(f"the events could not be stored: {error}")
        failure.__cause__ = error
        for append in appends:
            call(append.on_durable, failure)

    def _note_failure(self, error: Exception, size: int) -> None:
        """Say once that writes fail; `_note_success` says when that is over."""
        reason = str(error)
        if self.failure is None:
            self.failure = WriteFailure(reason, time.time(), 0, size)
        elif self.failure.reason == reason:
            return
        else:
            self.failure = replace(self.failure, reason=reason)
        _logger.error("%s takes no events until it can be written again: %s", self._state.directory, reason)

    def _note_success(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            _logger.warning(
                "%s takes events again after %.0f s, in which %d appends were refused",
                self._state.directory,
                time.time() - failure.since_s,
                failure.refused,
            )

    def try_again(self) -> None:
        """Find out whether a log that took no events can be written again, without waiting for the next event."""
        with self.writing:
            failure = self.failure
            if self.is_closed or (failure is None and self.tail.is_recovered):
                return
            try:
                self.tail.try_to_write(min(_TRIED_BYTES, failure.size) if failure else 0)
            except (OSError, LogError) as error:
                self._note_failure(error, 0)
            else:
                self._note_success()

    def close(self, release: Callable[[], None]) -> None:
        """Finish the current group, call `release`, and fail pending appends. Calling it again does nothing."""
        with self.writing:
            with self._lock:
                if self.is_closed:
                    return
                self.is_closed = True
                waiting, self._pending = self._pending, []
            self.tail.close()
            release()
        closed = LogClosed("the log was closed before the events were stored")
        for append in waiting:
            call(append.on_durable, closed)


def call(function: Callable[..., None], *arguments: object) -> None:
    """Call a callback; an exception is logged and not propagated."""
    try:
        function(*arguments)
    except Exception:
        _logger.exception("a callback of the log failed")
