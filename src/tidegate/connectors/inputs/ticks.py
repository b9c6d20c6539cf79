"""Ticks: how the arrival clock of an idle input advances if the input itself does not say.

A partition on which nothing arrives still holds results back by its watermark, arrival − late tolerance. Tidegate's hub
promises how far its clock is; Azure Event Hubs and folders of files do not. For those the arrival clock is estimated as
in the service: the last event's arrival plus the time since that event was seen (article "Understand time handling").
An estimate may overshoot: an event that was in flight then arrives "before" it. The rules cover that event, which is
measured by the arrival reached, but the outcome depends on the estimate. So an estimate is a *tick*, part of the log: a
place (before which sequence number) and an arrival. Ticks are made durable before a result that could depend on one is
emitted, and are read again at their places.

Ticks that are no longer needed leave the file, so it stays small:
  * Of several ticks at one place only the last matters: there is no event between them.
  * A tick matters only until the next event, unless that event is below it: after the event the clock is at the event's
    arrival either way.
  * No restart reads a tick below the arrival that every restart starts from (`ordering.read_from`). Of such ticks those
    are left that events were measured by, so they are kept elsewhere (`past_ticks`) for replays of the whole log.
"""

from __future__ import annotations

import json
import logging
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from zlib import crc32

from tidegate.connectors.inputs.kinds import ArrivalEstimate
from tidegate.connectors.model.errors import JobError, UnavailableError
from tidegate.connectors.model.events import Events, InputLog, LogRange, PartitionEnd, last_arrival
from tidegate.connectors.model.state_file import DamagedStateError, read_state, write_state
from tidegate.durable_files import Files
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND

PastTick = tuple[str, str, int, int]
"""An input in lower case, a partition, and a tick: its place and its arrival."""

_PAST_FILE = "ticks.past"
_CHECKSUM_DIGITS = 8
_logger = logging.getLogger(__name__)


class PastTicks:
    """The file in a state folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _PAST_FILE
        self._files = Files()
        self._size: int | None = None

    def read(self) -> list[PastTick]:
        """Return the ticks in the order in which they were added; one may be there twice.

        Raises:
            JobError: the file cannot be read.
        """
        return self._read()[0]

    def add(self, ticks: Iterable[PastTick]) -> None:
        """Append ticks, and return once they are durable.

        Raises:
            UnavailableError: the disk refuses; a later attempt may succeed.
        """
        lines = b"".join(map(_line, ticks))
        if not lines:
            return
        if self._size is None:
            self._size = self._read()[1]
        try:
            is_new = not self._path.exists()
            file = self._files.open(self._path)
            try:
                self._files.truncate(file, self._size)
                self._files.write_at(file, self._size, [lines])
                self._files.sync(file)
            finally:
                self._files.close(file)
            if is_new:
                self._files.sync_directory(self._path.parent)
        except OSError as error:
            raise UnavailableError(f"cannot write {self._path}: {error.strerror}") from error
        self._size += len(lines)

    def _read(self) -> tuple[list[PastTick], int]:
        """Return the ticks and the number of bytes that hold them."""
        try:
            content = self._path.read_bytes() if self._path.exists() else b""
        except OSError as error:
            raise JobError(f"cannot read {self._path}: {error.strerror}") from error
        ticks: list[PastTick] = []
        size = 0
        for line in content.splitlines(keepends=True):
            tick = _tick(line)
            if tick is None:
                lost = len(content) - size
                _logger.warning("%s: the last %d bytes are not whole and are ignored", self._path, lost)
                break
            ticks.append(tick)
            size += len(line)
        return ticks, size


def _line(tick: PastTick) -> bytes:
    text = json.dumps(tick).encode()
    return f"{crc32(text):0{_CHECKSUM_DIGITS}x} ".encode() + text + b"\n"


def _tick(line: bytes) -> PastTick | None:
    """Return the tick that a line holds; None if the line is not as it was written."""
    checksum, text = line[:_CHECKSUM_DIGITS], line[_CHECKSUM_DIGITS + 1 : -1]
    if not line.endswith(b"\n") or checksum != f"{crc32(text):0{_CHECKSUM_DIGITS}x}".encode():
        return None
    name, partition, place, arrival = json.loads(text)
    return name, partition, place, arrival


_VERSION = 1
_FILE = "ticks.json"

Tick = tuple[int, int]
"""A sequence number, and the arrival (ticks) that the clock had reached before the event with that number."""


@dataclass(slots=True)
class Seen:
    """The time at which a partition's end was first seen at its present place.

    Attributes:
        place: the sequence number that the next event will have.
        at_s: when, by the monotonic clock; at: the same by the calendar, in ticks.
        arrival: what the arrival clock was then, in ticks; NO_TIME if not known yet.
    """

    place: int
    at_s: float
    at: int
    arrival: int = NO_TIME


class Ticks:
    """The ticks of a job, by input (in lower case) and partition."""

    def __init__(self, folder: Path | None = None, *, with_past: bool = False) -> None:
        """Load the ticks in a state folder, if one is given.

        Args:
            with_past: also load those that no restart reads, for a replay of the whole log.

        Raises:
            JobError: the folder is damaged.
        """
        self._folder = folder
        self._ticks: dict[tuple[str, str], list[Tick]] = {}
        self._seen: dict[tuple[str, str], Seen] = {}
        self._past = None if folder is None else PastTicks(folder)
        self._passed: list[PastTick] = []
        self._changed = False
        content = None if folder is None else read_state(folder / _FILE, _VERSION)
        try:
            for name, partitions in (content or {}).get("ticks", {}).items():
                for partition, ticks in partitions.items():
                    self._ticks[name, partition] = [(int(place), int(arrival)) for place, arrival in ticks]
            for name, partitions in (content or {}).get("seen", {}).items():
                for partition, (place, at, arrival) in partitions.items():
                    self._seen[name, partition] = Seen(int(place), 0.0, int(at), int(arrival))
        except (TypeError, ValueError, AttributeError) as error:
            assert folder is not None
            raise DamagedStateError(folder / _FILE, repr(error)) from error
        if with_past and self._past is not None:
            self._add_past(self._past.read())

    def _add_past(self, past: Iterable[PastTick]) -> None:
        """Add ticks of a replay; of those at one place the last one counts."""
        by_place = {key: dict(ticks) for key, ticks in self._ticks.items()}
        for name, partition, place, arrival in past:
            places = by_place.setdefault((name, partition), {})
            places[place] = max(arrival, places.get(place, NO_TIME))
        self._ticks = {key: sorted(places.items()) for key, places in by_place.items()}

    def of(self, name: str, partition: str) -> list[Tick]:
        """Return the ticks of one partition, in the order of their places."""
        return self._ticks.get((name, partition), [])

    def between(self, name: str, partition: str, start: int, end: int) -> list[Tick]:
        """Return the ticks at places from ``start`` up to ``end``, which is excluded."""
        ticks = self.of(name, partition)
        return ticks[bisect_left(ticks, (start, NO_TIME)) : bisect_left(ticks, (end, NO_TIME))]

    def at(self, name: str, partition: str, place: int) -> int:
        """Return the arrival reached by estimate before an event, in ticks; NO_TIME if there is none."""
        return next((arrival for where, arrival in reversed(self.of(name, partition)) if where == place), NO_TIME)

    def seen(self, name: str, partition: str) -> Seen | None:
        """Return where the end was last seen, and since when."""
        return self._seen.get((name, partition))

    def see(self, name: str, partition: str, seen: Seen) -> None:
        """Record that the end has moved."""
        self._seen[name, partition] = seen

    def tick(self, name: str, partition: str, place: int, arrival: int) -> None:
        """Record that the clock reached an arrival before the event that will have the number ``place``."""
        ticks = self._ticks.setdefault((name, partition), [])
        if ticks and ticks[-1][0] == place:
            if arrival <= ticks[-1][1]:
                return
            ticks.pop()
        insort(ticks, (place, arrival))
        self._changed = True

    def forget(self, name: str, partition: str, needless: Callable[[Tick], bool]) -> None:
        """Discard ticks for which ``needless`` is true."""
        ticks = self.of(name, partition)
        kept = [tick for tick in ticks if not needless(tick)]
        if len(kept) < len(ticks):
            self._ticks[name, partition] = kept
            self._changed = True

    def forget_before(self, arrival: int | None) -> None:
        """Set ticks aside that no restart reads: it starts at ``arrival`` (ticks); None: at the beginning."""
        if arrival is not None:
            for name, partition in list(self._ticks):
                self._passed += [(name, partition, *tick) for tick in self.of(name, partition) if tick[1] < arrival]
                self.forget(name, partition, lambda tick: tick[1] < arrival)

    def write(self) -> None:
        """Make changes durable.

        Raises:
            JobError: the disk refuses.
        """
        if not self._changed or self._folder is None:
            return
        if self._past is not None:
            self._past.add(self._passed)
            self._passed.clear()
        ticks: dict[str, dict[str, list[Tick]]] = {}
        seen: dict[str, dict[str, tuple[int, int, int]]] = {}
        for (name, partition), listed in self._ticks.items():
            if listed:
                ticks.setdefault(name, {})[partition] = listed
        for (name, partition), one in self._seen.items():
            seen.setdefault(name, {})[partition] = (one.place, one.at, one.arrival)
        write_state(self._folder / _FILE, {"version": _VERSION, "ticks": ticks, "seen": seen})
        self._changed = False


@dataclass(frozen=True, slots=True)
class TickedRange:
    """A range of a log, split at its ticks: each part with the arrival reached before it."""

    start: int
    end: int
    parts: tuple[tuple[int, LogRange], ...]

    def read_events(self, batch_events: int) -> Iterator[Events]:
        for reached, part in self.parts:
            for events in part.read_events(batch_events):
                yield events if reached == NO_TIME else replace(events, reached=reached)
                reached = NO_TIME


def reached_in(log_range: LogRange) -> int:
    """Return the latest arrival (ticks) reached by the ticks within a range; NO_TIME if there are none."""
    return max(reached for reached, _ in log_range.parts) if isinstance(log_range, TickedRange) else NO_TIME


class TickedLog:
    """A log with its ticks; on request it also makes new ones."""

    def __init__(
        self,
        log: InputLog,
        name: str,
        ticks: Ticks,
        estimate: ArrivalEstimate | None = None,
        clock: Callable[[], tuple[float, int]] = lambda: (time.monotonic(), time.time_ns() // 100),
    ) -> None:
        """
        Args:
            estimate: how to estimate the clock of an idle input; None: do not.
            clock: returns the monotonic time in seconds and the calendar time in ticks.
        """
        self._log = log
        self._name = name.lower()
        self._ticks = ticks
        self._estimate = estimate
        self._clock = clock
        self._looked: set[str] = set()

    def ends(self) -> dict[str, PartitionEnd]:
        shown = {}
        for partition, end in self._log.ends().items():
            if self._estimate is not None and end.arrival_lower_bound is None and not end.complete:
                self._go_on(partition, end, self._estimate)
            reached = self._ticks.at(self._name, partition, end.end)
            if reached != NO_TIME:
                end = replace(
                    end,
                    arrival_lower_bound=reached
                    if end.arrival_lower_bound is None
                    else max(reached, end.arrival_lower_bound),
                )
            shown[partition] = end
        return shown

    def _go_on(self, partition: str, end: PartitionEnd, estimate: ArrivalEstimate) -> None:
        """Advance the clock if the partition has been idle for long enough."""
        now_s, now = self._clock()
        seen = self._ticks.seen(self._name, partition)
        if seen is None or seen.place != end.end:
            if seen is not None:
                self._settle(partition, end)
            self._looked.add(partition)
            self._ticks.see(self._name, partition, Seen(end.end, now_s, now))
            return
        if partition not in self._looked:
            # The end is where an earlier run saw it, so nothing has come in between.
            self._looked.add(partition)
            seen.at_s = now_s - max(0, now - seen.at) / TICKS_PER_SECOND
        idle_s = now_s - seen.at_s
        if idle_s < estimate.idle_after_s:
            return
        if seen.arrival == NO_TIME:
            # On a partition that never had an event, the clock of this machine is the best there is.
            last = last_arrival(self._log, partition, end.begin, end.end)
            last = seen.at if last == NO_TIME else last
            # The latest events may be below an earlier estimate; the clock is where that left it.
            seen.arrival = max([last, *(reached for _, reached in self._ticks.of(self._name, partition))])
        since_s = max(0.0, idle_s - estimate.seen_within_s)
        self._ticks.tick(self._name, partition, end.end, seen.arrival + int(since_s * TICKS_PER_SECOND))

    def _settle(self, partition: str, end: PartitionEnd) -> None:
        """Discard ticks that new events have made irrelevant, and ticks that retention has passed."""

        def needless(tick: Tick) -> bool:
            place, arrival = tick
            return place < end.begin or (place < end.end and self._arrival_of(partition, place, end.end) >= arrival)

        settled = [tick for tick in self._ticks.of(self._name, partition)[-1:] if needless(tick)]
        self._ticks.forget(self._name, partition, lambda tick: tick in settled or tick[0] < end.begin)

    def _arrival_of(self, partition: str, number: int, end: int) -> int:
        """Return the arrival of the first event with this number or a later one."""
        for stop in (number + 1, end):  # a log may skip numbers
            for events in self._log.range(partition, number, stop).read_events(1):
                return int(events.arrivals[0])
        return NO_TIME

    def first_at(self, partition: str, arrival: int) -> int:
        places = [place for place, reached in self._ticks.of(self._name, partition) if reached >= arrival]
        return min([self._log.first_at(partition, arrival), *places])

    def range(self, partition: str, start: int, end: int) -> LogRange:
        ticks = dict(self._ticks.between(self._name, partition, start, end))
        if not ticks:
            return self._log.range(partition, start, end)
        bounds = [*sorted({start, *ticks}), end]
        return TickedRange(
            start,
            end,
            tuple(
                (ticks.get(first, NO_TIME), self._log.range(partition, first, stop)) for first, stop in pairwise(bounds)
            ),
        )

    def close(self) -> None:
        self._log.close()
