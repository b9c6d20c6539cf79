"""What a query may say, and hardly ever means."""

import pytest

from tests.sql.compiling import compile_query
from tidegate.engine.decoding.metadata import (
    DEVICE_PROPERTIES,
    EVENT_HUB_PROPERTIES,
    ROUTED_PROPERTIES,
    is_known_property,
)
from tidegate.sql.lint import lint, unregistered
from tidegate.sql.plan.names import METADATA_PROPERTIES

SESSION = "one session for every i.k: an event of any of them keeps it open for all"
NULL = "a comparison with NULL is never true"
PROCESSED = "EventProcessedUtcTime is the time of processing in the service, and the arrival here"
GAPS = "events between these windows are in none of them: the hop is longer than the window"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT k, COUNT(*) FROM i GROUP BY k, SessionWindow(second, 5, 60)", [(39, SESSION)]),
        ("SELECT k FROM i GROUP BY k, SessionWindow(second, 5, 60) OVER (PARTITION BY K)", []),
        ("SELECT k FROM i GROUP BY k, l, SessionWindow(second, 5, 60) OVER (PARTITION BY k)", []),
        ("SELECT COUNT(*) FROM i GROUP BY SessionWindow(second, 5, 60)", []),
        (
            "SELECT System.Window().Id, k FROM i GROUP BY k, Windows(Tumbling(second, 5), Session(second, 5, 60))",
            [(78, SESSION)],
        ),
        ("SELECT COUNT(*) FROM i GROUP BY HoppingWindow(second, 5, 10)", [(33, GAPS)]),
        ("SELECT COUNT(*) FROM i GROUP BY HoppingWindow(second, 5, 5)", []),
        ("SELECT x FROM i WHERE x = NULL", [(23, NULL)]),
        ("SELECT CASE WHEN NULL <> x THEN 1 ELSE 0 END AS y FROM i WHERE x IS NOT NULL", [(18, NULL)]),
        ("SELECT LAG(x) OVER (LIMIT DURATION(second, 5) WHEN y <> NULL) AS y FROM i", [(52, NULL)]),
        ("SELECT a.x FROM a JOIN b ON DATEDIFF(second, a, b) = 0 AND a.x > NULL", [(60, NULL)]),
        ("SELECT SUM(CASE WHEN x = NULL THEN 1 END) AS y FROM i GROUP BY System.Timestamp()", [(22, NULL)]),
        ("WITH s AS (SELECT x FROM i WHERE x = NULL) SELECT x INTO a FROM s SELECT x INTO b FROM s", [(34, NULL)]),
        ("SELECT EventProcessedUTCTime AS t, i.EventEnqueuedUtcTime FROM i", [(8, PROCESSED)]),
        ("SELECT COALESCE(x, NULL) AS y FROM i WHERE x = 1", []),
    ],
)
def test_what_is_doubtful(sql: str, expected: list[tuple[int, str]]) -> None:
    assert [(found.column, found.message) for found in lint(compile_query(sql))] == expected


def alias(name: str) -> str:
    return f"{name} is read as a column of what FROM reads, not as the {name} that this SELECT makes"


@pytest.mark.parametrize(
    ("sql", "at", "message"),
    [
        ("SELECT x * 2 AS y FROM i WHERE y > 1", 32, alias("y")),
        ("SELECT x * 2 AS y, y + 1 AS z FROM i", 20, alias("y")),
        ("SELECT x * 2 AS y, ABS(CASE WHEN y IN (1, 2) THEN 1 END) AS z FROM i", 34, alias("y")),
        ("SELECT x AS y FROM i HAVING y BETWEEN 1 AND 2", 29, alias("y")),
        ("SELECT x AS y, LAG(y) OVER (LIMIT DURATION(hour, 1)) AS p FROM i", 20, alias("y")),
        ("SELECT x AS y, LAG(x) OVER (PARTITION BY y LIMIT DURATION(hour, 1)) AS p FROM i", 42, alias("y")),
        ("SELECT COUNT(*) AS n FROM i GROUP BY n, TumblingWindow(hour, 1)", 38, alias("n")),
        ("SELECT System.Timestamp() AS t, COUNT(*) AS n FROM i GROUP BY t, TumblingWindow(hour, 1)", 63, alias("t")),
        ("SELECT AVG(t) AS a, MAX(a) AS m FROM i GROUP BY TumblingWindow(hour, 1)", 25, alias("a")),
        ("SELECT b AS c, e.ArrayValue AS v FROM i CROSS APPLY GetArrayElements(c) AS e", 70, alias("c")),
        (
            "SELECT CURRENT_TIMESTAMP AS t FROM i",
            8,
            "CURRENT_TIMESTAMP is no word of this language: it is read as a column",
        ),
        ("SELECT 'a' - 1 AS b FROM i", 8, "the text 'a' is no number: this fails for every row"),
        ("SELECT 1 + 'a' AS b FROM i", 8, "the text 'a' is no number: this fails for every row"),
        ("SELECT b - '5 km' AS b FROM i", 8, "the text '5 km' is no number: this fails for every row"),
        ("SELECT x - 1 + ' km' AS b FROM i", 8, "the text ' km' is no number: this fails for every row"),
        (
            "SELECT 'n: ' + COUNT(*) AS n FROM i GROUP BY TumblingWindow(hour, 1)",
            8,
            "the text 'n: ' is no number: this fails for every row",
        ),
        ("SELECT DATEADD(second, x, '1970-01-01') AS t FROM i TIMESTAMP BY t", 66, alias("t")),
        ("SELECT LOWER(x) AS k FROM i TIMESTAMP BY t OVER k", 49, alias("k")),
        ("SELECT x % 0 AS b FROM i", 8, "a division by zero fails for every row"),
        ("SELECT x FROM i WHERE x IN (1, NULL)", 23, "a NULL in IN is equal to nothing"),
        ("SELECT x FROM i WHERE 1 = 2", 23, "this compares constants: it is the same for every row"),
        ("SELECT x FROM i WHERE x = 1 AND x = 2", 33, "i.x cannot be 1 and 2: no row has both"),
        ("SELECT x FROM i WHERE x > 5 AND y = 1 AND X < 3", 23, "i.x cannot be above 5 and below 3: no row is"),
        ("SELECT x FROM i WHERE x <> 'a' OR x <> 'b'", 35, "every i.x is unlike one of these"),
        (
            "SELECT x FROM i WHERE CAST(x AS bigint) = 'one'",
            23,
            "a bigint is compared with the text 'one', which is no number",
        ),
        (
            "SELECT x FROM i WHERE System.Timestamp() > 'noon'",
            23,
            "a datetime is compared with the text 'noon', which is no time",
        ),
        ("SELECT x FROM i WHERE LEN(x) = 'x'", 23, "a bigint is compared with the text 'x', which is no number"),
        (
            "SELECT x FROM i WHERE CAST(x AS bigint) IN (1, 'two')",
            23,
            "a bigint is compared with the text 'two', which is no number",
        ),
        (
            "SELECT x FROM i WHERE CAST(x AS datetime) BETWEEN 'noon' AND '2026-01-31T12:00:00Z'",
            23,
            "a datetime is compared with the text 'noon', which is no time",
        ),
        (
            "SELECT CASE CAST(x AS bit) WHEN 'on' THEN 1 END AS y FROM i",
            33,
            "a bit is compared with the text 'on', which is no bit",
        ),
        (
            "SELECT CASE System.Timestamp() WHEN 5 THEN 1 END AS y FROM i",
            37,
            "a datetime and a bigint cannot be compared: this option never matches",
        ),
        (
            "SELECT k, COUNT(*) AS n FROM i GROUP BY k, TumblingWindow(hour, 1) HAVING n > 'many'",
            75,
            "a bigint is compared with the text 'many', which is no number",
        ),
        (
            "WITH s AS (SELECT CAST(x AS float) AS x FROM i) SELECT x FROM s WHERE 'hot' < x",
            71,
            "a float is compared with the text 'hot', which is no number",
        ),
        ("SELECT x FROM i WHERE x BETWEEN 5 AND 3", 23, "nothing is between 5 and 3"),
        ("SELECT x FROM i WHERE x NOT LIKE NULL", 23, "LIKE with NULL is never true"),
        ("SELECT a.x FROM a JOIN b ON a.k = A.K AND DATEDIFF(hour, a, b) = 0", 29, "a.k is compared with itself"),
        (
            "SELECT GetMetadataPropertyValue(i, '[EventHub].[Ofset]') AS o FROM i",
            36,
            "there is no property [EventHub].[Ofset]: it is NULL for every event",
        ),
        (
            "WITH a AS (SELECT * FROM i), b AS (SELECT * FROM a) SELECT * INTO o FROM i",
            6,
            "no output reads the step a: nothing becomes of it",
        ),
    ],
)
def test_what_cannot_mean_what_it_says(sql: str, at: int, message: str) -> None:
    found = lint(compile_query(sql))
    assert (found[0].column, found[0].message) == (at, message)
    assert found[0].hint


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT CAST(x AS float) AS x FROM i WHERE x > 1",
        "SELECT i.x AS x, COALESCE(y, 0) AS y FROM i WHERE x = 1 AND y > 0",
        "SELECT System.Timestamp() AS t, x FROM i TIMESTAMP BY t WHERE t IS NOT NULL",
        "SELECT DATEPART(hour, t) AS hour, DATEADD(hour, 1, t) AS later FROM i",
        "SELECT COUNT(*) AS minute FROM i GROUP BY TumblingWindow(minute, 5)",
        "SELECT COUNT(*) AS n FROM i GROUP BY TumblingWindow(minute, 5) HAVING n > 3",
        "SELECT System.Timestamp() AS t, MAX(t) AS u, MIN(x) AS x, MAX(x) AS y FROM i GROUP BY TumblingWindow(hour, 1)",
        "SELECT a.x AS b, b.x AS c FROM a JOIN b ON DATEDIFF(second, a, b) BETWEEN 0 AND 1",
        "SELECT x AS y FROM i WHERE i.y = 1",
        "WITH s AS (SELECT x AS y FROM i) SELECT y AS z FROM s WHERE y = 1",
        "CREATE TABLE i (CURRENT_TIMESTAMP datetime); SELECT CURRENT_TIMESTAMP FROM i",
        "SELECT [CURRENT_TIMESTAMP] FROM i",
        "SELECT x + ' km' AS d, '3' - 1 AS e, 'a' + 'b' AS f FROM i",
        "SELECT x FROM i WHERE 1 = 1 AND x = 1 AND y = 2",
        "SELECT x FROM i WHERE x = 1 AND x = '1' AND x > 0 AND x < 5",
        "SELECT x FROM i WHERE x <> 1 AND x <> 2 OR y <> 1",
        "SELECT x FROM i WHERE x = 'a' AND x = 'A' OR y <> 'b' OR y <> 'B'",
        "SELECT x FROM i WHERE CAST(x AS bit) = 'TRUE' AND CAST(y AS bigint) = '7' AND LEN(z) IN ('1', 2)",
        "SELECT x FROM i WHERE System.Timestamp() > '2026-01-31' AND x BETWEEN 3 AND 5 AND y BETWEEN 'b' AND 'a'",
        "SELECT x FROM i WHERE x = y AND LOWER(x) = x",
        "SELECT t AS s, DATEADD(hour, 1, t) AS t FROM i TIMESTAMP BY t",
        "SELECT GetMetadataPropertyValue(i, '[User].[a.b]') AS a, GetMetadataPropertyValue(i, 'User') AS b FROM i",
        "SELECT GetMetadataPropertyValue(i, '[IoTHub].[ConnectionDeviceId]') AS a FROM i",
        "WITH a AS (SELECT * FROM i), b AS (SELECT * FROM a) SELECT * FROM b UNION SELECT * FROM (SELECT * FROM a) d",
    ],
)
def test_what_is_well_said(sql: str) -> None:
    assert lint(compile_query(sql)) == []


def test_the_properties_that_lint_knows_are_those_that_the_engine_reads() -> None:
    assert all(map(is_known_property, METADATA_PROPERTIES))
    read = {f"EventHub.{name}" for name in EVENT_HUB_PROPERTIES} | {f"IoTHub.{name}" for name in DEVICE_PROPERTIES}
    read |= {f"{prefix}{name}" for prefix in ("EventHub.IoT", "IoTHub.") for name in ROUTED_PROPERTIES}
    assert read <= set(METADATA_PROPERTIES)


def test_functions_of_a_query_alone_are_named_once() -> None:
    sql = "SELECT udf.nope(x) AS a, 1 + UDF.Nope(y) AS b INTO o FROM i SELECT uda.sum2(x) AS s INTO p FROM i "
    found = unregistered(compile_query(sql + "GROUP BY TumblingWindow(second, 1)"))
    assert [(one.column, one.length) for one in found] == [(8, 8), (68, 8)]
