"""Delivers rows over HTTP as JSON arrays, in batches by count and size, and judges the answers.

| answer | what happens |
|---|---|
| 2xx | the batch is delivered |
| 413 | it is halved, and later batches are smaller; a single row is refused |
| 401, 403, 404, 408, 425, 429, 502, 503, 504, none | tried again with growing pauses, or as Retry-After says |
| 500 | tried again, a few times: then the batch is poison |
| any other | the batch is poison |

A poison batch is written to a file beside the job's journal, with the answer, before the job drops it or ends.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.connectors.outputs.kinds import OutputOpening
from tidegate.connectors.outputs.messaging.http_client import HttpClient, Reply
from tidegate.connectors.outputs.messaging.lanes import BatchOutcome, LaneOutput, RefusedRow
from tidegate.connectors.outputs.messaging.message_rows import MessageRows
from tidegate.connectors.outputs.output import (
    RECORD_EXCEEDED_SIZE_LIMIT,
    TYPE_CONVERSION_ERROR,
    OutputUnavailableError,
)
from tidegate.engine import ResultRows
from tidegate.retrying import PASSING_STATUS

_TOO_LARGE = 413
_FAILED = 500
_LATER = PASSING_STATUS - {_FAILED} | {401, 403, 404}


@dataclass(frozen=True, slots=True)
class HttpRow:
    """A row as JSON, its number among the output's rows, and its time in ticks."""

    number: int
    time: int
    body: bytes


HttpBatch = Sequence[HttpRow]


def batches_of(rows: Sequence[HttpRow], most_rows: int, most_bytes: int) -> Iterator[HttpBatch]:
    """Yield rows in batches of at most so many rows and bytes; a larger row is a batch of its own."""
    batch: list[HttpRow] = []
    size = 2
    for row in rows:
        if batch and (len(batch) >= most_rows or size + len(row.body) + 1 > most_bytes):
            yield batch
            batch, size = [], 2
        batch.append(row)
        size += len(row.body) + 1
    if batch:
        yield batch


def ranges_of(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: ``0-99``, or ``0-3,7``."""
    found: list[str] = []
    first = last = numbers[0]
    for number in [*numbers[1:], -1]:
        if number == last + 1:
            last = number
            continue
        found.append(f"{first}-{last}" if last > first else str(first))
        first = last = number
    return ",".join(found)


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


class HttpSink(LaneOutput[HttpBatch]):
    """A receiver over HTTP; its mark counts rows."""

    def __init__(
        self, client: HttpClient, rows: MessageRows, opening: OutputOpening, settings: HttpSinkSettings
    ) -> None:
        super().__init__(settings.kind, opening, client, rows, settings.lanes)
        self._settings = settings
        self._name = opening.identity.digest
        """Part of each request, so that a receiver can tell repetitions."""
        self._poison = None if opening.folder is None else opening.folder / "poison" / opening.identity.output
        self._waiting: list[list[HttpRow]] = [[] for _ in range(settings.lanes)]
        self._failures: Counter[int] = Counter()
        self._not_before_s = 0.0
        self._largest_count: int | None = None
        """The largest batch that the receiver has not found too large, once it has found one."""

    def write(self, rows: ResultRows) -> None:
        most = self._settings.rows
        for message in self._rows.messages(rows, self._next):
            # Without a key, whole batches go to lanes in turn.
            lane = self._lane_of(message.key, message.number // most)
            self._waiting[lane].append(HttpRow(message.number, message.time, message.body))
        self._taken += len(rows)

    def _fill_lanes(self) -> None:
        for lane, waiting in enumerate(self._waiting):
            self._pending[lane].extend(batches_of(waiting, self._settings.rows, self._settings.size))
            waiting.clear()

    def _refused(self, row: bytes) -> dict[str, Any]:
        return {"row": row.decode()}

    def _deliver(self, batch: HttpBatch) -> BatchOutcome[HttpBatch]:
        if self._largest_count is not None and len(batch) > self._largest_count:
            size = self._largest_count
            return BatchOutcome([batch[first : first + size] for first in range(0, len(batch), size)])
        self._wait()
        body = b"[%b]" % b",".join(row.body for row in batch)
        reply = self._client.post(body, self._headers(batch))
        if reply.is_success:
            return BatchOutcome()
        if reply.status == _TOO_LARGE:
            return self._halved(batch)
        said = f"{self._client.place} answered {reply.status}{f': {reply.text}' if reply.text else ''}"
        if reply.status in _LATER or reply.status == _FAILED:
            self._failures[batch[0].number] += 1
            if reply.status in _LATER or self._failures[batch[0].number] < self._settings.attempts:
                self._not_before_s = time.monotonic() + reply.retry_after_s()
                raise OutputUnavailableError(said)
        kept = self._keep(batch, reply)
        return BatchOutcome(
            refused=[RefusedRow(row.number, row.time, TYPE_CONVERSION_ERROR, said + kept, row.body) for row in batch]
        )

    def _wait(self) -> None:
        now = time.monotonic()
        start = max(now, self._not_before_s)
        self._not_before_s = start + self._settings.pace_s
        if start > now:
            time.sleep(start - now)

    def _headers(self, batch: HttpBatch) -> Mapping[str, str]:
        return {"Tidegate-Output": self._name, "Tidegate-Rows": ranges_of([row.number for row in batch])}

    def _halved(self, batch: HttpBatch) -> BatchOutcome[HttpBatch]:
        if len(batch) == 1:
            (row,) = batch
            said = f"{self._client.place} finds a result of {len(row.body):,} bytes too large (413)"
            return BatchOutcome(refused=[RefusedRow(row.number, row.time, RECORD_EXCEEDED_SIZE_LIMIT, said, row.body)])
        middle = len(batch) // 2
        self._largest_count = min(self._largest_count or middle, middle)
        return BatchOutcome([batch[:middle], batch[middle:]])

    def _keep(self, batch: HttpBatch, reply: Reply) -> str:
        """Write a poison batch to a file, and return where it is, for people."""
        if self._poison is None:
            return ""
        content = {
            "rows": f"{batch[0].number}-{batch[-1].number}",
            "answer": {"status": reply.status, "body": reply.body[:10_000].decode(errors="replace")},
            "batch": [json.loads(row.body) for row in batch],
        }
        path = self._poison / f"{batch[0].number}-{batch[-1].number}.json"
        beside = path.with_suffix(".new")
        try:
            self._poison.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
            os.replace(beside, path)
        except OSError as error:
            raise OutputUnavailableError(f"cannot write the poison batch {path}: {error.strerror}") from error
        return f"; the batch is in {path}"
