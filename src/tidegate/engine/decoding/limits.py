"""Limits on one event or file: untrusted bytes may claim no more than this depth, count and size."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.engine.values.budget import MOST_VALUES, BatchTooLarge

VALUES_A_BYTE = 16
"""How many values of a file a byte may stand for."""


@dataclass(frozen=True, slots=True)
class ContentLimits:
    """What one content may hold, whichever format it has.

    Attributes:
        depth: how deeply values may be nested.
        data_bytes: its size after the decompression that its format has.
        rows, values: how many there may be.
    """

    depth: int
    data_bytes: int
    rows: int
    values: int


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """Limits of decoding. Anything beyond them is an Input Deserialization Error of that event or file.

    Attributes:
        depth: how deeply arrays, records and their schemas may be nested.
        event_bytes: the size of one event's body after decompression.
        event_rows: how many rows one event may have.
        event_values: how many values one event may have, those inside records and arrays included.
        file_bytes: the size of one file after decompression.
        rows: how many rows one file may announce.
    """

    depth: int = 64
    event_bytes: int = 16 << 20
    file_bytes: int = 2 << 30
    rows: int = 10_000_000
    event_rows: int = 100_000
    event_values: int = MOST_VALUES

    def of_event(self) -> ContentLimits:
        """Return the limits of one event's body."""
        return ContentLimits(self.depth, self.event_bytes, min(self.rows, self.event_rows), self.event_values)

    def of_file(self) -> ContentLimits:
        """Return the limits of one file."""
        return ContentLimits(self.depth, self.file_bytes, self.rows, VALUES_A_BYTE * self.file_bytes)


DEFAULT_LIMITS = DecodingLimits()

BATCH_BYTES = 16 << 20
BATCH_ROWS = 400_000
"""What the events that are decoded together may amount to after decompression; more are decoded in parts."""


@dataclass(slots=True)
class BatchBudget:
    """What the events of a batch amount to so far, as they are decompressed and their rows are found."""

    bytes: int = 0
    rows: int = 0

    def add(self, event: int, *, size: int = 0, rows: int = 0) -> None:
        """Account for an event.

        Raises:
            BatchTooLarge: with those before it, it is too much at once.
        """
        self.bytes += size
        self.rows += rows
        if event and (self.bytes > BATCH_BYTES or self.rows > BATCH_ROWS):
            raise BatchTooLarge(event)
