"""The folders that results go to: a path with the tokens of the service's path patterns.

`{date}`, `{time}` and `{datetime:yyyy/MM}` are the System.Timestamp of a result, in UTC; `{partition}` is its column
PartitionId, and any other name in braces the value of that column. A result always goes to the same folder, whenever it
is written ("Blob storage and Azure Data Lake Gen2 output", "Custom DateTime path patterns").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from tidegate.blobs.pattern import DATE_FORMATS, TIME_FORMATS
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.arrow_tables import named_columns
from tidegate.engine import ResultRows, Vector
from tidegate.engine.values.grouping import group
from tidegate.engine.values.vectors import Int64Array
from tidegate.ordering import TICKS_PER_DAY, TICKS_PER_SECOND

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # after NAME=, as Hive and Spark write it; elsewhere it would be hidden
_NO_VALUE_ALONE = "null"
_PARTITION_COLUMN = "PartitionId"
_TOKEN = re.compile(r"\{([^{}]*)\}")
_SPECIFIER = re.compile(r"yyyy|MM|dd|HH|mm|ss|M|d|H|m|s")
_OF_SPECIFIERS: Mapping[str, Callable[[datetime], str]] = {
    "yyyy": lambda time: f"{time.year:04d}",
    "MM": lambda time: f"{time.month:02d}",
    "M": lambda time: str(time.month),
    "dd": lambda time: f"{time.day:02d}",
    "d": lambda time: str(time.day),
    "HH": lambda time: f"{time.hour:02d}",
    "H": lambda time: str(time.hour),
    "mm": lambda time: f"{time.minute:02d}",
    "m": lambda time: str(time.minute),
    "ss": lambda time: f"{time.second:02d}",
    "s": lambda time: str(time.second),
}
# What the service's formats of dates and times call the same parts.
_AS_SPECIFIERS = {"YYYY": "yyyy", "DD": "dd"}
_UNITS = (("s", TICKS_PER_SECOND), ("m", 60 * TICKS_PER_SECOND), ("H", 3600 * TICKS_PER_SECOND))
# Not part of a name on some file system, or with a meaning of its own in URLs or paths.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|%#{}^`\[\]~]')
_HIDDEN = re.compile(r"^[._]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PathTemplateError(Exception):
    """A path is not a template; the message says why."""


@dataclass(frozen=True, slots=True)
class FolderRows:
    """The rows of a batch that go to one folder.

    Attributes:
        folder: relative to the root, with slashes.
        period: the beginning of its period in ticks; 0 if the path has no time.
        places: int64[k], ascending.
    """

    folder: str
    period: int
    places: Int64Array


@dataclass(frozen=True, slots=True)
class PathTemplate:
    """A parsed path.

    Attributes:
        root: the folder or container, and the folders below it that all results go to.
        parts: text and tokens in turn, beginning and ending with text; a token is ``column:NAME`` or a format of times.
        unit_ticks: the unit of time that folders differ by; 0 if the path has no time.
    """

    root: str
    parts: tuple[str, ...]
    unit_ticks: int

    @classmethod
    def parse(cls, path: str, date_format: str, time_format: str) -> PathTemplate:
        """
        Raises:
            PathTemplateError: a token is empty or not closed, or a format is unknown.
        """
        found = _TOKEN.search(path)
        before = path if found is None else path[: found.start()]
        container = path.find("://") + 3 if "://" in path else 0
        end = len(path) if found is None else max(before.rfind("/"), 0)
        if container and end < container:
            raise PathTemplateError(f"'{path}' has a token in the name of the container")
        root, rest = path[:end].rstrip("/"), path[end:].strip("/")
        parts = _TOKEN.split(rest)
        if any("{" in text or "}" in text for text in (root, *parts[::2])):
            raise PathTemplateError(f"'{path}' has a brace without its counterpart")
        tokens = [_token(token, date_format, time_format) for token in parts[1::2]]
        parts[1::2] = tokens
        formats = [token for token in tokens if not token.startswith("column:")]
        return cls(root or "/", tuple(parts), _unit(formats) if formats else 0)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values are in the path."""
        return tuple(part.removeprefix("column:") for part in self.parts[1::2] if part.startswith("column:"))

    def split(self, rows: ResultRows) -> list[FolderRows]:
        """Return the rows of each folder, in the order of their first rows."""
        if len(self.parts) == 1 or not len(rows):
            return [FolderRows(self.parts[0], 0, np.arange(len(rows)))] if len(rows) else []
        periods = rows.timestamps - rows.timestamps % self.unit_ticks if self.unit_ticks else None
        columns = self._columns_of(rows)
        groups = group(len(rows), columns, [] if periods is None else [periods])
        order = np.argsort(groups.codes, kind="stable")
        bounds = np.searchsorted(groups.codes[order], np.arange(groups.count + 1))
        firsts = order[bounds[:-1]]
        texts = [vector.take(firsts).to_list() for vector in columns]
        merged: dict[str, tuple[int, list[Int64Array]]] = {}
        for number in np.argsort(firsts).tolist():
            period = 0 if periods is None else int(periods[firsts[number]])
            folder = self._folder(period, [column[number] for column in texts])
            # Values that differ may have one text, as 1 and "1" have.
            merged.setdefault(folder, (period, []))[1].append(order[bounds[number] : bounds[number + 1]])
        return [
            FolderRows(folder, period, places[0] if len(places) == 1 else np.sort(np.concatenate(places)))
            for folder, (period, places) in merged.items()
        ]

    def _columns_of(self, rows: ResultRows) -> list[Vector]:
        if not self.columns:
            return []
        by_name = {name.lower(): vector for name, vector in named_columns(rows).items()}
        return [by_name.get(name.lower(), Vector.nulls(len(rows))) for name in self.columns]

    def _folder(self, period: int, texts: Sequence[object]) -> str:
        time = _EPOCH + timedelta(microseconds=period // 10)
        values_ = iter(texts)

        written = ""
        for place, part in enumerate(self.parts):
            if place % 2 == 0:
                written += part
            elif part.startswith("column:"):
                written += _name_of(next(values_), written)
            else:
                written += _SPECIFIER.sub(lambda found: _OF_SPECIFIERS[found[0]](time), part)
        return written


def _name_of(value: object, before: str) -> str:
    """Return a value as (part of) the name of a folder."""
    text = _UNSAFE.sub(_escaped, "" if value is None else values.text(value))
    if not text:
        return _NO_VALUE if before.endswith("=") else _NO_VALUE_ALONE
    begins = not before or before.endswith("/")
    # Readers take what begins with a dot or an underscore for work in progress.
    return _HIDDEN.sub(_escaped, text) if begins else text


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _token(token: str, date_format: str, time_format: str) -> str:
    name, _, form = token.partition(":")
    match name.lower():
        case "date":
            return _known(date_format, DATE_FORMATS, "date_format")
        case "time":
            return _known(time_format, TIME_FORMATS, "time_format")
        case "datetime":
            if not _SPECIFIER.search(form) or re.search("[A-Za-z]", _SPECIFIER.sub("", form)):
                raise PathTemplateError(
                    f"{{{token}}} is not a format of times: expected yyyy, MM, M, dd, d, HH, H, mm, m, ss or s after "
                    "the colon, such as {datetime:yyyy/MM/dd}"
                )
            return form
        case "partition":
            return f"column:{_PARTITION_COLUMN}"
        case "":
            raise PathTemplateError("{} names no column")
    return f"column:{token}"


def _known(form: str, known: Sequence[str], setting: str) -> str:
    if form not in known:
        raise PathTemplateError(f"{setting} is one of {', '.join(known)}, got '{form}'")
    for part, specifier in _AS_SPECIFIERS.items():
        form = form.replace(part, specifier)
    return form


def _unit(formats: Sequence[str]) -> int:
    used = {found[0][0] for form in formats for found in _SPECIFIER.finditer(form)}
    return next((ticks for letter, ticks in _UNITS if letter in used), TICKS_PER_DAY)
