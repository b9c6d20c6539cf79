"""Scalar functions: how one is applied to vectors, and the table of all of them.

A function is written for one row's values, or for whole vectors where that pays. A function of one row is computed
once for each different set of arguments in a batch. Unless it says otherwise, it is NULL when an argument is, and a
failure when an argument is one. Arguments convert as `conversions` has it: "text", "number", "integer", "datetime";
"record" and "array" do not convert; "any" stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tidegate.engine.expressions import functions_date, functions_geo, functions_math, functions_record, functions_text
from tidegate.engine.expressions.operators import strictly
from tidegate.engine.values.conversions import as_ordered, to_datetimes, to_integers, to_numbers, to_texts
from tidegate.engine.values.grouping import group
from tidegate.engine.values.vectors import Kind, Reason, Vector

VectorFunction = Callable[[Sequence[Vector]], Vector]


def nested_only(kind: Kind) -> Callable[[Vector], Vector]:
    """Takes a vector to one of records or arrays alone: anything else that is not NULL is a failure."""

    def only(vector: Vector) -> Vector:
        wrong = ~np.isin(vector.kinds, (Kind.NULL, Kind.ERROR, kind))
        if not wrong.any():
            return vector
        kinds = np.where(wrong, np.uint8(Kind.ERROR), vector.kinds)
        return vector.with_kinds(kinds, ints=np.where(wrong, np.int64(Reason.OPERAND_TYPE), vector.int_values()))

    return only


_CONVERT: dict[str, Callable[[Vector], Vector]] = {
    "text": to_texts,
    "number": to_numbers,
    "integer": to_integers,
    "datetime": to_datetimes,
    "record": nested_only(Kind.RECORD),
    "array": nested_only(Kind.ARRAY),
    "any": lambda vector: vector,
}


def _converted(kinds: Sequence[str], args: Sequence[Vector]) -> list[Vector]:
    return [_CONVERT[kinds[min(index, len(kinds) - 1)]](arg) for index, arg in enumerate(args)]


def by_vectors(kinds: str, function: Callable[..., Vector]) -> VectorFunction:
    """A function of whole vectors; what it gives where an argument is NULL or a failure does not matter."""
    words = kinds.split()

    def apply(args: Sequence[Vector]) -> Vector:
        converted = _converted(words, args)
        return strictly(function(*converted), converted)

    return apply


def by_rows(kinds: str, function: Callable[..., Any], *, nulls: bool = False) -> VectorFunction:
    """A function of one row's values, None for NULL where it takes ``nulls``."""
    words = kinds.split()

    def apply(args: Sequence[Vector]) -> Vector:
        converted = _converted(words, args)
        length = len(converted[0])
        usable = np.ones(length, dtype=np.bool_)
        for arg in converted:
            usable &= arg.kinds != Kind.ERROR
            if not nulls:
                usable &= arg.kinds != Kind.NULL
        rows = np.flatnonzero(usable)
        given = [arg.take(rows) for arg in converted] if len(rows) < length else converted
        groups = group(len(rows), given)
        distinct = [arg.take(groups.firsts).to_list() for arg in given]
        results = Vector.of([function(*values) for values in zip(*distinct, strict=True)]).take(groups.codes)
        if len(rows) == length:
            return results
        where = np.full(length, len(rows), dtype=np.int64)
        where[rows] = np.arange(len(rows))
        spread = Vector.concat([results, Vector.nulls(1)]).take(where)
        return strictly(spread, [arg.with_kinds(_failures_only(arg)) for arg in converted] if nulls else converted)

    return apply


def _failures_only(vector: Vector) -> Any:
    return np.where(vector.kinds == Kind.ERROR, np.uint8(Kind.ERROR), np.uint8(Kind.BIGINT))


def unit_function(name: str, unit: str) -> VectorFunction:
    """DATEADD, DATEDIFF, DATENAME or DATEPART of one unit."""
    match name:
        case "dateadd":
            return by_vectors("integer datetime", lambda number, time: functions_date.add(unit, number, time))
        case "datediff":
            return by_vectors("datetime datetime", lambda start, end: functions_date.difference(unit, start, end))
        case "datename":
            return by_vectors("datetime", lambda time: functions_date.name(unit, time))
        case _:
            return by_vectors("datetime", lambda time: functions_date.part(unit, time))


UNIT_FUNCTIONS = frozenset({"dateadd", "datediff", "datename", "datepart"})

AS_ORDERED = "as_ordered"
"""A function that queries do not have: text that is a datetime or a number as that, all else unchanged."""

FUNCTIONS: dict[str, VectorFunction] = {
    AS_ORDERED: lambda args: as_ordered(args[0]),
    # Conversion, NULL, types
    "gettype": lambda args: functions_record.type_names(args[0]),
    # Date and time
    "day": by_vectors("datetime", lambda time: functions_date.part("day", time)),
    "month": by_vectors("datetime", lambda time: functions_date.part("month", time)),
    "year": by_vectors("datetime", lambda time: functions_date.part("year", time)),
    "datetimefromparts": by_rows("integer", functions_date.from_parts),
    # Strings
    "charindex": by_rows("text text integer", functions_text.charindex),
    "concat": by_rows("text", functions_text.concat, nulls=True),
    "concat_ws": by_rows("text", functions_text.concat_ws, nulls=True),
    "left": by_rows("text integer", functions_text.left),
    "len": by_vectors("text", functions_text.length),
    "lower": by_vectors("text", functions_text.lower),
    "ltrim": by_vectors("text", functions_text.ltrim),
    "nchar": by_rows("integer", functions_text.nchar),
    "patindex": by_rows("text text", functions_text.patindex),
    "regexmatch": by_rows("text text", functions_text.regexmatch),
    "replace": by_rows("text text text", functions_text.replace),
    "replicate": by_rows("text integer", functions_text.replicate),
    "reverse": by_rows("text", functions_text.reverse),
    "right": by_rows("text integer", functions_text.right),
    "rtrim": by_vectors("text", functions_text.rtrim),
    "space": by_rows("integer", functions_text.space),
    "stuff": by_rows("text integer integer text", functions_text.stuff),
    "substring": by_rows("text integer integer", functions_text.substring),
    "translate": by_rows("text text text", functions_text.translate),
    "trim": by_vectors("text", functions_text.trim),
    "unicode": by_rows("text", functions_text.unicode),
    "upper": by_vectors("text", functions_text.upper),
    "like": by_rows("text", functions_text.like),
    # Mathematics
    "abs": by_vectors("number", functions_math.absolute),
    "ceiling": by_vectors("number", functions_math.ceiling),
    "exp": by_vectors("number", functions_math.exp),
    "floor": by_vectors("number", functions_math.floor),
    "power": by_rows("number number", functions_math.power),
    "round": by_rows("number integer", functions_math.round_half_away),
    "sign": by_vectors("number", functions_math.sign),
    "sqrt": by_vectors("number", functions_math.sqrt),
    "square": by_vectors("number", functions_math.square),
    # Geography
    "createpoint": by_rows("number", functions_geo.create_point),
    "createlinestring": by_rows("any", functions_geo.create_line_string),
    "createpolygon": by_rows("any", functions_geo.create_polygon),
    "st_distance": by_rows("any", functions_geo.distance),
    "st_intersects": by_rows("any", functions_geo.intersects),
    "st_overlaps": by_rows("any", functions_geo.overlaps),
    "st_within": by_rows("any", functions_geo.within),
    # Arrays, records, JSON
    "getarrayelement": by_rows("array integer", functions_record.array_element),
    "getarraylength": by_rows("array", len),
    "getrecordpropertyvalue": by_rows("record text", functions_record.property_value),
    "json_parse": by_rows("any", functions_record.json_parse),
}
