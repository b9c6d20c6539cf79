"""Lanes: batches that are delivered over HTTP in parallel, each lane in its own order, and the outputs that use them.

Rows of one key share a lane, so they stay in order. A lane that fails keeps the batches it has not delivered, and the
others finish theirs; the next attempt delivers what is left. Nothing that was delivered is delivered again.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from zlib import crc32

from tidegate.connectors.outputs.messaging.http_client import HttpClient
from tidegate.connectors.outputs.messaging.message_rows import MessageRows
from tidegate.connectors.outputs.output import Mark, OutputUnavailableError, RejectedRow, new_mark

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that a receiver refuses for good: its number, its time in ticks, the kind of error, why, and its text."""

    number: int
    time: int
    kind: str
    message: str
    row: bytes


@dataclass(frozen=True, slots=True)
class BatchOutcome(Generic[Batch]):
    """What became of a batch: nothing is left of it, or smaller batches are to be delivered in its place."""

    instead: Sequence[Batch] = ()
    refused: Sequence[RefusedRow] = ()


class Lanes(Generic[Batch]):
    """Batches by lane."""

    def __init__(self, count: int, deliver: Callable[[Batch], BatchOutcome[Batch]]) -> None:
        """
        Args:
            deliver: sends a batch; called by as many threads as there are lanes. It raises OutputUnavailableError if
                the same batch may be delivered later.
        """
        self._deliver = deliver
        self._pending: list[deque[Batch]] = [deque() for _ in range(count)]
        self._refused: list[list[RefusedRow]] = [[] for _ in range(count)]
        self._pool = ThreadPoolExecutor(count, "tidegate-lane") if count > 1 else None

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._pending)

    def lane_of(self, key: str | None, number: int) -> int:
        """Return the lane for rows of a key, or for the row with a number if there is no key."""
        return (number if key is None else crc32(key.encode())) % self.count

    def add(self, lane: int, batch: Batch) -> None:
        """Add a batch to the end of a lane."""
        self._pending[lane].append(batch)

    def deliver(self) -> list[RefusedRow]:
        """Deliver every batch, and return the rows that were refused for good, in their order.

        Raises:
            OutputUnavailableError: a batch cannot be delivered now; a later call tries again.
        """
        busy = [lane for lane, pending in enumerate(self._pending) if pending]
        if self._pool is None or len(busy) == 1:
            troubles = [self._run(lane) for lane in busy]
        else:
            troubles = list(self._pool.map(self._run, busy))
        trouble = next((one for one in troubles if one is not None), None)
        if trouble is not None:
            raise trouble
        refused = [row for of_lane in self._refused for row in of_lane]
        self._refused = [[] for _ in self._pending]
        return sorted(refused, key=lambda row: row.number)

    def _run(self, lane: int) -> OutputUnavailableError | None:
        pending = self._pending[lane]
        try:
            while pending:
                outcome = self._deliver(pending[0])
                pending.popleft()
                pending.extendleft(reversed(outcome.instead))
                self._refused[lane] += outcome.refused
        except OutputUnavailableError as error:
            return error
        return None

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


class LaneOutput(Generic[Batch]):
    """An output that delivers by lanes when it commits; its mark counts rows.

    What is delivered again after a kill must do no harm, since a receiver cannot tell which rows it holds.
    """

    def __init__(
        self,
        kind: str,
        mark: Mark | None,
        client: HttpClient,
        rows: MessageRows,
        lanes: int,
        deliver: Callable[[Batch], BatchOutcome[Batch]],
    ) -> None:
        """
        Args:
            kind: the type of the output.
            mark: of the last commit; None before the first.
            lanes, deliver: see `Lanes`.
        """
        self._client = client
        self._rows = rows
        self._lanes = Lanes(lanes, deliver)
        self._mark: Mark = new_mark(kind) if mark is None else dict(mark)
        self._taken = 0

    @property
    def _next(self) -> int:
        """The number of the next row to be written."""
        return int(self._mark["rows"]) + self._taken

    def _fill_lanes(self) -> None:
        """Give the lanes what `write` has kept back."""

    def _refused(self, row: bytes) -> dict[str, Any]:
        """Return a row that the receiver refuses as people should see it."""
        found: dict[str, Any] = json.loads(row)
        return found

    def commit(self) -> Mark:
        """Deliver every row; see `Output.commit`."""
        if self._taken:
            self._fill_lanes()
            for row in self._lanes.deliver():
                self._rows.reject(row.kind, row.message, row.number, row.time, self._refused(row.row))
            self._mark["rows"] += self._taken
            self._mark["dropped"] += self._rows.dropped
            self._taken = self._rows.dropped = 0
        return dict(self._mark)

    def continue_after_held_rows(self) -> None:
        """Rows beyond the mark are unknown."""

    def drain_rejected_rows(self) -> list[RejectedRow]:
        """Return samples of the rows dropped since the last call."""
        return self._rows.drain_rejected_rows()

    def close(self) -> None:
        """End the threads and connections."""
        self._lanes.close()
        self._client.close()
