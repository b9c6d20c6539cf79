"""The data errors of a job by kind, source and message: how many, since when, and the latest events of each.

A job appends records to a file, and starts another when that has grown. Here, each record is read once: a page that is
opened again costs what was written since.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

MOST_EXAMPLES = 5
MOST_GROUPS = 500
_LONGEST_EXAMPLE = 2000
_TEXTS = ("body", "result")


@dataclass(slots=True)
class ErrorGroup:
    """Errors that differ only in the events that they are about.

    Attributes:
        kind: such as `LateInputEvent`.
        source: the input or the output; empty for a row of several events.
        message: what is wrong.
        count: how many there were.
        first: when the first one arrived, in ISO 8601.
        last: when the last one did.
        examples: the latest events, or rows of results, as the job's file has them; long ones are cut.
    """

    kind: str
    source: str
    message: str
    count: int = 0
    first: str = ""
    last: str = ""
    examples: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=MOST_EXAMPLES))


class ErrorGroups:
    """The groups of one job's file, and of the one before it. Safe to call from several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: OrderedDict[tuple[str, str, str], ErrorGroup] = OrderedDict()
        self._read: tuple[Path, int] | None = None
        self._place = 0

    def of(self, path: Path) -> Sequence[ErrorGroup]:
        """Return the groups of a file as it is now, the one that was written last first. Raises OSError."""
        with self._lock:
            try:
                with path.open("rb") as file:
                    found = os.fstat(file.fileno())
                    if (path, found.st_ino) != self._read or found.st_size < self._place:
                        self._begin(path, found.st_ino)
                    file.seek(self._place)
                    self._place += self._take(file)
            except FileNotFoundError:
                self._groups.clear()
                self._read = None
            return [replace(one, examples=one.examples.copy()) for one in reversed(self._groups.values())]

    def _begin(self, path: Path, inode: int) -> None:
        self._groups.clear()
        self._read, self._place = (path, inode), 0
        try:
            with path.with_suffix(f"{path.suffix}.1").open("rb") as before:
                self._take(before)
        except FileNotFoundError:
            return

    def _take(self, lines: Iterator[bytes]) -> int:
        """Add the records of a file, and return how many bytes they are; the last line may be half written."""
        size = 0
        for line in lines:
            if not line.endswith(b"\n"):
                break
            size += len(line)
            try:
                record = json.loads(line)
            except ValueError:
                continue  # a crash cut it off
            if isinstance(record, dict) and record.get("DataErrorType"):
                self._add(record)
        return size

    def _add(self, record: Mapping[str, Any]) -> None:
        key = kind, source, message = (
            str(record["DataErrorType"]),
            str(record.get("Source") or ""),
            str(record.get("BriefMessage") or ""),
        )
        group = self._groups.setdefault(key, ErrorGroup(kind, source, message))
        self._groups.move_to_end(key)
        if len(self._groups) > MOST_GROUPS:
            self._groups.popitem(last=False)
        first, last = (str(record.get(name) or "") for name in ("FromTimestamp", "ToTimestamp"))
        group.count += int(record.get("EventCount") or 1)
        group.first = min(group.first or first, first)
        group.last = max(group.last, last)
        group.examples.extend(map(_shortened, record.get("ExampleEvents") or ()))


def _shortened(example: Mapping[str, Any]) -> Mapping[str, Any]:
    cut = {
        name: f"{text[:_LONGEST_EXAMPLE]}…"
        for name in _TEXTS
        if len(text := str(example.get(name) or "")) > _LONGEST_EXAMPLE
    }
    return {**example, **cut} if cut else example
