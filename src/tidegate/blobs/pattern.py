"""The path of an input's files: a file, a folder, or a pattern.

`*` and `?` stand for any characters of one name, `**` for any folders. `{date}`, `{time}` and `{partition}` are those
of Stream Analytics, in the forms it supports ("Use reference data from a blob storage").
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.blobs.source import Blob, BlobSource

DATE_FORMATS = ("YYYY/MM/DD", "YYYY-MM-DD", "YYYYMMDD", "MM/DD/YYYY", "DD/MM/YYYY", "DD-MM-YYYY", "MM-DD-YYYY")
TIME_FORMATS = ("HH/mm", "HH-mm", "HHmm", "HH", "HH/mm/ss", "HH-mm-ss")

_SPECIAL = re.compile(r"\*\*/?|[*?]|\{[^{}]*\}")
_PARTS = {"YYYY": "year", "MM": "month", "DD": "day", "HH": "hour", "mm": "minute", "ss": "second"}


class PatternError(Exception):
    """A path is not a pattern; the message says why."""


@dataclass(frozen=True, slots=True)
class PathMatch:
    """What a name says: its partition, and its time in ticks; None where the pattern has none."""

    partition: str | None
    time: int | None


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern of names.

    Attributes:
        root: the folder or container that names are relative to.
        prefix: the folders below it that all names begin with.
        has_time, has_partition: whether names say so.
        exact: the only name, if the path has no wildcards; in a store it may also be a folder.
        depth: how many folders below the prefix names may be; None for any.
    """

    root: str
    prefix: str
    expression: re.Pattern[str]
    has_time: bool = False
    has_partition: bool = False
    exact: str | None = None
    depth: int | None = None

    @classmethod
    def parse(cls, path: str, date_format: str = "YYYY-MM-DD", time_format: str = "HH-mm") -> PathPattern:
        """The pattern of a path (absolute, or a URL).

        Raises:
            PatternError: an unknown name in braces, one that occurs twice, or a time without a date.
        """
        scheme, separator, rest = path.partition("://")
        if separator:
            container, _, name = rest.partition("/")
            root = f"{scheme}://{container}"
        else:
            special = _SPECIAL.search(path)
            whole = path if special is None else path[: special.start()].rpartition("/")[0] + "/"
            if special is None and not os.path.isdir(path):
                whole = os.path.dirname(path) + "/"
            root, name = whole.rstrip("/") or "/", path[len(whole) :]
        name = name.strip("/")
        special = _SPECIAL.search(name)
        if special is None:
            # A folder means everything in it.
            text = f"{re.escape(name)}(/.*)?" if name and separator else re.escape(name) if name else ".*"
            return cls(root, name if separator else "", re.compile(text), exact=name or None)
        text = _expression(name, date_format, time_format)
        # As in Stream Analytics, whose patterns are what names begin with: `rides/{date}/{time}` has all files below.
        is_folder = name.endswith("}")
        if is_folder:
            text += "(?:/.*)?"
        prefix = name[: special.start()].rpartition("/")[0]
        deepest = (name[len(prefix) :].strip("/") + date_format * ("{date}" in name)).count("/")
        return cls(
            root,
            prefix,
            re.compile(text),
            "(?P<year>" in text,
            "(?P<partition>" in text,
            depth=None if "**" in name or is_folder else deepest + time_format.count("/"),
        )

    def find(self, source: BlobSource) -> list[tuple[Blob, PathMatch]]:
        """The files that fit, in any order. Raises BlobError."""
        if self.exact is not None:
            blob = source.head(self.exact)
            if blob is not None or "://" not in self.root:
                return [] if blob is None else [(blob, PathMatch(None, None))]
        found = []
        for blob in source.list(self.prefix, self.depth):
            place = self.place(blob.name)
            if place is not None:
                found.append((blob, place))
        return found

    def place(self, name: str) -> PathMatch | None:
        """What a name says; None of one that does not fit, or whose time does not exist."""
        found = self.expression.fullmatch(name)
        if found is None:
            return None
        parts = found.groupdict()
        time = None
        if self.has_time:
            numbers = {part: int(parts.get(part) or 0) for part in ("hour", "minute", "second")}
            try:
                at = datetime(int(parts["year"]), int(parts["month"]), int(parts["day"]), tzinfo=UTC, **numbers)
            except ValueError:
                return None
            since = at - datetime(1970, 1, 1, tzinfo=UTC)
            time = (since.days * 86_400 + since.seconds) * 10_000_000
        return PathMatch(parts.get("partition"), time)


def _expression(name: str, date_format: str, time_format: str) -> str:
    parts = []
    end = 0
    used: set[str] = set()
    for special in _SPECIAL.finditer(name):
        parts.append(re.escape(name[end : special.start()]))
        end = special.end()
        token = special[0]
        if token.startswith("{"):
            if token in used:
                raise PatternError(f"{token} occurs twice in '{name}'")
            used.add(token)
        match token:
            case "**" | "**/":
                parts.append("(?:.*/)?" if token == "**/" else ".*")
            case "*":
                parts.append("[^/]*")
            case "?":
                parts.append("[^/]")
            case "{date}":
                parts.append(_of_format(date_format, DATE_FORMATS, "date_format"))
            case "{time}":
                parts.append(_of_format(time_format, TIME_FORMATS, "time_format"))
            case "{partition}":
                parts.append("(?P<partition>[0-9]+)")
            case _:
                raise PatternError(f"{token} in '{name}' means nothing; there are {{date}}, {{time}} and {{partition}}")
    parts.append(re.escape(name[end:]))
    if "{time}" in used and "{date}" not in used:
        raise PatternError(f"'{name}' has a {{time}} and no {{date}}")
    return "".join(parts)


def _of_format(form: str, known: tuple[str, ...], setting: str) -> str:
    if form not in known:
        raise PatternError(f"{setting} is one of {', '.join(known)}, got '{form}'")
    text = re.escape(form)
    for part, group in _PARTS.items():
        text = text.replace(part, f"(?P<{group}>[0-9]{{{len(part)}}})")
    return text
