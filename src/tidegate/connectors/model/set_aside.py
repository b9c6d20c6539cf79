"""Events that no process of a job touches any more, because they ended those before it.

Such an event is a data error, like one that cannot be decoded. Which ones there are does not follow from the log, so
it is a recorded fact: a file in the state folder, durable before the job continues. Whatever opens the job's inputs
reads it, so every run, on one process or on Spark, and every replay leaves out the same events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tidegate.connectors.model.events import Events, InputLog, LogRange, PartitionEnd
from tidegate.connectors.model.state_file import DamagedStateError, read_state, write_state

FILE = "set-aside.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class SetAside:
    """One event that was set aside.

    Attributes:
        input: the input's name, in lower case.
        log_id: the identity of the log that it is in, where that has one; another log has another event there.
        reason: what it did.
    """

    input: str
    partition: str
    sequence_number: int
    log_id: str | None
    reason: str


def read_set_aside(folder: Path | None) -> list[SetAside]:
    """Return the events that were set aside, in the order in which they were found.

    Raises:
        JobError: the file is damaged or cannot be read.
    """
    content = None if folder is None else read_state(folder / FILE, _VERSION)
    if folder is None or content is None:
        return []
    try:
        return [SetAside(**one) for one in content["events"]]
    except (KeyError, TypeError) as error:
        raise DamagedStateError(folder / FILE, str(error)) from error


def write_set_aside(folder: Path, found: Collection[SetAside]) -> None:
    """Add events to those that were set aside; return when that is durable.

    Raises:
        UnavailableError: the disk refuses.
        JobError: the file is damaged or cannot be read.
    """
    every = dict.fromkeys([*read_set_aside(folder), *found])
    write_state(folder / FILE, {"version": _VERSION, "events": [asdict(one) for one in every]})


def without(set_aside: Collection[SetAside], log: InputLog, name: str) -> InputLog:
    """Return a log whose readers leave out the events that were set aside of the input ``name``."""
    own = [one for one in set_aside if one.input == name]
    return _LogWithout(log, own) if own else log


class _LogWithout:
    """A log some of whose events are set aside."""

    def __init__(self, log: InputLog, set_aside: Collection[SetAside]) -> None:
        self._log = log
        self._set_aside = set_aside
        self._log_ids: Mapping[str, str | None] = {}

    def ends(self) -> dict[str, PartitionEnd]:
        ends = self._log.ends()
        self._log_ids = {partition: end.log_id for partition, end in ends.items()}
        return ends

    def first_at(self, partition: str, arrival: int) -> int:
        return self._log.first_at(partition, arrival)

    def range(self, partition: str, start: int, end: int) -> LogRange:
        if not self._log_ids:
            self.ends()
        found = self._log.range(partition, start, end)
        log_id = self._log_ids.get(partition)
        numbers = frozenset(
            one.sequence_number
            for one in self._set_aside
            if one.partition == partition and start <= one.sequence_number < end and one.log_id == log_id
        )
        return _RangeWithout(start, end, found, numbers) if numbers else found

    def close(self) -> None:
        self._log.close()


@dataclass(frozen=True, slots=True)
class _RangeWithout:
    """A range of a log some of whose events are set aside."""

    start: int
    end: int
    log_range: LogRange
    numbers: frozenset[int]

    def read_events(self, batch_events: int) -> Iterator[Events]:
        for events in self.log_range.read_events(batch_events):
            numbers = events.sequence_numbers.tolist()
            yield replace(events, set_aside=tuple(at for at, one in enumerate(numbers) if one in self.numbers))
