"""Files that replace inputs while a project is tried out: their events, as bodies and as a recorded log.

A local file has no arrival times of its own. Files sampled from a live input have them in their events; an input that
is read without TIMESTAMP BY then takes its times from there.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.azure.projects.files import LocalInput
from tidegate.azure.projects.model.project_file import json_limit, read_text
from tidegate.connectors.model.errors import ProjectError
from tidegate.connectors.model.events import Events, PartitionEnd
from tidegate.engine import FORMATS, JSON, Format
from tidegate.engine.decoding.files import readable_rows_of
from tidegate.engine.decoding.formats import Unreadable
from tidegate.ordering import END_OF_TIME, parse_time

# The columns that the service adds to sampled events, by kind of input.
_ARRIVAL_FIELDS = ("eventenqueuedutctime", "bloblastmodifiedutctime")
_BETWEEN = re.compile(r"[\s,]*")
_PARTITION = "0"


@dataclass(frozen=True, slots=True)
class LocalData:
    """The events of a local file: a list of JSON texts, or the rows of a table."""

    bodies: Sequence[bytes]
    format: Format


def read_local(definition: LocalInput, path: Path) -> LocalData:
    """Read the events of a local file.

    Raises:
        ProjectError: it cannot be read, is not of its format, or its format is not supported here.
    """
    name = definition.data_format
    if name not in FORMATS.names():
        raise ProjectError(
            f"the input {definition.alias} is of the format {name}, which cannot be read here; "
            f"give it as one of {', '.join(FORMATS.names())}"
        )
    if name == JSON.kind:
        return LocalData(json_bodies(path), JSON)
    if len(definition.delimiter) != 1:
        raise ProjectError(f"the input {definition.alias}: the delimiter {definition.delimiter!r} is not one character")
    format_ = Format(name, definition.delimiter)
    try:
        return LocalData(readable_rows_of(path.read_bytes(), format_), format_)
    except OSError as error:
        raise ProjectError(f"cannot read {path}: {error.strerror}") from error
    except Unreadable as error:
        raise ProjectError(f"{path} is not {name}: {error}") from error


def json_bodies(path: Path) -> list[bytes]:
    """Return the events of a JSON file, each as its text: an array of them, or one after the other, on lines or not.

    A comma after the last element of an array is accepted, as the service's tools do.

    Raises:
        ProjectError: it cannot be read or is not JSON; the message names the line.
    """
    text = read_text(path)
    return [text[start:end].encode() for start, end in _values(text, path)]


def _values(text: str, path: Path) -> Iterator[tuple[int, int]]:
    decode = json.JSONDecoder().raw_decode
    place = _after(text, 0)
    inside = False
    while place < len(text):
        if inside and text[place] == "]":
            inside = False
            place = _after(text, place + 1)
            continue
        if not inside and text[place] == "[":
            inside = True
            place = _after(text, place + 1)
            continue
        try:
            _, end = decode(text, place)
        except json.JSONDecodeError as error:
            raise ProjectError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from error
        except (ValueError, RecursionError) as error:
            raise ProjectError(f"cannot read {path}: {json_limit(error)}") from error
        yield place, end
        place = _after(text, end)
    if inside:
        raise ProjectError(f"{path}: the array it begins with has no end")


def _after(text: str, place: int) -> int:
    """Return the next position that holds neither white space nor a comma."""
    found = _BETWEEN.match(text, place)
    return place if found is None else found.end()


@dataclass(frozen=True, slots=True)
class LocalRange:
    """A stretch of a local file's events, carried by value."""

    start: int
    end: int
    arrivals: list[int]
    bodies: Sequence[bytes]
    format: Format

    def read_events(self, batch_events: int) -> Iterator[Events]:
        for first in range(0, len(self.bodies), batch_events):
            bodies = self.bodies[first : first + batch_events]
            numbers = np.arange(self.start + first, self.start + first + len(bodies), dtype=np.int64)
            arrivals = np.array(self.arrivals[first : first + len(bodies)], dtype=np.int64)
            yield Events(numbers, arrivals, bodies, format=self.format)


class LocalLog:
    """A local file as a log: one partition, which ends after its last event."""

    def __init__(self, data: LocalData, *, with_arrivals: bool) -> None:
        """``with_arrivals``: arrival times come from the events; JSON events are sorted by them."""
        bodies = data.bodies
        times = [arrival_of(body) if with_arrivals else None for body in bodies]
        latest = 0
        arrivals = [latest := latest if time is None else time for time in times]
        if isinstance(bodies, list):
            order = sorted(range(len(bodies)), key=arrivals.__getitem__)
            bodies = [bodies[place] for place in order]
            arrivals = [arrivals[place] for place in order]
        self._bodies = bodies
        self._arrivals = list(accumulate(arrivals, max))
        self._format = data.format

    def ends(self) -> dict[str, PartitionEnd]:
        return {_PARTITION: PartitionEnd(0, len(self._bodies), END_OF_TIME, complete=True)}

    def first_at(self, partition: str, arrival: int) -> int:
        return bisect.bisect_left(self._arrivals, arrival)

    def range(self, partition: str, start: int, end: int) -> LocalRange:
        return LocalRange(start, end, self._arrivals[start:end], self._bodies[start:end], self._format)

    def close(self) -> None:
        """Do nothing: no resource is open."""


def arrival_of(body: bytes) -> int | None:
    """Return the arrival time that an event states, in ticks; None if it states none."""
    try:
        content: Any = json.loads(body)
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    named = {name.lower(): value for name, value in content.items()}
    for name in _ARRIVAL_FIELDS:
        if isinstance(value := named.get(name), str):
            try:
                return parse_time(value)
            except ValueError:
                continue
    return None
