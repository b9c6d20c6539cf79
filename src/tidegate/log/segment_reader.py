"""Reading a partition's directory from another process, while the hub appends to it.

Files are only ever appended to, and an entry checks itself, so no word between the processes is needed for reading what
is durable. What is durable only the hub knows: bytes behind its next sequence number may still be taken back (a failed
sync, a crash), so ask it and pass the answer as `to_sequence`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tidegate.durable_files import Files
from tidegate.log.entry import EntryView
from tidegate.log.errors import LogError
from tidegate.log.segment_table import SegmentTable


class SegmentReader:
    """Reads the log in `directory`; see `PartitionLog` for the terms. Holds no file open between calls."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._files = Files()

    def _table(self) -> SegmentTable:
        table = SegmentTable.of_directory(self._directory, self._files)
        if not table.names:
            raise LogError(f"{self._directory} holds no log")
        return table

    def read(self, from_sequence: int, to_sequence: int | None = None) -> Iterator[EntryView]:
        """The whole entries that hold any event from from_sequence to before to_sequence: the first and the last may
        reach beyond.

        If retention took the first events the first entry begins later. Without to_sequence: all that is intact in the
        files. Raises LogDamaged where acknowledged events cannot be read (to go on, ask again from its
        resume_sequence_number), LogError.
        """
        while to_sequence is None or from_sequence < to_sequence:
            table = self._table()
            # a segment that was begun after the listing is in the next one; until then it ends where the listing ended
            sealed = len(table.names) > 1
            limit = to_sequence
            try:
                if sealed and from_sequence < table.names[-1].base_sequence_number:
                    last = table.names[-1].base_sequence_number
                    limit = last if limit is None else min(last, limit)
                for entry in table.entries(from_sequence, limit):
                    from_sequence = entry.next_sequence_number
                    yield entry
                if limit == to_sequence:
                    return
            except FileNotFoundError:
                continue  # retention took it: list again

    def begin_sequence_number(self) -> int:
        """Of the oldest event still there (or to come)."""
        return self._table().names[0].base_sequence_number

    def end_sequence_number(self) -> int:
        """After the last intact entry in the files, durable or not."""
        table = self._table()
        return max(table.last_intact_sequence_number() + 1, table.names[-1].base_sequence_number)

    def sequence_at_time(self, enqueued_time_ms: int) -> int:
        """First sequence number enqueued at or after the time; end_sequence_number if there is none."""
        while True:
            try:
                found = self._table().sequence_at_time(enqueued_time_ms, True, None)
            except FileNotFoundError:
                continue
            return self.end_sequence_number() if found is None else found
