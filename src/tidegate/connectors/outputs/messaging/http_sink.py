"""An output that delivers rows over HTTP, in batches and lanes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tidegate.connectors.outputs.kinds import OutputOpening
from tidegate.connectors.outputs.messaging.http_batches import HttpBatch, HttpDelivery, HttpRow, batches_of
from tidegate.connectors.outputs.messaging.http_client import HttpClient
from tidegate.connectors.outputs.messaging.lanes import Lanes
from tidegate.connectors.outputs.messaging.message_rows import MessageRows
from tidegate.connectors.outputs.output import Mark, RejectedRow, new_mark
from tidegate.engine import ResultRows


@dataclass(frozen=True, slots=True)
class HttpSinkSettings:
    """How rows become batches, and how these are sent.

    Attributes:
        kind: the type of the output.
        rows, size: the most rows and bytes of a batch.
        lanes: how many requests are open at a time.
        attempts: how often a batch is sent that is answered with 500.
        pace_s: the shortest time between two requests.
    """

    kind: str
    rows: int
    size: int
    lanes: int
    attempts: int
    pace_s: float = 0.0


class HttpSink:
    """A receiver over HTTP; its mark counts rows."""

    def __init__(
        self, client: HttpClient, rows: MessageRows, opening: OutputOpening, settings: HttpSinkSettings
    ) -> None:
        identity = opening.identity
        name = hashlib.sha256(f"{identity.journal}/{identity.output}".encode()).hexdigest()[:16]
        poison = None if opening.folder is None else opening.folder / "poison" / identity.output
        self._client = client
        self._rows = rows
        self._settings = settings
        self._delivery = HttpDelivery(client, name, attempts=settings.attempts, poison=poison, pace_s=settings.pace_s)
        self._lanes: Lanes[HttpBatch] = Lanes(settings.lanes, self._delivery.deliver)
        self._mark: Mark = new_mark(settings.kind) if opening.mark is None else dict(opening.mark)
        self._taken = 0
        self._waiting: list[list[HttpRow]] = [[] for _ in range(settings.lanes)]

    def write(self, rows: ResultRows) -> None:
        first = self._mark["rows"] + self._taken
        most = self._settings.rows
        for message in self._rows.messages(rows, first):
            # Without a key, whole batches go to lanes in turn.
            lane = self._lanes.lane_of(message.key, message.number // most)
            self._waiting[lane].append(HttpRow(message.number, message.time, message.body))
        self._taken += len(rows)

    def commit(self) -> Mark:
        if self._taken:
            for lane, waiting in enumerate(self._waiting):
                for batch in batches_of(waiting, self._settings.rows, self._settings.size):
                    self._lanes.add(lane, batch)
                waiting.clear()
            for row in self._lanes.deliver():
                self._rows.reject(row.kind, row.message, row.number, row.time, {"row": row.row.decode()})
            self._mark["rows"] += self._taken
            self._mark["dropped"] += self._rows.dropped
            self._taken = self._rows.dropped = 0
        return dict(self._mark)

    def continue_after_held_rows(self) -> None:
        """See ``Output.continue_after_held_rows``: rows beyond the mark are unknown."""

    def drain_rejected_rows(self) -> list[RejectedRow]:
        return self._rows.drain_rejected_rows()

    def close(self) -> None:
        self._lanes.close()
        self._client.close()
