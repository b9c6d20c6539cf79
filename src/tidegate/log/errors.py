"""What can go wrong with a log, by name."""

from __future__ import annotations

from pathlib import Path


class LogError(Exception):
    """The log could not do what was asked. Nothing that was acknowledged before is affected."""


class LogClosed(LogError):
    """The log was closed; what was still waiting was not stored."""


class LogDamaged(LogError):
    """Stored events cannot be read back: their bytes differ from what was written.

    `sequence_number` is the first event that cannot be served, `resume_sequence_number` the first intact one after it
    (equal to the log's next sequence number if there is none yet). Sequence numbers are never given out again.
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
            f"{resume_sequence_number - 1} cannot be read, reading can go on at {resume_sequence_number}"
        )

    @property
    def sequence_numbers(self) -> range:
        """Of the events that cannot be read."""
        return range(self.sequence_number, self.resume_sequence_number)
