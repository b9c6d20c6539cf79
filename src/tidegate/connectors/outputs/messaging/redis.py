"""Writes results to Redis, each exactly once: entries of a stream, or values by key, by redis-py (the extra `redis`).

Rows are written in a transaction with the mark, which is a key of the same database. A run that finds the database
ahead of its journal skips the rows that are there. The transaction watches the mark, so of two runs that write at the
same time, the second finds that it has changed and ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field, model_validator

from tidegate import outbound
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public, Secret
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection
from tidegate.connectors.outputs.messaging.bodies import Body, json_objects
from tidegate.connectors.outputs.messaging.message_rows import MessageOutput, MessageRows, row_at
from tidegate.connectors.outputs.output import (
    REQUIRED_COLUMN_MISSING,
    Mark,
    MarkLocation,
    Output,
    OutputUnavailableError,
    StoredMark,
    check_marks,
    moved_by_another_run,
)
from tidegate.engine import ResultRows
from tidegate.engine.values.vectors import Kind, Vector

_SIMPLE = frozenset((str, int, float))  # their text is that of JSON


class PackedCommand(str):
    """The name of a command, with all of its words packed: `execute_command(PackedCommand("XADD", …))`."""

    __slots__ = ("packed",)
    packed: bytes

    def __new__(cls, name: str, packed: bytes) -> PackedCommand:
        """Return the name that carries its command."""
        command = super().__new__(cls, name)
        command.packed = packed
        return command


class CommandPacker:
    """Packs commands for redis-py, which takes one as `command_packer`, and leaves packed ones unchanged."""

    def pack(self, *words: Any) -> list[bytes]:
        """Return a command in pieces."""
        if type(words[0]) is PackedCommand:
            return [words[0].packed]
        # The library names a subcommand in the same word.
        name = words[0].split() if isinstance(words[0], str) else [words[0]]
        packed = [word(one) for one in (*name, *words[1:])]
        return [b"*%d\r\n%b" % (len(packed), b"".join(packed))]


def word(value: Any) -> bytes:
    """Return a word of a command."""
    content = value if isinstance(value, bytes) else str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(content), content)


@dataclass(frozen=True, slots=True)
class Fields:
    """Names and values, packed as ``count`` words."""

    count: int
    words: bytes

    def command(self, name: str, *beginning: bytes) -> PackedCommand:
        """Return the command that has these fields after its name and its first words."""
        words = (word(name), *beginning)
        return PackedCommand(name, b"*%d\r\n%b%b" % (len(words) + self.count, b"".join(words), self.words))


_NOTHING = Fields(2, word("") * 2)
"""Redis has no entry or hash without fields."""


def fields_of(rows: ResultRows) -> list[Fields]:
    """Return the columns of each row as fields; those that are NULL are left out, and a row of nothing else has one."""
    if not rows.names or None in rows.names:
        return [_fields_of_row(row) for row in rows.to_dicts()]
    columns = [_column(str(name), column) for name, column in zip(rows.names, rows.columns, strict=True)]
    found = []
    for pieces in zip(*columns, strict=True):
        count = 2 * (len(pieces) - pieces.count(b""))
        found.append(Fields(count, b"".join(pieces)) if count else _NOTHING)
    return found


def _fields_of_row(row: Mapping[str, Any]) -> Fields:
    pieces = [word(name) + word(_text(value)) for name, value in row.items() if value is not None]
    return Fields(2 * len(pieces), b"".join(pieces)) if pieces else _NOTHING


def _column(name: str, column: Vector) -> list[bytes]:
    """Return the field of each row, or nothing where it is NULL."""
    named = word(name)
    contents: Iterable[bytes | None]
    if column.uniform == Kind.BIGINT:
        contents = [b"%d" % value for value in column.to_list()]
    elif column.uniform == Kind.NVARCHAR:
        contents = [value.encode() for value in column.to_list()]
    else:
        contents = [None if value is None else _text(value).encode() for value in column.to_list()]
    return [b"" if content is None else b"%b$%d\r\n%b\r\n" % (named, len(content), content) for content in contents]


def _text(value: Any) -> str:
    return str(value) if type(value) in _SIMPLE else values.text(value)


_PORT = 6379
_TIMEOUT_S = 20.0
_ROWS_OF_A_TRANSACTION = 5_000  # Redis serves nobody else meanwhile

Result = TypeVar("Result")


@OUTPUTS.register
class RedisOutput(OutputSection):
    """A database of Redis: an entry of a stream for each result, or the latest result of each key."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(("valkey", "cache", "redisstream"), 'write type = "redis"')

    type: Literal["redis"]
    connection_string: Secret = Field(description="`redis://:password@host:6379/0`, or `rediss://…` with TLS")
    stream: Public | None = Field(
        default=None, description="the stream to add entries to; their fields are the columns"
    )
    max_length: int | None = Field(default=None, ge=1, description="how many entries the stream keeps, about")
    key_column: Public | None = Field(
        default=None, description="instead of a stream: the column whose value is the key that a result is stored under"
    )
    key_prefix: Public = Field(default="", description="what keys begin with, such as `device:`")
    value: Literal["json", "hash"] = Field(default="json", description="what is stored under a key")
    expire_s: int | None = Field(default=None, ge=1, description="after how many seconds a key is forgotten")

    @model_validator(mode="after")
    def _one_structure(self) -> RedisOutput:
        if (self.stream is None) == (self.key_column is None):
            raise ValueError("give either 'stream' or 'key_column', one of the two")
        return self

    def open_at(self, opening: OutputOpening) -> Output:
        return RedisDatabase(self, opening)


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is written for a row: its number, its key if it has one, and JSON or fields.

    Fields are those of a stream's entry or of a hash.
    """

    number: int
    key: str | None
    content: bytes | Fields


class RedisDatabase(MessageOutput):
    """A stream or keys; the mark counts rows."""

    def __init__(self, settings: RedisOutput, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the server cannot be reached or refuses, or its mark does not fit the journal's.
        """
        try:
            import redis  # an extra: other outputs do without
        except ModuleNotFoundError as error:
            raise OutputError("an output to Redis needs redis-py: pip install 'tidegate[redis]'") from error
        self._errors = redis.exceptions
        self._settings = settings
        self._identity = opening.identity
        target = settings.key_prefix if settings.stream is None else settings.stream
        self._mark_key = f"tidegate:{opening.identity.job}:{opening.identity.output}:{target}"
        self._is_json = settings.stream is None and settings.value == "json"
        rows = MessageRows(
            None,
            opening.identity,
            opening.shape,
            key=settings.key_column,
            drop=opening.drop,
            encode=json_objects if self._is_json else _no_bodies,
        )
        super().__init__("redis", opening, rows)
        self._waiting: list[_Entry] = []
        try:
            self._client: Any = redis.Redis.from_url(
                settings.connection_string,
                socket_timeout=_TIMEOUT_S,
                socket_connect_timeout=_TIMEOUT_S,
                command_packer=CommandPacker(),
            )
        except ValueError:
            # The library's message repeats the address, with its password.
            raise OutputError("connection_string is no address of Redis: expected redis://host:6379/0") from None
        try:
            outbound.check_driver(self._client.get_connection_kwargs(), _PORT)
        except outbound.AddressRefused as error:
            raise OutputError(f"cannot reach Redis: {error}") from None
        self._place = f"Redis at {self._client.get_connection_kwargs().get('host', 'its socket')}"
        marks = f"the key {self._mark_key} of {self._place}"
        self._location = MarkLocation(self._place, marks, f"delete them and the key {self._mark_key}")
        self._held = self._on_server(lambda: self._agreed(opening.mark))

    # The mark ---------------------------------------------------------------------------------------------------------

    def _stored(self, text: Any) -> StoredMark | None:
        return None if text is None else StoredMark(**json.loads(text), dropped=0)

    def _agreed(self, mark: Mark | None) -> int:
        """Return how many rows the database has, after checking that this matches the journal."""
        stream = self._settings.stream
        kind = b"none" if stream is None else self._client.type(stream)
        if kind not in (b"none", b"stream"):
            raise OutputError(
                f"{self._place}: the key {stream} holds a {kind.decode()}, not a stream; name another one"
            )
        stored = self._stored(self._client.get(self._mark_key))
        check_marks(mark, stored, self._identity, self._location)
        if mark is None or stored is None:
            self._client.set(self._mark_key, self._mark_text(0))
            return 0
        return stored.rows

    def _mark_text(self, rows: int) -> str:
        return json.dumps({"journal": self._identity.journal, "rows": rows})

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        first = self._next
        fields = None if self._is_json else fields_of(rows)
        self._taken += len(rows)
        if fields is not None and self._settings.key_column is None:
            self._waiting += [_Entry(number, None, one) for number, one in enumerate(fields, first)]
            return
        for message in self._rows.messages(rows, first):
            if self._settings.key_column is not None and message.key is None:
                said = f"column '{self._settings.key_column}' has no value, and it is the key"
                row = row_at(rows, message.number - first)
                self._rows.reject(REQUIRED_COLUMN_MISSING, said, message.number, message.time, row)
                continue
            content = message.body if fields is None else fields[message.number - first]
            self._waiting.append(_Entry(message.number, message.key, content))

    def _send(self) -> None:
        self._on_server(self._write_missing)
        self._waiting = []

    def _write_missing(self) -> None:
        """Write what the database does not have, in transactions of some thousand rows."""
        end = self._next
        # After a reply that was lost, the database may have more than was known.
        stored = self._stored(self._client.get(self._mark_key))
        if stored is None or stored.journal != self._identity.journal or stored.rows < self._held:
            raise moved_by_another_run(self._identity, self._location)
        self._held = stored.rows
        waiting = [entry for entry in self._waiting if entry.number >= self._held]
        while self._held < end:
            some, waiting = waiting[:_ROWS_OF_A_TRANSACTION], waiting[_ROWS_OF_A_TRANSACTION:]
            self._write(some, waiting[0].number if waiting else end)

    def _write(self, entries: list[_Entry], after: int) -> None:
        pipeline: Any
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.watch(self._mark_key)
            stored = self._stored(pipeline.get(self._mark_key))
            if stored != StoredMark(self._identity.journal, self._held, 0):
                raise moved_by_another_run(self._identity, self._location)
            pipeline.multi()
            for entry in entries:
                self._add(pipeline, entry)
            pipeline.set(self._mark_key, self._mark_text(after))
            try:
                pipeline.execute()
            except self._errors.WatchError:
                raise moved_by_another_run(self._identity, self._location) from None
        self._held = after

    def _add(self, pipeline: Any, entry: _Entry) -> None:
        settings, content = self._settings, entry.content
        if settings.stream is not None:
            assert isinstance(content, Fields)
            pipeline.execute_command(content.command("XADD", *self._to_stream))
            return
        key = f"{settings.key_prefix}{entry.key}"
        if not isinstance(content, Fields):
            pipeline.set(key, content, ex=settings.expire_s)
            return
        # Not only fields of this result would be left, and a key that is no hash would fail alone in its transaction.
        pipeline.unlink(key)
        pipeline.execute_command(content.command("HSET", word(key)))
        if settings.expire_s is not None:
            pipeline.expire(key, settings.expire_s)

    @cached_property
    def _to_stream(self) -> tuple[bytes, ...]:
        """The words of `XADD` before the fields."""
        settings = self._settings
        limit = () if settings.max_length is None else ("MAXLEN", "~", settings.max_length)
        return tuple(map(word, (settings.stream, *limit, "*")))

    # The server -------------------------------------------------------------------------------------------------------

    def _on_server(self, work: Callable[[], Result]) -> Result:
        errors = self._errors
        try:
            return work()
        except (errors.AuthenticationError, errors.NoPermissionError) as error:
            raise OutputError(f"{self._place}: {error}") from error
        except (errors.ConnectionError, errors.TimeoutError, errors.ReadOnlyError, errors.OutOfMemoryError) as error:
            raise OutputUnavailableError(f"{self._place}: {error}") from error
        except errors.RedisError as error:
            raise OutputError(f"{self._place}: {error}") from error

    def continue_after_held_rows(self) -> None:
        """The number of rows dropped among them is unknown."""
        self._mark["rows"] = self._held

    def close(self) -> None:
        self._client.close()


def _no_bodies(rows: ResultRows) -> list[Body]:
    return [b""] * len(rows)
