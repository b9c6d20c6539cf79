"""A clock to set, committers to hold, and a log to open with little text."""

from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.patience import PATIENCE_S
from tidegate.durable_files import Files
from tidegate.log import Appended, Committer, LogError, PartitionLog


class SetClock:
    """Says what it was told, and may be set back: the log must cope."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def arrival_lower_bound_ms(self) -> int:
        return self.time_ms


class InlineCommitter(Committer):
    """Runs the work when it is handed over, in the caller's thread."""

    def __init__(self) -> None:
        super().__init__(threads=0)

    def submit(self, work: Callable[[], None]) -> None:
        work()


class HeldCommitter(Committer):
    """Runs the work when told, so that a test says what makes a group."""

    def __init__(self) -> None:
        super().__init__(threads=0)
        self.work: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()


class QuickFiles(Files):
    """The system's without waiting for the disk, which only a power failure would show."""

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, directory: Path) -> None:
        pass


def open_log(directory: Path, **options: Any) -> PartitionLog:
    options.setdefault("clock", SetClock())
    options.setdefault("committer", InlineCommitter())
    options.setdefault("files", QuickFiles())
    return PartitionLog.open(directory, **options)


def use_files(log: PartitionLog, files: Any) -> None:
    """Have an open log use other file operations from now on."""
    log._state.files = files


def append(log: PartitionLog, events: Sequence[bytes]) -> Appended:
    """Append through an inline committer. Raises what the log answers."""
    answers: list[Appended | LogError] = []
    log.append(events, answers.append)
    (answer,) = answers
    if isinstance(answer, LogError):
        raise answer
    return answer


def append_all(log: PartitionLog, appends: Sequence[Sequence[bytes]]) -> None:
    """Append through any committer, and wait until all is durable."""
    answers: SimpleQueue[Appended | LogError] = SimpleQueue()
    for events in appends:
        log.append(events, answers.put)
    for _ in appends:
        assert isinstance(answers.get(timeout=PATIENCE_S), Appended)


def stored(log: PartitionLog, sequence_number: int = 0, **limits: int) -> list[tuple[int, int, int, bytes]]:
    """All events from a sequence number on, as (sequence number, offset, enqueued time, content)."""
    rows: list[tuple[int, int, int, bytes]] = []
    while batches := log.read_batches(sequence_number, **limits):
        for batch in batches:
            numbers = range(batch.base_sequence_number, batch.base_sequence_number + len(batch.events))
            rows += [
                (number, offset, batch.enqueued_time_ms, event)
                for number, offset, event in zip(numbers, batch.offsets, batch.events, strict=True)
            ]
        sequence_number = rows[-1][0] + 1
    return rows


def last_segment(directory: Path) -> Path:
    return max(directory.glob("*.log"))


class FaultyFiles(QuickFiles):
    """The system's files, until told that an operation fails."""

    def __init__(self) -> None:
        self.failing: dict[str, OSError] = {}
        self.write_limit: int | None = None
        self.syncs = 0

    def fail(self, operation: str, error_number: int) -> None:
        self.failing[operation] = OSError(error_number, "as the test wants")

    def heal(self) -> None:
        self.failing.clear()
        self.write_limit = None

    def _check(self, operation: str) -> None:
        if operation in self.failing:
            raise self.failing[operation]

    def open(self, path: Path) -> int:
        self._check("open")
        return super().open(path)

    def write_at(self, fd: int, position: int, buffers: Sequence[bytes]) -> None:
        if self.write_limit is not None:  # a full disk takes a part
            part = b"".join(buffers)[: self.write_limit]
            super().write_at(fd, position, [part])
        self._check("write")
        super().write_at(fd, position, buffers)

    def sync(self, fd: int) -> None:
        self.syncs += 1
        self._check("sync")
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._check("truncate")
        super().truncate(fd, size)
