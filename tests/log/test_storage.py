"""A data directory that takes no writes: it is known with its reason, and known to be over, without anybody's doing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.hub.support import CONFIG, NOW_S, grant
from tests.hub.support import message as event
from tests.log.support import InlineCommitter, SetClock
from tidegate.durable_files import Files
from tidegate.hub import Namespace
from tidegate.hub.errors import ServerBusy
from tidegate.log import Appended, LogError


def open_namespace(data_dir: Path) -> Namespace:
    return Namespace.open(data_dir, CONFIG, clock=SetClock(), committer=InlineCommitter())


class Disk:
    """A disk that refuses what a test says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.errno: int | None = None
        for name in ("write_at", "truncate", "sync", "create"):
            patch.setattr(Files, name, self._checked(getattr(Files, name), name))
        self.refuses: set[str] = set()

    def refuse(self, number: int, *operations: str) -> None:
        self.errno, self.refuses = number, set(operations)

    def heal(self) -> None:
        self.errno = None

    def _checked(self, operation: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(files: Files, *arguments: Any) -> Any:
            if self.errno is not None and name in self.refuses:
                raise OSError(self.errno, errno.errorcode[self.errno])
            return operation(files, *arguments)

        return run


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def namespace(tmp_path: Path, disk: Disk) -> Iterator[Namespace]:
    opened = open_namespace(tmp_path / "data")
    yield opened
    disk.heal()
    opened.close()


def append(namespace: Namespace, body: bytes) -> Appended | LogError:
    answers: list[Appended | LogError] = []
    namespace.event_hub("tolls").partition("0").log.append([event(body)], answers.append)
    return answers[0]


REFUSALS: Sequence[tuple[int, tuple[str, ...]]] = [
    (errno.ENOSPC, ("write_at",)),
    (errno.EDQUOT, ("write_at",)),
    (errno.EROFS, ("write_at", "truncate", "create")),
    (errno.EIO, ("sync",)),
    (errno.EACCES, ("create", "write_at")),
    (errno.EMFILE, ("create", "write_at")),
]


@pytest.mark.parametrize(("number", "operations"), REFUSALS)
def test_whatever_refuses_writes_is_said_and_passes_by_itself(
    namespace: Namespace, disk: Disk, number: int, operations: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    storage = namespace.storage
    heard: list[str | None] = []
    storage.on_check(heard.append)
    assert isinstance(append(namespace, b"before"), Appended)
    storage.check()
    before = storage.status()
    assert before.is_writable
    assert before.free_bytes
    assert before.size_bytes
    disk.refuse(number, *operations)
    for _ in range(5):
        assert isinstance(append(namespace, b"refused"), LogError)
        storage.check()
    status = storage.status()
    assert not status.is_writable
    assert errno.errorcode[number] in str(status.reason)
    assert status.refused_appends == 5
    assert status.last_write_s == before.last_write_s
    assert len([one for one in caplog.records if "takes no events" in one.getMessage()]) == 1, "a thing is said once"
    disk.heal()
    storage.check()  # nobody publishes, and nobody does anything
    assert storage.status().is_writable
    assert heard[0] is heard[-1] is None
    assert all(heard[1:-1])
    assert "takes events again" in caplog.text
    assert "5 appends were refused" in caplog.text
    after = append(namespace, b"after")
    assert isinstance(after, Appended)
    assert after.first_sequence_number == 1


def test_a_disk_that_nobody_writes_to_is_known_to_be_full(namespace: Namespace, disk: Disk) -> None:
    disk.refuse(errno.ENOSPC, "write_at")
    namespace.storage.check()
    assert "ENOSPC" in str(namespace.storage.status().reason)


def test_an_idempotent_producer_is_told_to_try_again(namespace: Namespace, disk: Disk) -> None:
    disk.refuse(errno.ENOSPC, "write_at")
    with pytest.raises(ServerBusy, match="try again"):
        namespace.open_publisher("tolls/Partitions/0", [grant(namespace)], NOW_S, idempotent=True)


@pytest.mark.parametrize(("number", "operations"), REFUSALS[:4])
def test_a_namespace_opens_without_a_write(
    tmp_path: Path, disk: Disk, number: int, operations: tuple[str, ...]
) -> None:
    first = open_namespace(tmp_path / "data")
    identity = first.event_hub("tolls").partition("0").log.log_id
    assert isinstance(append(first, b"before"), Appended)
    first.close()
    disk.refuse(number, *operations)
    again = open_namespace(tmp_path / "data")
    log = again.event_hub("tolls").partition("0").log
    assert (log.next_sequence_number, log.log_id) == (1, identity)
    assert len(log.read_batches(0)) == 1
    disk.heal()
    again.storage.check()
    assert isinstance(append(again, b"after"), Appended)
    again.close()
