"""Lanes: batches that are delivered in parallel, each lane in its own order.

Rows of one key share a lane, so they stay in order. A lane that fails keeps the batches it has not delivered, and the
others finish theirs; the next attempt delivers what is left. Nothing that was delivered is delivered again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar
from zlib import crc32

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
