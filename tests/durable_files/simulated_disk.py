"""A disk in memory that can lose its power, and then keeps any part of what was not synced."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tidegate.durable_files import Files


class PowerLost(BaseException):
    """Nothing more happens; not an Exception, because no code can handle it."""


class SimulatedDisk(Files):
    """Files of one folder. `before` is called with the name of each operation and may raise.

    Content and names have a life of their own, as on POSIX: `sync` keeps the content of a file, `sync_directory` the
    names. What was not synced may be there after a power failure or not, each change by itself, and names in order.
    """

    def __init__(self, before: Callable[[str], None] = lambda operation: None) -> None:
        self._before = before
        self._contents: dict[int, bytes] = {}
        self._durable_contents: dict[int, bytes] = {}
        self._names: dict[Path, int] = {}
        self._unsynced_names: list[dict[Path, int]] = [{}]  # the durable state, and each state since
        self._number = itertools.count()

    def put(self, path: Path, content: bytes) -> None:
        number = next(self._number)
        self._contents[number] = self._durable_contents[number] = content
        self._names[path] = number
        self._unsynced_names = [dict(self._names)]

    def read(self, path: Path) -> bytes:
        return self._contents[self._names[path]]

    def exists(self, path: Path) -> bool:
        return path in self._names

    def after_power_loss(self, path: Path) -> Iterator[bytes | None]:
        """Every content that the file may have; None if it may be missing."""
        for names in self._unsynced_names:
            number = names.get(path)
            if number is None:
                yield None
                continue
            written, durable = self._contents[number], self._durable_contents.get(number, b"")
            yield from (
                {written, durable, written[: len(written) // 2], bytes(len(written))}
                if (written != durable)
                else {written}
            )

    def _rename(self) -> None:
        self._unsynced_names.append(dict(self._names))

    def create(self, path: Path, mode: int = 0o666) -> int:
        self._before("create")
        number = next(self._number)
        self._contents[number] = b""
        self._names[path] = number
        self._rename()
        return number

    def write_at(self, fd: int, position: int, buffers: Sequence[bytes]) -> None:
        self._contents[fd] = self._contents[fd][:position] + b"".join(buffers)[:3]
        self._before("write")
        self._contents[fd] = self._contents[fd][:position] + b"".join(buffers)

    def sync(self, fd: int) -> None:
        self._before("sync")
        self._durable_contents[fd] = self._contents[fd]

    def close(self, fd: int) -> None:
        self._before("close")

    def replace(self, source: Path, target: Path) -> None:
        self._before("replace")
        self._names[target] = self._names.pop(source)
        self._rename()

    def remove(self, path: Path) -> None:
        self._before("remove")
        self._names.pop(path, None)
        self._rename()

    def sync_directory(self, directory: Path) -> None:
        self._before("sync_directory")
        self._unsynced_names = [dict(self._names)]
