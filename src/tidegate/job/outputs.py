"""Where results go: each row once, in time order, whatever is killed when.

An output takes the lines of a step, makes them durable, and answers with a *mark*. The journal keeps the marks of the
last committed step. A run that finds a journal hands each output its mark back; the output forgets what lies beyond
it, and the step that did not finish writes the same bytes again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO, Protocol

from tidegate.job.errors import OutputError
from tidegate.job.output_definitions import ConsoleOutput, FileOutput, OutputDefinition


class Output(Protocol):
    """One open output."""

    def write(self, lines: bytes) -> None:
        """Take JSON lines, each ended by a line feed."""

    def commit(self) -> int:
        """Make what was written durable and say where it ends."""

    def close(self) -> None:
        """Give back the file."""


class LinesFile:
    """A file of JSON lines; its mark is its length in bytes."""

    def __init__(self, path: Path, mark: int | None) -> None:
        """Open ``path`` at ``mark``, or afresh where there is none.

        Raises:
            OutputError: the file cannot be written, is shorter than the mark, or holds rows of another run.
        """
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            length = path.stat().st_size if path.exists() else 0
            if mark is None and length:
                raise OutputError(
                    f"{path} holds {length:,} bytes that no journal of this job knows of; move it away, "
                    "or name another file"
                )
            if mark is not None and length < mark:
                raise OutputError(
                    f"{path} has {length:,} bytes, but the journal committed {mark:,}; restore the file, "
                    "or move the journal away to start afresh"
                )
            self._file: BinaryIO = path.open("r+b" if path.exists() else "w+b")
            self._file.truncate(mark or 0)
            self._file.seek(mark or 0)
        except OSError as error:
            raise OutputError(f"cannot write the output {path}: {error.strerror}") from error

    def write(self, lines: bytes) -> None:
        """See ``Output.write``."""
        try:
            self._file.write(lines)
        except OSError as error:
            raise OutputError(f"cannot write the output {self._path}: {error.strerror}") from error

    def commit(self) -> int:
        """See ``Output.commit``."""
        try:
            self._file.flush()
            os.fdatasync(self._file.fileno())
        except OSError as error:
            raise OutputError(f"cannot write the output {self._path}: {error.strerror}") from error
        return self._file.tell()

    def close(self) -> None:
        """See ``Output.close``."""
        self._file.close()


class Console:
    """Standard output. What a terminal has shown cannot be taken back: after a crash its last step may show twice."""

    def write(self, lines: bytes) -> None:
        """See ``Output.write``."""
        sys.stdout.write(lines.decode())

    def commit(self) -> int:
        """See ``Output.commit``."""
        sys.stdout.flush()
        return 0

    def close(self) -> None:
        """See ``Output.close``."""


def open_output(definition: OutputDefinition, mark: int | None) -> Output:
    """Open an output at the mark the journal has for it.

    Raises:
        OutputError: it cannot be written, or what it holds does not fit the mark.
    """
    match definition:
        case FileOutput(path=path):
            return LinesFile(path, mark)
        case ConsoleOutput():
            return Console()
