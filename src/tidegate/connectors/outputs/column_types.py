"""The types of columns: one table of what a value's type is called in every database, and of what each type accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Literal

from tidegate.connectors.outputs import values
from tidegate.sql.plan.nodes import Type

ColumnType = Literal["bigint", "float", "nvarchar(max)", "datetime", "bit", "record", "array"]
"""The names of types in the query language."""


class Database(StrEnum):
    """A kind of database."""

    SQLITE = "SQLite"
    POSTGRESQL = "PostgreSQL"
    MYSQL = "MySQL"
    SQL_SERVER = "SQL Server"


_COLUMN_TYPES: Mapping[Type, Mapping[Database, str]] = {
    type_: dict(zip(Database, names, strict=True))
    for type_, names in {
        #              SQLite      PostgreSQL                  MySQL          SQL Server
        Type.BIGINT: ("INTEGER", "bigint", "bigint", "bigint"),
        Type.FLOAT: ("REAL", "double precision", "double", "float(53)"),
        Type.NVARCHAR: ("TEXT", "text", "longtext", "nvarchar(max)"),
        Type.DATETIME: ("DATETIME", "timestamp with time zone", "datetime(6)", "datetime2(7)"),
        Type.BIT: ("BOOLEAN", "boolean", "boolean", "bit"),
        Type.RECORD: ("JSON", "jsonb", "json", "nvarchar(max)"),
        Type.ARRAY: ("JSON", "jsonb", "json", "nvarchar(max)"),
    }.items()
}
# A key cannot be a text of any length there.
_KEY_TEXTS = {Database.MYSQL: "varchar(255)", Database.SQL_SERVER: "nvarchar(400)"}


def column_type(database: Database, type_: Type, *, in_key: bool = False) -> str:
    """Return the type of a column that is created for values of a type; "" for ANY, which only SQLite has."""
    if in_key and type_ is Type.NVARCHAR and database in _KEY_TEXTS:
        return _KEY_TEXTS[database]
    return _COLUMN_TYPES[type_][database] if type_ is not Type.ANY else ""


def converter(declared: str, times: Callable[[str], values.Converter]) -> values.Converter:
    """Return the converter for a column, by the declared type of a database of SQL.

    Args:
        times: makes the converter for a column of times, whose resolution and form differ from database to database.
    """
    base = declared.lower().partition("(")[0].strip().removesuffix(" unsigned")
    if declared.lower() in ("tinyint(1)", "bit(1)"):
        return values.truth(declared)
    if base.startswith(("timestamp", "datetime", "smalldatetime")):
        return times(declared)
    make = _CONVERTERS.get(base)
    return values.text if make is None else make(declared)


_CONVERTERS: Mapping[str, Callable[[str], values.Converter]] = {
    # From 0 to 255 in one database, from −128 to 127 in another, which check it themselves.
    "tinyint": lambda type_: values.whole(type_, 16),
    "smallint": lambda type_: values.whole(type_, 16),
    "mediumint": lambda type_: values.whole(type_, 24),
    **dict.fromkeys(("int", "integer"), lambda type_: values.whole(type_, 32)),
    "bigint": lambda type_: values.whole(type_, 64),
    **dict.fromkeys(("real", "float", "double", "double precision"), values.floating),
    **dict.fromkeys(("numeric", "decimal", "money"), values.number),
    **dict.fromkeys(("boolean", "bool", "bit"), values.truth),
    "date": values.day,
    **dict.fromkeys(("uuid", "uniqueidentifier"), values.identifier),
    **dict.fromkeys(("json", "jsonb"), lambda type_: values.nested),
}
