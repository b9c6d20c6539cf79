"""Commands of Redis: the words of each are those that redis-py would pack."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Connection

from tests.job.rows import result_columns, result_rows
from tidegate.connectors.outputs.messaging.redis import CommandPacker, PackedCommand, fields_of, word
from tidegate.engine.values.vectors import Datetime


def packed(*words: Any) -> bytes:
    """Return a command as the library packs it."""
    return b"".join(Connection().pack_command(*words))


@pytest.mark.parametrize(
    "words",
    [
        ("GET", "é"),
        ("CLIENT SETINFO", "LIB-NAME", "x"),
        ("SET", "k", b"\r\n\x00", "EX", 10),
        ("ZADD", "k", 1.5, -7, 1e300, ""),
        ("MULTI",),
    ],
)
def test_a_command_is_packed_as_by_the_library(words: tuple[Any, ...]) -> None:
    assert b"".join(CommandPacker().pack(*words)) == packed(*words)


COLUMNS = {
    "n": [1, -2, None],
    "whole": [1, 2, 3],
    "v": [0.1, 1e300, -0.0],
    "name é": ["", "a\r\nb", "é"],
    "t": [Datetime(0), None, Datetime(17_000_000_000_000_001)],
    "b": [True, None, False],
    "r": [{"x": [Datetime(1)]}, None, [1.5, None]],
    "none": [None, None, None],
}


def test_fields_of_columns_are_those_of_their_rows() -> None:
    rows = result_columns(COLUMNS)
    records = rows.to_dicts()
    by_column = [one.command("XADD", word("s"), word("*")) for one in fields_of(rows)]
    by_row = [one.command("XADD", word("s"), word("*")) for one in fields_of(result_rows(records))]
    assert [one.packed for one in by_column] == [one.packed for one in by_row]
    texts = {"n": "1", "whole": "1", "v": "0.1", "name é": "", "t": "1970-01-01T00:00:00.0000000Z", "b": "true"}
    words = [word for field in (texts | {"r": '{"x":["1970-01-01T00:00:00.0000001Z"]}'}).items() for word in field]
    assert by_column[0].packed == packed("XADD", "s", "*", *words)
    assert by_column[0] == "XADD"
    assert b"".join(CommandPacker().pack(by_column[0])) == by_column[0].packed


def test_a_row_of_nothing_has_a_field_without_a_name() -> None:
    (fields,) = fields_of(result_columns({"n": [None]}))
    assert fields.command("HSET", word("k")).packed == packed("HSET", "k", "", "")
    assert type(fields.command("HSET")) is PackedCommand
