"""The metrics of a job over time: an hour at one-second resolution, and a day by the minute.

Those of its partitions are kept too, with ten seconds in place of one.

All outlive the service: they are appended to files in the job's folder, ten rows at a time. A file is written anew
when it is twice as long as what is kept, so that of a job's metrics stays below a megabyte. After a crash at most the
last rows are lost.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
from array import array
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import assert_never

_logger = logging.getLogger(__name__)

Metrics = Mapping[str, float | None]
Sample = tuple[float, Metrics]
_Row = tuple[float, tuple[str, ...], "array[float]"]
_PENDING_ROWS = 10


class Resolution(StrEnum):
    """How far apart the samples of a history are."""

    SECOND = "second"
    TEN_SECONDS = "ten-seconds"
    MINUTE = "minute"

    @property
    def seconds(self) -> int:
        """The least distance of two samples."""
        match self:
            case Resolution.SECOND:
                return 1
            case Resolution.TEN_SECONDS:
                return 10
            case Resolution.MINUTE:
                return 60
            case _:
                assert_never(self)

    @property
    def rows(self) -> int:
        """How many samples are kept."""
        match self:
            case Resolution.SECOND:
                return 3600
            case Resolution.TEN_SECONDS:
                return 360
            case Resolution.MINUTE:
                return 1440
            case _:
                assert_never(self)


OF_JOB = (Resolution.SECOND, Resolution.MINUTE)
OF_PARTITIONS = (Resolution.TEN_SECONDS, Resolution.MINUTE)
"""The resolutions that are kept of a job's metrics, and of its partitions'."""
EVENTS_READ = "Events Read"
"""The metric of a partition that counts what the job has read of it; the other is the watermark's delay."""


@dataclass(frozen=True, slots=True)
class Thinning:
    """Which samples are enough for a chart: the last of each `every_s` seconds, with the largest of its `gauges`."""

    every_s: int
    gauges: Collection[str]


class MetricHistory:
    """A history of one job. Not safe to call from several threads at once."""

    def __init__(self, folder: Path, name: str = "metrics", resolutions: Sequence[Resolution] = OF_JOB) -> None:
        """Prepare a history; its files are read when it is first used.

        Args:
            folder: the job's folder.
            name: what its files begin with.
            resolutions: what is kept.
        """
        self._series = {one: _Series(folder / f"{name}-{one.value}.jsonl", one) for one in resolutions}

    def add(self, at_s: float, metrics: Metrics) -> None:
        """Add what a job measured at a time, in seconds since 1970."""
        for series in self._series.values():
            series.add(at_s, metrics)

    def since(
        self,
        resolution: Resolution,
        after_s: float,
        only: Collection[str] | None = None,
        thinning: Thinning | None = None,
    ) -> Sequence[Sample]:
        """Return the samples after a time, the oldest first: of all metrics or only of some, and all or thinned."""
        series = self._series[resolution]
        if thinning is not None and thinning.every_s > resolution.seconds:
            return list(series.thinned(after_s, thinning))
        return list(series.since(after_s, only))

    def flush(self) -> None:
        """Write what is not in the files yet."""
        for series in self._series.values():
            series.flush()


class _Series:
    """Samples of one resolution, and their file."""

    def __init__(self, path: Path, resolution: Resolution) -> None:
        self._path = path
        self._resolution = resolution
        self._rows: deque[_Row] = deque(maxlen=resolution.rows)
        self._is_read = False
        self._lines = 0
        self._pending: list[_Row] = []
        self._written_names: tuple[str, ...] = ()
        self._has_failed = False

    def add(self, at_s: float, metrics: Metrics) -> None:
        self._read()
        # A report every second is sometimes a few milliseconds early.
        if self._rows and -1 < at_s - self._rows[-1][0] < self._resolution.seconds - 0.5:
            return
        names = tuple(metrics)
        if self._rows and self._rows[-1][1] == names:
            names = self._rows[-1][1]
        values = array("d", (math.nan if value is None else value for value in metrics.values()))
        row = (round(at_s, 1), names, values)
        self._rows.append(row)
        self._pending.append(row)
        if len(self._pending) >= _PENDING_ROWS or self._resolution is Resolution.MINUTE:
            self.flush()

    def since(self, after_s: float, only: Collection[str] | None) -> Iterator[Sample]:
        for at_s, names, values in self._later(after_s):
            found: Iterable[tuple[str, float]]
            if only is None:
                found = zip(names, values, strict=True)
            else:
                found = ((name, values[names.index(name)]) for name in only if name in names)
            yield at_s, _known(found)

    def thinned(self, after_s: float, thinning: Thinning) -> Iterator[Sample]:
        for _, group in itertools.groupby(self._later(after_s), lambda row: row[0] // thinning.every_s):
            rows = list(group)
            at_s, names, values = rows[-1]
            found = dict(zip(names, values, strict=True))
            alike = [row[2] for row in rows if row[1] == names]
            for name in thinning.gauges:
                if name in found:
                    column = names.index(name)
                    found[name] = max((one[column] for one in alike if not math.isnan(one[column])), default=math.nan)
            yield at_s, _known(found.items())

    def _later(self, after_s: float) -> Iterator[_Row]:
        self._read()
        later = itertools.takewhile(lambda row: row[0] > after_s, reversed(self._rows))
        return reversed(list(later))

    def flush(self) -> None:
        pending, self._pending = self._pending, []
        if not pending:
            return
        try:
            if self._lines + len(pending) > 2 * self._resolution.rows:
                self._written_names, self._lines = (), 0
                self._write(list(self._rows), "w")
            else:
                self._write(pending, "a")
        except FileNotFoundError:
            return  # the job was deleted
        except OSError as error:
            if not self._has_failed:
                _logger.warning("the history of metrics cannot be written to %s: %s", self._path, error.strerror)
            self._has_failed = True
        else:
            self._has_failed = False

    def _write(self, rows: Sequence[_Row], mode: str) -> None:
        lines = []
        for at_s, names, values in rows:
            if names != self._written_names:
                self._written_names = names
                lines.append(json.dumps(list(names)))
            lines.append(json.dumps([at_s, *(None if math.isnan(value) else _short(value) for value in values)]))
        with self._path.open(mode, encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        self._lines += len(lines)

    def _read(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return
        names: tuple[str, ...] = ()
        for line in text.splitlines():
            self._lines += 1
            try:
                content = json.loads(line)
            except ValueError:
                continue  # a crash cut it off
            if isinstance(content, list) and content and all(isinstance(one, str) for one in content):
                names = tuple(content)
            elif isinstance(content, list) and len(content) == len(names) + 1:
                values = array("d", (math.nan if value is None else value for value in content[1:]))
                self._rows.append((float(content[0]), names, values))


def _known(found: Iterable[tuple[str, float]]) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in found}


def _short(value: float) -> float:
    """Return a number that takes few characters: whole ones without a point, others with three decimals."""
    return int(value) if value == int(value) else round(value, 3)
