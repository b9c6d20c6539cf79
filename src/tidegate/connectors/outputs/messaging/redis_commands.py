"""Commands of Redis in the form that it reads, made of whole columns.

redis-py spends most of its time on packing words one by one. A command is an array of its words: `*COUNT`, then
`$LENGTH` and the bytes of each word, all ended by CR LF (RESP).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.connectors.outputs import values
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
