"""Files that stand in for inputs while a project is tried out: their events, as bodies and as a recorded log.

A local file has no arrival times. Where its events carry the one they had (files sampled from a live input do), an
input that is read without TIMESTAMP BY has its times from there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.job.errors import ProjectError
from tidegate.job.project_files import read_text
from tidegate.job.recorded import RecordedEvent, RecordedLog
from tidegate.ordering import parse_time

# The columns that the service adds to what it samples, by kind of input.
_ARRIVAL_FIELDS = ("eventenqueuedutctime", "bloblastmodifiedutctime")
_BETWEEN = re.compile(r"[\s,]*")
_PARTITION = "0"


def json_bodies(path: Path) -> list[bytes]:
    """The events of a JSON file, each as it is written: an array of them, or one after the other, on lines or not.

    A comma behind the last element of an array is no error, as it is none to the service's tools.

    Raises:
        ProjectError: it cannot be read or is no JSON; the message names the line.
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
        yield place, end
        place = _after(text, end)
    if inside:
        raise ProjectError(f"{path}: the array it begins with has no end")


def _after(text: str, place: int) -> int:
    """The next place that holds neither white space nor a comma."""
    found = _BETWEEN.match(text, place)
    return place if found is None else found.end()


def local_log(bodies: list[bytes], *, with_arrivals: bool) -> RecordedLog:
    """A log of one partition that holds these events.

    Args:
        with_arrivals: the events' own arrival times are looked for, and their order is that of those.
    """
    times = [arrival_of(body) if with_arrivals else None for body in bodies]
    events: list[RecordedEvent] = []
    latest = 0
    for body, time in zip(bodies, times, strict=True):
        latest = latest if time is None else time
        events.append(RecordedEvent(_PARTITION, latest, body))
    return RecordedLog(sorted(events, key=lambda event: event.arrival))


def arrival_of(body: bytes) -> int | None:
    """When an event says that it arrived, in ticks; None if it does not."""
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
