"""Group commit: appends gather while a sync is under way and are stored together by the next.

Callers submit appends and continue. A committer thread takes all pending appends, stamps them with one arrival time,
joins them into entries, writes these with one call and syncs; only then are they visible and acknowledged. So every
visible event is durable. See Gray and Reuter, "Transaction Processing", section 9.4, for group commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from tidegate.log.clock import Clock
from tidegate.log.committer import Committer
from tidegate.log.errors import LogClosed, LogError
from tidegate.log.group import Append, OnDurable, encode_group, first_group
from tidegate.log.state import LogState
from tidegate.log.tail_writer import TailWriter

_logger = logging.getLogger(__name__)


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
        self._pending: list[Append] = []
        self._submitted = False
        self.is_closed = False
        self._listeners: tuple[Callable[[], None], ...] = ()

    def append(self, events: Sequence[bytes | memoryview], on_durable: OnDurable) -> None:
        """See PartitionLog.append."""
        if not events:
            raise ValueError("an append needs at least one event")
        with self._lock:
            if self.is_closed:
                raise LogClosed("the log is closed")
            self._pending.append(Append(events, on_durable))
            if self._submitted:
                return
            self._submitted = True
        self._committer.submit(self._commit)

    def on_grow(self, callback: Callable[[], None]) -> Callable[[], None]:
        """See PartitionLog.on_grow."""
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
            with self._lock:
                # a caller that appends twice must not find the second append stored without the first
                behind, self._pending = self._pending, []
            self._refuse([*appends, *behind], error)
            return
        self.tail.publish(group)
        for on_durable, appended in group.results:
            _call(on_durable, appended)
        for callback in self._listeners:
            _call(callback)

    def _refuse(self, appends: Sequence[Append], error: Exception) -> None:
        with self._state.lock:
            self._state.in_flight_ms = None
        _logger.error("%s: %d appends were not stored: %s", self._state.directory, len(appends), error)
        failure = LogError(f"the events could not be stored: {error}")
        failure.__cause__ = error
        for append in appends:
            _call(append.on_durable, failure)

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
            _call(append.on_durable, closed)


def _call(function: Callable[..., None], *arguments: object) -> None:
    try:
        function(*arguments)
    except Exception:
        _logger.exception("a callback of the log failed")
