"""Lanes: batches that are delivered over HTTP in parallel, each lane in its own order, and the outputs that use them.

Rows of one key share a lane, so they stay in order. A lane that fails keeps the batches it has not delivered, and the
others finish theirs; the next attempt delivers what is left. Nothing that was delivered is delivered again.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from zlib import crc32

from tidegate.connectors.outputs.kinds import OutputOpening
from tidegate.connectors.outputs.messaging.http_client import HttpClient
from tidegate.connectors.outputs.messaging.message_rows import MessageOutput, MessageRows
from tidegate.connectors.outputs.output import OutputUnavailableError

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


class LaneOutput(MessageOutput, Generic[Batch]):
    """An output that delivers by lanes.

    What is delivered again after a kill must do no harm, since a receiver cannot tell which rows it holds.
    """

    def __init__(
        self,
        kind: str,
        opening: OutputOpening,
        client: HttpClient,
        rows: MessageRows,
        lanes: int,
    ) -> None:
        """`lanes` says how many there are."""
        super().__init__(kind, opening, rows)
        self._client = client
        self._pending: list[deque[Batch]] = [deque() for _ in range(lanes)]
        self._refusals: list[list[RefusedRow]] = [[] for _ in range(lanes)]
        self._pool = ThreadPoolExecutor(lanes, "tidegate-lane") if lanes > 1 else None

    @abstractmethod
    def _deliver(self, batch: Batch) -> BatchOutcome[Batch]:
        """Send a batch; called by as many threads as there are lanes.

        Raises:
            OutputUnavailableError: the same batch may be delivered later.
        """

    def _lane_of(self, key: str | None, number: int) -> int:
        """Return the lane for rows of a key, or for the row with a number if there is no key."""
        return (number if key is None else crc32(key.encode())) % len(self._pending)

    def _fill_lanes(self) -> None:
        """Give the lanes what `write` has kept back."""

    def _refused(self, row: bytes) -> dict[str, Any]:
        """Return a row that the receiver refuses as people should see it."""
        found: dict[str, Any] = json.loads(row)
        return found

    def _send(self) -> None:
        """Deliver every batch; a later call delivers those that could not be delivered now."""
        self._fill_lanes()
        busy = [lane for lane, pending in enumerate(self._pending) if pending]
        if self._pool is None or len(busy) == 1:
            troubles = [self._run(lane) for lane in busy]
        else:
            troubles = list(self._pool.map(self._run, busy))
        trouble = next((one for one in troubles if one is not None), None)
        if trouble is not None:
            raise trouble
        refused = [row for of_lane in self._refusals for row in of_lane]
        self._refusals = [[] for _ in self._pending]
        for row in sorted(refused, key=lambda row: row.number):
            self._rows.reject(row.kind, row.message, row.number, row.time, self._refused(row.row))

    def _run(self, lane: int) -> OutputUnavailableError | None:
        pending = self._pending[lane]
        try:
            while pending:
                outcome = self._deliver(pending[0])
                pending.popleft()
                pending.extendleft(reversed(outcome.instead))
                self._refusals[lane] += outcome.refused
        except OutputUnavailableError as error:
            return error
        return None

    def close(self) -> None:
        """End the threads and connections."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._client.close()
