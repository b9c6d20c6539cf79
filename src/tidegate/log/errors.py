"""Errors of a log."""

from __future__ import annotations

from pathlib import Path


class LogError(Exception):
    """An operation on the log failed. Events acknowledged before are not affected."""


class LogClosed(LogError):
    """The log was closed. Pending appends were not stored."""


class NumbersRefused(LogError):
    """The numbers of an idempotent producer leave a gap, or its epoch is over; nothing was stored."""

    def __init__(self, message: str, *, is_epoch_over: bool) -> None:
        self.is_epoch_over = is_epoch_over
        super().__init__(message)


class LogDamaged(LogError):
    """Acknowledged events cannot be read: their bytes differ from what was written, or are missing.

    Attributes:
        path: The file that is damaged or missing.
        file_position: Where in it the damage begins.
        reason: A description for people.
        sequence_number: The first event that cannot be read.
        resume_sequence_number: The first intact event after it, or the log's next sequence number if there is none yet.
            Sequence numbers are never reused.
    """

    def __init__(
        self, path: Path, file_position: int, reason: str, sequence_number: int, resume_sequence_number: int
    ) -> None:
        self.path = path
        self.file_position = file_position
        self.reason = reason
        self.sequence_number = sequence_number
        self.resume_sequence_number = resume_sequence_number
        super().__init__(
            f"{path.name} is damaged at byte {file_position} ({reason}): events {sequence_number} to "
            f"{resume_sequence_number - 1} cannot be read; reading can continue at {resume_sequence_number}"
        )

    @property
    def sequence_numbers(self) -> range:
        """Return the sequence numbers of the events that cannot be read."""
        return range(self.sequence_number, self.resume_sequence_number)


class DocumentReplaced(OSError):
    """A document was replaced by another process, so what was to follow from its former content must not be written."""
