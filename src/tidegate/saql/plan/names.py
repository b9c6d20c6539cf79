"""The names of functions that are not in a catalog, and what to write instead of those of other dialects."""

from __future__ import annotations

from tidegate.saql.plan.aggregates import AGGREGATE, ANALYTIC
from tidegate.saql.plan.windows import WINDOWS

# As the documents spell them, for hints. Other names are written in capitals.
_SPELLING = {
    name.lower(): name
    for name in [
        "Collect",
        "CollectTop",
        "TopOne",
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
BUILT_IN = frozenset([*AGGREGATE, *ANALYTIC, *WINDOWS])
# The prefixes that mean something.
PREFIXES = frozenset(["udf", "uda", "system"])


def every_name() -> list[str]:
    """All functions of the language as they are written, for did-you-mean."""
    tables = (AGGREGATE, ANALYTIC, WINDOWS)
    return [spelling(name) for table in tables for name in table] + [
        "CAST",
        "TRY_CAST",
        "System.Timestamp",
        "System.Window",
    ]
