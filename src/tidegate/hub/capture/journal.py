"""The journal of a partition's capture: which events are in files, and which file is being delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from tidegate.durable_files import FileDamaged
from tidegate.log import Document, FolderDocument, PartitionStore

NAME = "capture/journal.json"
_ADVICE = "restore it from a backup, or move it away to capture from now on"


class JournalDamaged(Exception):
    """The journal cannot be read; the message says what to do."""


class PendingFile(BaseModel):
    """A file whose events and name are fixed; it may or may not have been delivered.

    It holds the events from `first_sequence_number` up to, but not including, `end_sequence_number`. The next file
    belongs to the window that begins at `next_window_start_ms`, which may already have a file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    name_time_s: int
    first_sequence_number: int
    end_sequence_number: int
    next_window_start_ms: int
    next_window_has_file: bool


class CaptureState(BaseModel):
    """The state of a partition's capture: events before `next_sequence_number` are in files.

    `archive_id` tells this partition's files from others of the same name. `window_start_ms` is the start of the next
    event's window, or of an earlier one; `window_has_file` is whether a file of that window was delivered.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    archive_id: str
    next_sequence_number: int
    window_start_ms: int
    window_has_file: bool = False
    last_name_time_s: int = 0
    pending: PendingFile | None = None

    def moved(self, first: int) -> CaptureState:
        """Return the same of a log in which the event `first` has the number 0, and earlier ones are missing."""
        pending = self.pending
        if pending is not None:
            first_in_file, end = pending.first_sequence_number - first, pending.end_sequence_number - first
            pending = pending.model_copy(
                update={"first_sequence_number": max(0, first_in_file), "end_sequence_number": max(0, end)}
            )
        number = max(0, self.next_sequence_number - first)
        return self.model_copy(update={"next_sequence_number": number, "pending": pending})


class CaptureJournal:
    """The journal of one partition, kept by its store."""

    def __init__(self, log: PartitionStore) -> None:
        self._document: Document = log.document(NAME, advice=_ADVICE)

    @classmethod
    def in_folder(cls, folder: Path) -> CaptureJournal:
        """Return the journal of a partition in a data directory, which may be open elsewhere."""
        journal = cls.__new__(cls)
        journal._document = FolderDocument(folder / NAME, _ADVICE)
        return journal

    def __str__(self) -> str:
        return str(self._document)

    def read(self) -> CaptureState | None:
        """Return the last state written, None before the first. Raises JournalDamaged, OSError."""
        try:
            document = self._document.read()
        except FileDamaged as error:
            raise JournalDamaged(str(error)) from None
        if document is None:
            return None
        try:
            return CaptureState.model_validate(document)
        except ValidationError as error:
            places = ", ".join(
                ".".join(map(str, item["loc"])) or item["msg"] for item in error.errors(include_url=False)
            )
            raise JournalDamaged(str(self._document.damaged(f"look at {places}"))) from None

    def write(self, state: CaptureState) -> None:
        """Make a state durable. Raises OSError."""
        self._document.write(state.model_dump(mode="json"))
