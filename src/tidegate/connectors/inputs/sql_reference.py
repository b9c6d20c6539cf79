"""Reference data from a database: the rows of a query, asked again on schedule, or changed by a second query.

A snapshot is what the query returns at one time, as lines of JSON. It is effective from that time on, and kept in the
state folder like any table. So a restart joins with the snapshots of the first run, whatever the database holds then.

The queries may use the parameters that the service gives them: ``@snapshotTime`` in the first, ``@deltaStartTime`` and
``@deltaEndTime`` in the second. The second returns the changes between two times: a column ``_operation_`` is 1 for a
row that came and 2 for one that went, and an updated row is one of each
(https://learn.microsoft.com/azure/stream-analytics/sql-reference-data).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from math import isnan
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field, model_validator

from tidegate import outbound
from tidegate.blobs import Blob, BlobError
from tidegate.connectors.inputs.kinds import INPUTS
from tidegate.connectors.inputs.reference import ReferenceFiles, ReferenceSection
from tidegate.connectors.model.section import Public, Secret
from tidegate.engine import JSON, DecodingLimits, Format
from tidegate.ordering import TICKS_PER_SECOND, format_time

Row = dict[str, Any]
Parameters = Mapping[str, str]

_OPERATION = "_operation_"
_GONE = 2
# What is in quotes is text, and a file with a query begins with comments that name parameters.
_PIECE = re.compile(
    r"""(?P<quoted>'[^']*'|"[^"]*")|--[^\n]*|/\*.*?\*/|@(?P<parameter>snapshotTime|deltaStartTime|deltaEndTime)\b""",
    re.IGNORECASE | re.DOTALL,
)
_INFINITIES = {b"infinity": "9999-12-31T23:59:59.9999999Z", b"-infinity": "0001-01-01T00:00:00.0000000Z"}
_LEAST, _LARGEST = -(2**63), 2**63 - 1
_SQLITE, _POSTGRESQL = ("sqlite",), ("postgresql", "postgres")


@INPUTS.register
class SqlReferenceInput(ReferenceSection):
    """The rows of a query to join streams to, asked again on schedule. Each answer that differs is the table from the
    time of its question on."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("sql", "sqldatabase", "database"), 'for reference data write type = "sql_reference"'
    )

    type: Literal["sql_reference"]
    connection_string: Secret = Field(description="`postgresql://USER:PASSWORD@HOST/DATABASE`, or `sqlite:///FILE`")
    snapshot_query: Public = Field(description="the query whose rows are the table; it may use `@snapshotTime`")
    delta_query: Public | None = Field(
        default=None,
        description="a query for the changes between `@deltaStartTime` and `@deltaEndTime`, with `_operation_` 1 for "
        "rows that came and 2 for rows that went; asked instead of the first between full snapshots",
    )
    refresh: Literal["periodically", "never"] = Field(
        default="periodically", description="never: the table of the start is the only one"
    )
    refresh_s: float = Field(default=60, gt=0, description="how often to ask")
    full_refresh_s: float = Field(
        default=3600,
        gt=0,
        description="with `delta_query`: how often to ask `snapshot_query` all the same, for changes that a "
        "transaction made visible after its time had been asked about",
    )

    @model_validator(mode="after")
    def _scheme_is_known(self) -> SqlReferenceInput:
        scheme = self.connection_string.partition(":")[0].lower()
        if scheme not in (*_SQLITE, *_POSTGRESQL):
            raise ValueError(f"connection_string: expected postgresql://… or sqlite:///…, got {scheme[:20]}:…")
        return self

    @property
    def is_fixed(self) -> bool:
        return self.refresh == "never"

    def open_tables(self) -> ReferenceFiles:
        return SqlTables(self)

    def file_format(self, name: str, limits: DecodingLimits) -> Format:
        return JSON


class SqlTables:
    """The answers to the queries: the last one, and when it was asked."""

    are_timed = False

    def __init__(self, settings: SqlReferenceInput, clock: Callable[[], int] = lambda: time.time_ns() // 100) -> None:
        """``clock`` returns the time in ticks."""
        self._settings = settings
        self._clock = clock
        self._rows: list[Row] | None = None
        self._asked_at = self._full_at = 0
        self._blob: Blob | None = None
        self._content = b""

    @property
    def described(self) -> str:
        return "snapshot_query"

    def find(self) -> list[tuple[Blob, int | None]]:
        """Ask the database; the answer is a new table if it differs from the one before."""
        if self._rows is None or self._settings.refresh == "periodically":
            now = self._clock()
            rows = self._snapshot(now) if self._is_full_due(now) else self._changed(now)
            lines = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows]
            # Rows in another order are the same table: a database need not keep to one.
            if self._blob is None or sorted(lines) != sorted(self._content.splitlines(keepends=True)):
                self._content = b"".join(lines)
                digest = hashlib.sha256(self._content).hexdigest()[:16]
                self._blob = Blob(f"snapshot of {format_time(now)}", len(self._content), now, digest)
            self._rows, self._asked_at = rows, now
        assert self._blob is not None
        return [(self._blob, None)]

    def read_blob(self, blob: Blob) -> bytes:
        return self._content

    def has_settled(self, blob: Blob) -> bool:
        return True

    def _is_full_due(self, now: int) -> bool:
        if self._rows is None or self._settings.delta_query is None:
            return True
        return now - self._full_at >= self._settings.full_refresh_s * TICKS_PER_SECOND

    def _snapshot(self, now: int) -> list[Row]:
        rows = self._answer(self._settings.snapshot_query, {"snapshotTime": format_time(now)})
        self._full_at = now
        return rows

    def _changed(self, now: int) -> list[Row]:
        """Return the rows of the last answer with the changes since then."""
        assert self._settings.delta_query is not None
        between = {"deltaStartTime": format_time(self._asked_at), "deltaEndTime": format_time(now)}
        changed: list[Row] = []
        gone: Counter[str] = Counter()
        for row in self._answer(self._settings.delta_query, between):
            operation = next((row.pop(name) for name in list(row) if name.lower() == _OPERATION), 1)
            if operation == _GONE:
                gone[_identity(row)] += 1
            else:
                changed.append(row)
        kept = []
        for row in self._rows or ():
            if gone[_identity(row)]:
                gone[_identity(row)] -= 1
            else:
                kept.append(row)
        known = {_identity(row) for row in kept}
        for row in changed:
            identity = _identity(row)
            # A log of changes, unlike a table with its history, also has rows that came and went between the two times.
            if gone[identity]:
                gone[identity] -= 1
            elif identity not in known:
                kept.append(row)
        return kept

    def _answer(self, query: str, parameters: Parameters) -> list[Row]:
        scheme, _, rest = self._settings.connection_string.partition(":")
        if scheme.lower() in _SQLITE:
            return _sqlite_rows(rest.removeprefix("//").removeprefix("/") or rest, query, parameters)
        return _postgresql_rows(self._settings.connection_string, query, parameters)


def _sqlite_rows(path: str, query: str, parameters: Parameters) -> list[Row]:
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as connection:
            given = _named(query, parameters)
            cursor = connection.execute(_with_parameters(query, given, ":{}"), given)
            return _rows([one[0] for one in cursor.description or ()], cursor)
    except sqlite3.Error as error:
        raise BlobError(f"{path}: {error}") from error


def _postgresql_rows(address: str, query: str, parameters: Parameters) -> list[Row]:
    try:
        import psycopg  # an extra: other inputs do without
        from psycopg.types import datetime as times
    except ModuleNotFoundError as error:
        raise BlobError("reference data from PostgreSQL need psycopg: pip install 'tidegate[postgresql]'") from error
    given = _named(query, parameters)
    text = _with_parameters(query.replace("%", "%%") if given else query, given, "%({})s::timestamptz")
    try:
        addresses = outbound.postgresql_address(psycopg.conninfo.conninfo_to_dict(address))
        with psycopg.connect(address, connect_timeout=10, autocommit=True, hostaddr=addresses) as connection:
            for kind, loader in (
                ("date", times.DateLoader),
                ("timestamp", times.TimestampLoader),
                ("timestamptz", times.TimestamptzLoader),
            ):
                connection.adapters.register_loader(kind, _with_infinity(loader))
            cursor = connection.execute(text.encode(), given or None)
            return _rows([one.name for one in cursor.description or ()], cursor)
    except OSError as error:
        raise BlobError(f"cannot reach PostgreSQL: {error}") from None
    except psycopg.Error as error:
        # The message of a failed connection names host and user, never the password.
        raise BlobError(" ".join(str(error).split())) from error


def _with_infinity(loader: Any) -> Any:
    """Return a loader of psycopg's that reads infinite times, which Python lacks, as the first and the last time."""

    def load(self: Any, data: Any) -> Any:
        return _INFINITIES.get(bytes(data)) or loader.load(self, data)

    return type("WithInfinity", (loader,), {"load": load})


def _named(query: str, parameters: Parameters) -> dict[str, str]:
    """Return the parameters that a query uses, under the names as it spells them."""
    values = {name.lower(): value for name, value in parameters.items()}
    found = {piece["parameter"] for piece in _PIECE.finditer(query) if piece["parameter"] is not None}
    return {name: values[name.lower()] for name in found if name.lower() in values}


def _with_parameters(query: str, given: Parameters, spelling: str) -> str:
    """Return a query without comments, its parameters spelled as the database's driver has them."""

    def spelled(piece: re.Match[str]) -> str:
        if piece["parameter"] is not None:
            return spelling.format(piece["parameter"]) if piece["parameter"] in given else piece[0]
        return piece["quoted"] or " "

    return _PIECE.sub(spelled, query)


def _rows(names: Sequence[str], cursor: Iterable[Sequence[Any]]) -> list[Row]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BlobError(f"the query returns the column {twice[0]!r} twice; give one of them another name with AS")
    return [dict(zip(names, map(_shown, values), strict=True)) for values in cursor]


def _shown(value: Any) -> Any:
    """Return a value of a database as JSON has it."""
    if isinstance(value, datetime):
        whole = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        since = whole.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        ticks = (since.days * 86_400 + since.seconds) * TICKS_PER_SECOND + since.microseconds * 10
        return format_time(ticks)
    if isinstance(value, Decimal):
        is_whole = value.is_finite() and value == value.to_integral_value() and _LEAST <= value <= _LARGEST
        value = int(value) if is_whole else float(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, date | time_of_day):
        return value.isoformat()
    if isinstance(value, float) and isnan(value):
        return None  # as in files of Avro and Parquet
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if value is None or isinstance(value, str | int | float | bool | dict):
        return value
    return str(value)


def _identity(row: Row) -> str:
    return json.dumps(row, sort_keys=True, default=str)
