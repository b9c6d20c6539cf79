"""Captured files as data, and a log to capture from."""

from pathlib import Path
from typing import Any

import fastavro

from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.partition_capture import CaptureWriter
from tidegate.hub.capture.store import CaptureStore, Folder

NAMES = {"Namespace": "ns1", "EventHub": "eh1", "PartitionId": "0"}


def description(**settings: Any) -> CaptureDescription:
    """One whose limits may be smaller than a user's."""
    return CaptureDescription(destination="unused").model_copy(update={"interval_in_seconds": 60, **settings})


def files(archive: Path) -> list[str]:
    """The names of the files, in the order of their times."""
    return sorted(str(path.relative_to(archive)) for path in archive.rglob("*.avro"))


def records(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        return [record for record in fastavro.reader(file) if isinstance(record, dict)]


def archive_of(archive: Path) -> dict[str, list[int]]:
    """Each file's sequence numbers, in the order of the files' times."""
    return {name: [record["SequenceNumber"] for record in records(archive / name)] for name in files(archive)}


def content_of(archive: Path) -> dict[str, bytes]:
    return {name: (archive / name).read_bytes() for name in files(archive)}


def run(writer: CaptureWriter, now_ms: int) -> None:
    """Steps until nothing is due."""
    while writer.step(now_ms):
        pass


class Crash(BaseException):
    """The process ends here, as far as the code under test can tell."""


class CountedSteps:
    """Ends the process at the n-th operation that leaves a trace on a disk, before or after it."""

    def __init__(self) -> None:
        self.count = 0
        self.crash_at: int | None = None

    def pass_by(self) -> None:
        self.count += 1
        if self.crash_at is not None and self.count >= self.crash_at:
            self.crash_at = None
            raise Crash


class CountedStore:
    """A folder whose puts count as operations."""

    def __init__(self, path: Path, steps: CountedSteps) -> None:
        self._folder: CaptureStore = Folder(path)
        self._steps = steps

    def head(self, name: str, size: int) -> bytes | None:
        return self._folder.head(name, size)

    def put(self, name: str, content: Path) -> None:
        self._steps.pass_by()
        self._folder.put(name, content)
        self._steps.pass_by()
