"""Reading a partition's directory from another process, while the hub appends to it.

Files are append-only and entries carry checksums, so reading needs no coordination. But only the hub knows what is
durable: bytes after its next sequence number may still be cut off (after a failed sync or a crash). Ask the hub for
that number and pass it as `to_sequence`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tidegate.durable_files import Files
from tidegate.log.acknowledged import read_acknowledged
from tidegate.log.entry import EntryView
from tidegate.log.errors import LogError
from tidegate.log.segment_table import SegmentTable, as_events


class SegmentReader:
    """Reads the log in `directory`; see `PartitionLog` for the terms. Holds no file open between calls."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._files = Files()

    def _table(self) -> SegmentTable:
        table = SegmentTable.read_directory(self._directory, self._files)
        if not table.names:
            raise LogError(f"{self._directory} holds no log")
        # after the listing: retention moves the beginning before it deletes
        acknowledged = read_acknowledged(self._directory)
        if acknowledged is not None:
            table.begin, table.log_id = acknowledged.begin, acknowledged.log_id
        return table

    def read_entries(self, from_sequence: int, to_sequence: int | None = None) -> Iterator[EntryView]:
        """Yield the entries that hold any event from from_sequence up to, but not including, to_sequence.

        Record batches of Kafka's clients are events here like all others. Entries are whole, so the first and the last
        may reach beyond. If retention has deleted the first events, the first entry begins later.

        Args:
            from_sequence: The first sequence number wanted.
            to_sequence: Where to end. None: after all that is intact in the files.

        Raises:
            LogDamaged: Acknowledged events cannot be read. To continue, call again from its resume_sequence_number.
            LogError: The log cannot be read.
        """
        while to_sequence is None or from_sequence < to_sequence:
            table = self._table()
            # a segment begun after the listing is found by the next listing; this one ends where the listed ones end
            sealed = len(table.names) > 1
            limit = to_sequence
            try:
                if sealed and from_sequence < table.names[-1].base_sequence_number:
                    last = table.names[-1].base_sequence_number
                    limit = last if limit is None else min(last, limit)
                for entry in table.entries(from_sequence, limit):
                    from_sequence = entry.next_sequence_number
                    yield as_events(entry, self._directory)
                if limit == to_sequence:
                    return
            except FileNotFoundError:
                continue  # retention deleted it: list again

    def begin_sequence_number(self) -> int:
        """Return the sequence number of the oldest retained event, or of the next event if there is none."""
        return self._table().begin_sequence_number

    def end_sequence_number(self) -> int:
        """Return the sequence number after the last intact entry in the files, durable or not."""
        table = self._table()
        return max(table.last_intact_sequence_number() + 1, table.names[-1].base_sequence_number)

    def sequence_at_time(self, enqueued_time_ms: int) -> int:
        """Return the first sequence number enqueued at or after the time; end_sequence_number if there is none."""
        while True:
            try:
                found = self._table().sequence_at_time(enqueued_time_ms, True, None)
            except FileNotFoundError:
                continue
            return self.end_sequence_number() if found is None else found
