"""The functions of the language: names, how many arguments of which kind, and what they give.

https://learn.microsoft.com/stream-analytics-query/built-in-functions-azure-stream-analytics

A kind says which values an argument may certainly not have (`types.refusal`): values convert at run time, so only
what can never work is refused here. An argument of kind "unit" is a date part, and becomes a Literal in its long
form.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.saql.plan.nodes import Type


@dataclass(frozen=True, slots=True)
class Signature:
    """`kinds` of the arguments, the last one repeating up to `most`; None for `most` is any number."""

    kinds: tuple[str, ...]
    least: int
    most: int | None
    result: Type = Type.ANY

    def kind(self, index: int) -> str:
        return self.kinds[min(index, len(self.kinds) - 1)] if self.kinds else "any"


def _of(kinds: str, result: Type = Type.ANY, optional: int = 0, more: bool = False) -> Signature:
    words = tuple(kinds.split())
    return Signature(words, len(words) - optional, None if more else len(words), result)


_TEXT, _INT, _FLOAT, _TIME = Type.NVARCHAR, Type.BIGINT, Type.FLOAT, Type.DATETIME

SCALAR: dict[str, Signature] = {
    # Conversion
    "gettype": _of("any", _TEXT),
    # Date and time
    "dateadd": _of("unit integer datetime", _TIME),
    "datediff": _of("unit datetime datetime", _INT),
    "datename": _of("unit datetime", _TEXT),
    "datepart": _of("unit datetime", _INT),
    "day": _of("datetime", _INT),
    "month": _of("datetime", _INT),
    "year": _of("datetime", _INT),
    "datetimefromparts": _of("integer integer integer integer integer integer integer", _TIME),
    # Strings
    "charindex": _of("text text integer", _INT, optional=1),
    "concat": _of("any any any", _TEXT, optional=1, more=True),
    "concat_ws": _of("any any any any", _TEXT, optional=1, more=True),
    "left": _of("text integer", _TEXT),
    "len": _of("text", _INT),
    "lower": _of("text", _TEXT),
    "ltrim": _of("text", _TEXT),
    "nchar": _of("integer", _TEXT),
    "patindex": _of("text text", _INT),
    "regexmatch": _of("text text", _INT),
    "replace": _of("text text text", _TEXT),
    "replicate": _of("text integer", _TEXT),
    "reverse": _of("text", _TEXT),
    "right": _of("text integer", _TEXT),
    "rtrim": _of("text", _TEXT),
    "space": _of("integer", _TEXT),
    "stuff": _of("text integer integer text", _TEXT),
    "substring": _of("text integer integer", _TEXT),
    "translate": _of("text text text", _TEXT),
    "trim": _of("text", _TEXT),
    "unicode": _of("text", _INT),
    "upper": _of("text", _TEXT),
    # Mathematics
    "abs": _of("number"),
    "ceiling": _of("number"),
    "exp": _of("number", _FLOAT),
    "floor": _of("number"),
    "power": _of("number number"),
    "round": _of("number integer"),
    "sign": _of("number"),
    "sqrt": _of("number", _FLOAT),
    "square": _of("number", _FLOAT),
    # NULL
    "coalesce": _of("any any", more=True),
    "nullif": _of("any any"),
    # Arrays, records, JSON
    "getarrayelement": _of("array integer"),
    "getarraylength": _of("array", _INT),
    "getrecordpropertyvalue": _of("record text"),
    "json_parse": _of("text"),
    # Metadata of the input
    "getmetadatapropertyvalue": _of("source property"),
    # Geography
    "createpoint": _of("number number", Type.RECORD),
    "createlinestring": _of("geography geography geography", Type.RECORD, optional=1, more=True),
    "createpolygon": _of("geography geography geography geography", Type.RECORD, more=True),
    "st_distance": _of("geography geography", _FLOAT),
    "st_intersects": _of("geography geography", _INT),
    "st_overlaps": _of("geography geography", _INT),
    "st_within": _of("geography geography", _INT),
}

# The functions that APPLY takes, with the columns they give.
TABLE: dict[str, tuple[str, str, str]] = {
    "getarrayelements": ("array", "ArrayIndex", "ArrayValue"),
    "getrecordproperties": ("record", "PropertyName", "PropertyValue"),
}

AGGREGATE: dict[str, Signature] = {
    "avg": _of("number", _FLOAT),
    "collect": _of("any", Type.ARRAY, optional=1),
    "collecttop": _of("count", Type.ARRAY),
    "count": _of("any", _INT, optional=1),
    "max": _of("ordered"),
    "min": _of("ordered"),
    "percentile_cont": _of("fraction", _FLOAT),
    "percentile_disc": _of("fraction", _FLOAT),
    "stdev": _of("number", _FLOAT),
    "stdevp": _of("number", _FLOAT),
    "sum": _of("number"),
    "topone": Signature((), 0, 0, Type.RECORD),
    "var": _of("number", _FLOAT),
    "varp": _of("number", _FLOAT),
}

# Aggregates that rank need ORDER BY inside their OVER.
RANKING = frozenset(["collecttop", "topone", "percentile_cont", "percentile_disc"])

# With OVER (… LIMIT DURATION …): the aggregates that the OVER, COUNT, Collect and TopOne pages allow there.
AGGREGATE_OVER = frozenset(["sum", "avg", "min", "max", "count", "collect", "collecttop", "topone"])

# Functions of the rows before, which always have LIMIT DURATION (ISFIRST has its duration as an argument).
ANALYTIC: dict[str, Signature] = {
    "lag": _of("any integer any", optional=2),
    "last": _of("any any", optional=1),
    "isfirst": _of("unit integer", _INT),
    "anomalydetection_spikeanddip": _of("number fraction integer text", Type.RECORD),
    "anomalydetection_changepoint": _of("number fraction integer", Type.RECORD),
}

WINDOWS: dict[str, str] = {
    "tumblingwindow": "TumblingWindow",
    "tumbling": "TumblingWindow",
    "hoppingwindow": "HoppingWindow",
    "hopping": "HoppingWindow",
    "slidingwindow": "SlidingWindow",
    "sliding": "SlidingWindow",
    "sessionwindow": "SessionWindow",
    "session": "SessionWindow",
    "windows": "Windows",
}

# As the documents spell them, for hints. Other names are written in capitals.
_SPELLING = {
    name.lower(): name
    for name in [
        "GetType",
        "GetArrayElement",
        "GetArrayElements",
        "GetArrayLength",
        "GetRecordProperties",
        "GetRecordPropertyValue",
        "GetMetadataPropertyValue",
        "CreatePoint",
        "CreateLineString",
        "CreatePolygon",
        "Collect",
        "CollectTop",
        "TopOne",
        "RegexMatch",
        "AnomalyDetection_SpikeAndDip",
        "AnomalyDetection_ChangePoint",
    ]
}

# Functions of T-SQL that people bring along, and what does their work here.
INSTEAD = {
    "isnull": "COALESCE(a, b)",
    "iif": "CASE WHEN … THEN … ELSE … END",
    "convert": "CAST(value AS type)",
    "try_convert": "TRY_CAST(value AS type)",
    "parse": "CAST(value AS type)",
    "getdate": "System.Timestamp()",
    "getutcdate": "System.Timestamp()",
    "sysutcdatetime": "System.Timestamp()",
    "current_timestamp": "System.Timestamp()",
    "now": "System.Timestamp()",
    "length": "LEN(text)",
    "substr": "SUBSTRING(text, start, length)",
    "ucase": "UPPER(text)",
    "ceil": "CEILING(number)",
    "mean": "AVG(number)",
    "first": "TopOne() OVER (ORDER BY …)",
    "first_value": "TopOne() OVER (ORDER BY …)",
    "last_value": "LAST(value) OVER (LIMIT DURATION(…))",
    "lead": "LAG(value) OVER (LIMIT DURATION(…)): a stream does not know what comes next",
    "row_number": "CollectTop(n) OVER (ORDER BY …)",
    "rank": "CollectTop(n) OVER (ORDER BY …)",
    "datefromparts": "DATETIMEFROMPARTS(year, month, day, hour, minute, second, millisecond)",
    "json_value": "JSON_PARSE(text) and its fields",
    "percentile": "PERCENTILE_CONT(fraction) OVER (ORDER BY …)",
    "median": "PERCENTILE_CONT(0.5) OVER (ORDER BY …)",
    "approx_count_distinct": "COUNT(DISTINCT value)",
    "count_big": "COUNT(*)",
    "stddev_pop": "STDEVP(number)",
    "stddev_samp": "STDEV(number)",
    "variance": "VAR(number)",
    "string_agg": "Collect(text): an array",
    "array_agg": "Collect(value)",
    "dense_rank": "CollectTop(n) OVER (ORDER BY …)",
    "ntile": "CollectTop(n) OVER (ORDER BY …)",
    "instr": "CHARINDEX(text, in_text)",
    "position": "CHARINDEX(text, in_text)",
    "regexp_like": "RegexMatch(text, pattern)",
    "openjson": "CROSS APPLY GetArrayElements(array) AS name",
    "string_split": "a function in Python, and CROSS APPLY GetArrayElements(udf.name(text)) AS name",
    "json_query": "JSON_PARSE(text) and its fields",
    "format": "CAST(value AS nvarchar(max)), DATENAME(unit, time) and CONCAT(…)",
    "str": "CAST(value AS nvarchar(max))",
    "date_trunc": "DATEADD(hour, DATEDIFF(hour, '2000-01-01', time), '2000-01-01')",
    "datetrunc": "DATEADD(hour, DATEDIFF(hour, '2000-01-01', time), '2000-01-01')",
    "from_unixtime": "DATEADD(second, number, '1970-01-01')",
    "unix_timestamp": "DATEDIFF(second, '1970-01-01', time)",
    "to_timestamp": "CAST(text AS datetime)",
    "newid": "GetMetadataPropertyValue(input, 'EventId')",
    "choose": "CASE index WHEN 1 THEN … END",
    "greatest": "CASE WHEN a > b THEN a ELSE b END",
    "least": "CASE WHEN a < b THEN a ELSE b END",
}


def spelling(name: str) -> str:
    """How a function is written in messages."""
    lowered = name.lower()
    return WINDOWS.get(lowered) or _SPELLING.get(lowered) or (name if "." in name else name.upper())


# All functions of the language, in lower case.
BUILT_IN = frozenset([*SCALAR, *TABLE, *AGGREGATE, *ANALYTIC, *WINDOWS])
# The prefixes that mean something.
PREFIXES = frozenset(["udf", "uda", "system"])


def every_name() -> list[str]:
    """All functions of the language as they are written, for did-you-mean."""
    tables = (SCALAR, TABLE, AGGREGATE, ANALYTIC, WINDOWS)
    return [spelling(name) for table in tables for name in table] + [
        "CAST",
        "TRY_CAST",
        "System.Timestamp",
        "System.Window",
    ]
