"""The Avro schema of a row: bigint is long, float is double, bit is boolean, text and times are string.

So says the service's table (query reference, "Data Types"): a datetime is written as text in ISO 8601. Every field may
be null. Records and arrays have schemas of what they hold. The items of an array are a union of their types, in which
all records are one type with the fields of all.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

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
