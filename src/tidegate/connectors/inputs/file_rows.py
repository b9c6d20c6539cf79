"""Rows of files as events: what executors read of the files that are part of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tidegate.blobs import Blob, BlobError, BlobSource
from tidegate.connectors.inputs.hub_log import earlier_of_device
from tidegate.connectors.model.captured import CapturedFile, captured_file
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import EventBlobs, Events, Int64Array
from tidegate.engine import JSON, Format, TableBodies, Wanted, decoder_of, rows_of
from tidegate.engine.decoding.decoded import Path as FieldPath
from tidegate.engine.decoding.metadata import BLOB_COLUMNS, HUB_COLUMNS, IOT_HUB_COLUMNS
from tidegate.engine.values.conversions import to_datetimes
from tidegate.engine.values.vectors import Kind
from tidegate.ordering import NO_TIME

Arrivals = tuple[int, str | None]
"""The arrival of every row of a file in ticks; or the name of a column with the arrivals, and the earliest arrival that
a row can have."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows ``skip`` ≤ row < ``skip + count`` of one file, the first of which has the number ``first``.

    ``format`` None: a file written by Capture; with ``of_devices``, of an IoT hub's messages, which arrived when the
    IoT hub accepted them.
    """

    source: BlobSource
    blob: Blob
    format: Format | None
    first: int
    skip: int
    count: int
    arrivals: Arrivals
    of_devices: bool = False

    def read_events(self, batch_events: int) -> Iterator[Events]:
        """Yield the events in order. Raises InputError."""
        if self.format is None:
            yield from self._captured(batch_events)
            return
        bodies = file_rows(self.source, self.blob, self.format)
        arrivals = row_arrivals(bodies, self.format, self.arrivals)
        for first in range(self.skip, self.skip + self.count, batch_events):
            stop = min(first + batch_events, self.skip + self.count)
            number = self.first + first - self.skip
            part = bodies[first:stop]
            yield Events(
                np.arange(number, number + stop - first, dtype=np.int64),
                arrivals[first:stop],
                part,
                format=self.format if isinstance(part, TableBodies) else JSON,
                blobs=EventBlobs.of(self.blob.name, self.blob.modified, stop - first, starts=first == 0),
                added_columns=BLOB_COLUMNS,
            )

    def _captured(self, batch_events: int) -> Iterator[Events]:
        captured = captured_rows(self.source, self.blob)
        assert self.format is None
        for first in range(self.skip, self.skip + self.count, batch_events):
            stop = min(first + batch_events, self.skip + self.count)
            arrivals, messages = captured.arrivals[first:stop], captured.messages.part(first, stop)
            yield Events(
                captured.sequence_numbers[first:stop],
                earlier_of_device(arrivals, messages.details()) if self.of_devices else arrivals,
                captured.bodies[first:stop],
                messages,
                added_columns=IOT_HUB_COLUMNS if self.of_devices else HUB_COLUMNS,
            )


@dataclass(frozen=True, slots=True)
class FileRange:
    """Events of one partition by sequence number, from one or more files."""

    start: int
    end: int
    parts: tuple[FileRows, ...]
    body_format: Format = JSON

    def read_events(self, batch_events: int) -> Iterator[Events]:
        """Events of small files are combined into one run."""
        waiting: list[Events] = []
        count = 0
        for part in self.parts:
            for events in part.read_events(batch_events):
                events = (
                    events if self.body_format == JSON or part.format is not None else _as(events, self.body_format)
                )
                if waiting and (count + len(events.bodies) > batch_events or not _can_join(waiting[-1], events)):
                    yield _joined(waiting)
                    waiting, count = [], 0
                waiting.append(events)
                count += len(events.bodies)
        if waiting:
            yield _joined(waiting)


def _as(events: Events, body_format: Format) -> Events:
    return replace(events, format=body_format)


def _can_join(one: Events, other: Events) -> bool:
    return (
        isinstance(one.bodies, list)
        and isinstance(other.bodies, list)
        and one.messages is None
        and other.messages is None
        and one.format == other.format
    )


def _joined(parts: Sequence[Events]) -> Events:
    if len(parts) == 1:
        return parts[0]
    return Events(
        np.concatenate([one.sequence_numbers for one in parts]),
        np.concatenate([one.arrivals for one in parts]),
        [body for one in parts for body in one.bodies],
        format=parts[0].format,
        blobs=EventBlobs.concat([one.blobs for one in parts if one.blobs is not None]),
        added_columns=parts[0].added_columns,
    )


@lru_cache(maxsize=2)
def file_rows(source: BlobSource, blob: Blob, format_: Format) -> Sequence[bytes]:
    """Return the rows of a file. The most recent files are cached, because steps read large ones piece by piece.

    Raises:
        InputError: it is gone, or has changed since it was taken in.
    """
    return rows_of(file_content(source, blob), format_)


@lru_cache(maxsize=2)
def captured_rows(source: BlobSource, blob: Blob) -> CapturedFile:
    """Return the events of a file written by Capture; see `file_rows`."""
    return captured_file(file_content(source, blob), blob.name)


def file_content(source: BlobSource, blob: Blob) -> bytes:
    """Return the bytes of a file.

    Raises:
        InputError: it is gone, or has changed since it was taken in.
    """
    try:
        return source.read_blob(blob)
    except BlobError as error:
        raise InputError(str(error)) from error


def row_arrivals(bodies: Sequence[bytes], format_: Format, arrivals: Arrivals) -> Int64Array:
    """Return when each row of a file arrived, in ticks.

    A column gives arrivals; a row with no value or an earlier one gets the arrival of the row before. So arrivals never
    decrease.
    """
    return placed_rows(bodies, format_, arrivals)[0]


def placed_rows(bodies: Sequence[bytes], format_: Format, arrivals: Arrivals) -> tuple[Int64Array, int]:
    """Return when each row arrived, see `row_arrivals`, and how many rows say that they arrived before the one before.

    Those are not in the order of their arrival.
    """
    least, column = arrivals
    if column is None:
        return np.full(len(bodies), least, dtype=np.int64), 0
    path: FieldPath = (column,)
    decoder = decoder_of(Wanted((path,)), format_ if isinstance(bodies, TableBodies) else JSON)
    decoded = decoder.decode(bodies)
    times = to_datetimes(decoded.fields[(column.lower(),)])
    known = np.where(times.kinds == Kind.DATETIME, times.int_values(), np.int64(NO_TIME))
    found = np.full(len(bodies), least, dtype=np.int64)
    np.maximum.at(found, decoded.events, known)
    running = np.maximum.accumulate(found)
    misplaced = (known != NO_TIME) & (known < running[decoded.events])
    return running, int(np.count_nonzero(misplaced))
