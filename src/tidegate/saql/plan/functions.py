"""The scalar and table functions of the language: names, how many arguments of which kind, and what they return.

https://learn.microsoft.com/stream-analytics-query/built-in-functions-azure-stream-analytics
"""

from __future__ import annotations

from tidegate.saql.plan.nodes import Type
from tidegate.saql.plan.signatures import Signature, signature

_TEXT, _INT, _FLOAT, _TIME = Type.NVARCHAR, Type.BIGINT, Type.FLOAT, Type.DATETIME

SCALAR: dict[str, Signature] = {
    # Conversion
    "gettype": signature("any", _TEXT),
    # Date and time
    "dateadd": signature("unit integer datetime", _TIME),
    "datediff": signature("unit datetime datetime", _INT),
    "datename": signature("unit datetime", _TEXT),
    "datepart": signature("unit datetime", _INT),
    "day": signature("datetime", _INT),
    "month": signature("datetime", _INT),
    "year": signature("datetime", _INT),
    "datetimefromparts": signature("integer integer integer integer integer integer integer", _TIME),
    # Strings
    "charindex": signature("text text integer", _INT, optional=1),
    "concat": signature("any any any", _TEXT, optional=1, more=True),
    "concat_ws": signature("any any any any", _TEXT, optional=1, more=True),
    "left": signature("text integer", _TEXT),
    "len": signature("text", _INT),
    "lower": signature("text", _TEXT),
    "ltrim": signature("text", _TEXT),
    "nchar": signature("integer", _TEXT),
    "patindex": signature("text text", _INT),
    "regexmatch": signature("text text", _INT),
    "replace": signature("text text text", _TEXT),
    "replicate": signature("text integer", _TEXT),
    "reverse": signature("text", _TEXT),
    "right": signature("text integer", _TEXT),
    "rtrim": signature("text", _TEXT),
    "space": signature("integer", _TEXT),
    "stuff": signature("text integer integer text", _TEXT),
    "substring": signature("text integer integer", _TEXT),
    "translate": signature("text text text", _TEXT),
    "trim": signature("text", _TEXT),
    "unicode": signature("text", _INT),
    "upper": signature("text", _TEXT),
    # Mathematics
    "abs": signature("number"),
    "ceiling": signature("number"),
    "exp": signature("number", _FLOAT),
    "floor": signature("number"),
    "power": signature("number number"),
    "round": signature("number integer"),
    "sign": signature("number"),
    "sqrt": signature("number", _FLOAT),
    "square": signature("number", _FLOAT),
    # NULL
    "coalesce": signature("any any", more=True),
    "nullif": signature("any any"),
    # Arrays, records, JSON
    "getarrayelement": signature("array integer"),
    "getarraylength": signature("array", _INT),
    "getrecordpropertyvalue": signature("record text"),
    "json_parse": signature("text"),
    # Metadata of the input
    "getmetadatapropertyvalue": signature("source property"),
    # Geography
    "createpoint": signature("number number", Type.RECORD),
    "createlinestring": signature("geography geography geography", Type.RECORD, optional=1, more=True),
    "createpolygon": signature("geography geography geography geography", Type.RECORD, more=True),
    "st_distance": signature("geography geography", _FLOAT),
    "st_intersects": signature("geography geography", _INT),
    "st_overlaps": signature("geography geography", _INT),
    "st_within": signature("geography geography", _INT),
}

# The functions that APPLY takes, with the columns they give.
TABLE: dict[str, tuple[str, str, str]] = {
    "getarrayelements": ("array", "ArrayIndex", "ArrayValue"),
    "getrecordproperties": ("record", "PropertyName", "PropertyValue"),
}
