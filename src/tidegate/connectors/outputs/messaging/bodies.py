"""The bodies of messages: one result each, in JSON, CSV or Avro.

The service packs as many results into a message as fit. Which ones these are would depend on how a run is cut into
steps, and a message that a killed run has sent could not be told from the ones to come. So here it is one result.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, assert_never

import fastavro
from pydantic import Field, model_validator

from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.kinds import OutputSection
from tidegate.connectors.outputs.shape import Shape
from tidegate.engine import ResultRows
from tidegate.engine.values.json_lines import dicts
from tidegate.sql.plan.nodes import Type

Signature: TypeAlias = tuple[Any, ...]
"""The structure of a row as far as its schema depends on it; rows with equal ones have one schema."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_VALUES: dict[type, str] = {type(None): "null", int: "long", float: "double", str: "string", bool: "boolean"}
_OF_TYPES = {
    Type.BIGINT: "long",
    Type.FLOAT: "double",
    Type.NVARCHAR: "string",
    Type.DATETIME: "string",
    Type.BIT: "boolean",
}


class InvalidNameError(ValueError):
    """A column whose name Avro does not allow."""


def signature_of(row: Mapping[str, Any], certain: Mapping[str, Type]) -> Signature:
    """Return the signature of a row of JSON values.

    Args:
        certain: the types that some columns have in every row, by name in lower case.
    """
    return tuple((name, _signature(value, certain.get(name.lower(), Type.ANY))) for name, value in row.items())


def _signature(value: Any, type_: Type = Type.ANY) -> Any:
    known = _OF_TYPES.get(type_) or _OF_VALUES.get(type(value))
    if known is not None:
        return known
    if isinstance(value, dict):
        return ("record", tuple((name, _signature(inner)) for name, inner in value.items()))
    # A set: the order and number of the items do not matter.
    return ("array", frozenset(map(_signature, value)))


def schema_of(signature: Signature) -> dict[str, Any]:
    """Return the schema of rows with a signature.

    Raises:
        InvalidNameError: a column or field has a name that Avro does not allow.
    """
    return _record([signature], itertools.count(1), "Result")


def _record(signatures: Iterable[Signature], numbers: Iterator[int], name: str) -> dict[str, Any]:
    """Return one schema for records of some signatures; a field that one of them lacks is null there."""
    fields: dict[str, list[Any]] = {}
    for field, inner in itertools.chain.from_iterable(signatures):
        fields.setdefault(field, []).append(inner)
    wrong = next((field for field in fields if not _NAME.fullmatch(field)), None)
    if wrong is not None:
        raise InvalidNameError(f"column '{wrong}': names in Avro have letters, digits and '_', and no digit first")
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": _union(inner, numbers), "default": None} for field, inner in fields.items()],
    }


def _union(signatures: Collection[Any], numbers: Iterator[int]) -> list[Any]:
    """Return a type for values of some signatures; NULL is always one of them."""
    # A writer takes the first type that fits a value, and a double fits any number.
    found: list[Any] = ["null", *(one for one in ("boolean", "long", "double", "string") if one in signatures)]
    nested = [one for one in signatures if not isinstance(one, str)]
    records = sorted((inner for kind, inner in nested if kind == "record"), key=repr)
    arrays = [inner for kind, inner in nested if kind == "array"]
    if records:
        found.append(_record(records, numbers, f"Record{next(numbers)}"))
    if arrays:
        found.append({"type": "array", "items": _union(frozenset().union(*arrays), numbers)})
    # Text stands for a column that is null here: a reader then finds a union, as in the messages with a value.
    return found if len(found) > 1 else ["null", "string"]


_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
_SYNC_MARKER = b"tidegate-results"  # 16 bytes; constant, so that a result has the same bytes in every run
_SCHEMAS = 1_000


class BodySettings(OutputSection):
    """Settings common to outputs whose messages have a body of one result."""

    format: Literal["json", "csv", "avro"] = Field(default="json", description="how a result is written")
    json_format: Literal["line separated", "array"] = Field(
        default="line separated", description="a body is the result's object, or an array that holds it"
    )
    csv_delimiter: Literal["comma", "semicolon", "tab", "pipe", "space"] = Field(
        default="comma", description="the delimiter between the fields of a line"
    )

    @model_validator(mode="after")
    def _settings_of_its_format(self) -> BodySettings:
        for name, format_ in (("json_format", "json"), ("csv_delimiter", "csv")):
            if name in self.model_fields_set and self.format != format_:
                raise ValueError(f'{name} is not for format = "{self.format}"')
        return self


Body = bytes | ValueError
"""A body, or why a result has none."""

Encoder = Callable[[ResultRows], list[Body]]


def encoder_of(settings: BodySettings, shape: Shape | None) -> Encoder:
    """Return what writes the bodies of rows; ``shape`` has the types that are certain for every row."""
    match settings.format:
        case "json":
            return _json_arrays if settings.json_format == "array" else json_objects
        case "csv":
            return _Csv(_DELIMITERS[settings.csv_delimiter])
        case "avro":
            return _Avro(shape)
        case _:
            assert_never(settings.format)


def content_type_of(settings: BodySettings) -> str:
    """Return the media type of bodies."""
    match settings.format:
        case "json":
            return "application/json"
        case "csv":
            return "text/csv"
        case "avro":
            return "avro/binary"
        case _:
            assert_never(settings.format)


def json_objects(rows: ResultRows) -> list[Body]:
    """Return each row as an object of JSON."""
    return list(rows.to_json_lines().splitlines())


def _json_arrays(rows: ResultRows) -> list[Body]:
    return [b"[%b]" % line for line in rows.to_json_lines().splitlines()]


class _Csv:
    """A header and a line: RFC 4180, UTF-8, NULL as nothing, times and nested values as JSON writes them."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter

    def __call__(self, rows: ResultRows) -> list[Body]:
        names: Sequence[str] | None = None
        header = b""
        found: list[Body] = []
        for row in rows.to_dicts():
            if names is None or list(row) != names:
                names = list(row)
                header = self._line(names)
            found.append(header + self._line(map(_field, row.values())))
        return found

    def _line(self, fields: Iterator[str] | Sequence[str]) -> bytes:
        text = io.StringIO()
        csv.writer(text, delimiter=self._delimiter, lineterminator="\r\n").writerow(fields)
        return text.getvalue().encode()


def _field(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else values.json_text(value)


class _Avro:
    """An object container file with one record.

    Its schema has the types that the query determines, and those of the values for the other columns. The header of a
    file depends on the schema alone, so it is written once for each.
    """

    def __init__(self, shape: Shape | None) -> None:
        self._certain: dict[str, Type] = {} if shape is None else {one.name.lower(): one.type for one in shape}
        self._known: dict[Signature, tuple[bytes, Any]] = {}

    def __call__(self, rows: ResultRows) -> list[Body]:
        return [self._body(row) for row in dicts(rows.names, rows.columns, len(rows))]

    def _body(self, row: dict[str, Any]) -> Body:
        signature = signature_of(row, self._certain)
        try:
            header, schema = self._known.get(signature) or self._learn(signature)
        except ValueError as error:
            return error
        block = io.BytesIO()
        fastavro.schemaless_writer(block, schema, row)
        record = block.getvalue()
        return b"".join((header, _long(1), _long(len(record)), record, _SYNC_MARKER))

    def _learn(self, signature: Signature) -> tuple[bytes, Any]:
        if len(self._known) >= _SCHEMAS:
            self._known.clear()
        schema = fastavro.parse_schema(schema_of(signature))
        header = io.BytesIO()
        fastavro.writer(header, schema, [], sync_marker=_SYNC_MARKER)
        self._known[signature] = header.getvalue(), schema
        return self._known[signature]


def _long(number: int) -> bytes:
    """Return a non-negative number as Avro's long: zigzag, then base 128 with the lowest digits first."""
    number <<= 1
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
