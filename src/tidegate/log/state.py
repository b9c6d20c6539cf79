"""The state that the writer, readers and retention of an open log share: its segments and its durable end."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from tidegate.durable_files import Files
from tidegate.log.acknowledged import Acknowledged
from tidegate.log.entry import EntryView
from tidegate.log.segment import SegmentHeader, SegmentName, SparseIndex
from tidegate.log.segment_table import SegmentTable


class LogState:
    """The segments, oldest first, and the durable end, which is all that readers may see.

    Attributes:
        directory: The directory of the segments.
        files: The operations they are read and written with.
        lock: Held while any field below changes. Taken after the writer's lock, never before.
        names: The segments. The list is replaced and never changed, so that a reader can keep it.
        end: Where the durable events begin and end. Replaced whole.
        in_flight_ms: The enqueued time of the group being written, None if none is.
    """

    def __init__(self, table: SegmentTable, end: Acknowledged, tail_index: SparseIndex | None) -> None:
        """Show what was found; without a tail_index, the index of the last segment is read from its file."""
        self.directory: Path = table.directory
        self.files: Files = table.files
        self.lock = threading.Lock()
        self.names: list[SegmentName] = table.names
        self.end = end
        self.in_flight_ms: int | None = None
        self._indexes = {} if tail_index is None else {table.names[-1]: tail_index}
        self._headers = table.headers
        self._own_headers = table.own_headers

    def snapshot(self) -> tuple[SegmentTable, Acknowledged]:
        """Return a consistent snapshot of the segments and the durable end."""
        with self.lock:
            table = SegmentTable(self.directory, self.files, self.names, self._indexes, self._headers)
            table.begin, table.log_id = self.end.begin, self.end.log_id
            table.own_headers = self._own_headers
            return table, self.end

    def position_at_or_before(self, sequence_number: int) -> int:
        """Return where an entry begins that is not after the event, from what is in memory."""
        with self.lock:
            at = max(bisect_right(self.names, sequence_number, key=lambda name: name.base_sequence_number) - 1, 0)
            name = self.names[at]
            index = self._indexes.get(name)
            found = None if index is None else index.by_sequence(sequence_number)
            return name.base_position if found is None else found.position

    def replace(self, table: SegmentTable, end: Acknowledged, tail_index: SparseIndex | None) -> None:
        """Show what recovery has found, in place of what could be read before."""
        with self.lock:
            self.names, self.end = table.names, end
            self._indexes = {} if tail_index is None else {table.names[-1]: tail_index}
            self._headers = table.headers

    def extend(self, end: Acknowledged, index: SparseIndex, entries: Sequence[EntryView]) -> None:
        """Make a group visible: its entries are durable in the last segment."""
        with self.lock:
            self.end = end
            self.in_flight_ms = None
            for entry in entries:
                index.add(entry)

    def add_segment(self, header: SegmentHeader, index: SparseIndex) -> None:
        """Continue in a new segment, which begins where the last one ends."""
        name = header.name
        with self.lock:
            self.names = [*self.names, name]
            self._indexes[name] = index
            self._headers[name] = header
            self.end = self.end._replace(end_position=name.first_entry_position)

    def move_begin(self, begin: SegmentName) -> list[SegmentName]:
        """Forget the segments before `begin`, and return their names."""
        with self.lock:
            removed = [name for name in self.names if name < begin]
            self.names = [name for name in self.names if name >= begin]
            self.end = self.end._replace(begin=begin)
            for name in removed:
                self._indexes.pop(name, None)
                self._headers.pop(name, None)
                self._own_headers.pop(name, None)
            return removed
