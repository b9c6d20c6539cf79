"""The columns of a DataFrame that is written to ``eventhubs``, and its rows as events."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tidegate.connectors.model.errors import OutputError

_BODY, _KEY, _PARTITION, _PROPERTIES = "body", "partitionKey", "partition", "properties"
# Columns by the names that people write them with; the Event Hubs connector for Spark has `partitionId`.
_NAMES = {
    "body": _BODY,
    "partitionkey": _KEY,
    "partition": _PARTITION,
    "partitionid": _PARTITION,
    "properties": _PROPERTIES,
}
_EXPECTED = {
    _BODY: "string or binary; cast it, or make JSON of a row: to_json(struct(*)) AS body",
    _KEY: "string; cast it",
    _PARTITION: "string or a whole number, such as '0'",
    _PROPERTIES: "map<string,string>, or a map of strings to numbers, booleans or binary",
}
_COLUMNS = "body, partitionKey, partition (or partitionId), properties"
_ROWS_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True)
class SinkRows:
    """Some rows to publish; a column that the DataFrame does not have is None.

    Attributes:
        bodies: binary. keys, partitions: text.
        properties: of each row, pairs or a mapping.
    """

    bodies: pa.Array
    keys: pa.Array | None
    partitions: pa.Array | None
    properties: Sequence[Any] | None

    def __len__(self) -> int:
        return len(self.bodies)


class SinkColumns:
    """Which columns of a DataFrame hold what."""

    def __init__(self, schema: StructType) -> None:
        """
        Raises:
            OutputError: a column is missing, unknown, given twice, or has another type.
        """
        self._places: dict[str, int] = {}
        for place, field in enumerate(schema.fields):
            meaning = _NAMES.get(field.name.lower())
            if meaning is None:
                raise OutputError(_unknown(field.name))
            if meaning in self._places:
                both = f"'{schema.fields[self._places[meaning]].name}' and '{field.name}'"
                raise OutputError(f"columns {both} mean the same; select one of them")
            _check_type(field, meaning)
            self._places[meaning] = place
        if _BODY not in self._places:
            raise OutputError(
                "an event needs a column 'body' (string or binary), such as df.selectExpr('to_json(struct(*)) AS body')"
                f"; this DataFrame has {', '.join(schema.names) or 'no columns'}"
            )

    def rows(self, given: Iterable[Any]) -> Iterator[SinkRows]:
        """Yield rows in parts, from Arrow record batches or, as PySpark 4.0 gives a stream's, from Row objects."""
        rows = iter(given)
        for first in rows:
            if isinstance(first, pa.RecordBatch):
                yield self._part(first.columns)
                continue
            some: list[Row] = [first, *islice(rows, _ROWS_AT_ONCE - 1)]
            yield self._part(list(zip(*some, strict=True)))

    def _part(self, columns: Sequence[Any]) -> SinkRows:
        def of(meaning: str, type_: pa.DataType) -> pa.Array | None:
            place = self._places.get(meaning)
            return None if place is None else _array(columns[place], type_)

        place = self._places.get(_PROPERTIES)
        given = None if place is None else columns[place]
        properties = given.to_pylist() if isinstance(given, pa.Array) else given
        return SinkRows(of(_BODY, pa.binary()), of(_KEY, pa.string()), of(_PARTITION, pa.string()), properties)


def _array(values: Any, type_: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values.cast(type_)
    if pa.types.is_binary(type_):
        return pa.array([value.encode() if isinstance(value, str) else value for value in values], type_)
    return pa.array([None if value is None else str(value) for value in values], type_)


def _check_type(field: StructField, meaning: str) -> None:
    kind = field.dataType
    match meaning:
        case "body":
            right = isinstance(kind, StringType | BinaryType)
        case "partitionKey":
            right = isinstance(kind, StringType)
        case "partition":
            right = isinstance(kind, StringType | IntegralType)
        case _:
            right = isinstance(kind, MapType) and isinstance(kind.keyType, StringType) and _is_plain(kind.valueType)
    if not right:
        raise OutputError(f"column '{field.name}' is {kind.simpleString()}; expected {_EXPECTED[meaning]}")


def _is_plain(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType | BooleanType | IntegralType | FloatType | DoubleType)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), _NAMES, n=1)
    hint = f"; did you mean '{_NAMES[close[0]]}'?" if close else ""
    return f"an event has no column '{name}'{hint}: it has {_COLUMNS}; put other values into body or properties"
