"""What names mean: between double quotes, of sources, of columns nobody selected, and among invisible characters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.streams import Events, program, run, run_log
from tests.sql.compiling import compile_query
from tidegate.ordering import Policy
from tidegate.sql import QueryError
from tidegate.sql.lint import lint
from tidegate.sql.plan.explain import explain


def notices(sql: str, **options: Any) -> list[tuple[int, str]]:
    return [(found.column, found.message) for found in lint(compile_query(sql, **options))]


# Double quotes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quoted", "plain"),
    [
        ('SELECT a INTO "out" FROM "in put" AS "i"', "SELECT a INTO out FROM [in put] AS i"),
        ('SELECT "i"."a b", i."c"."d" FROM i', "SELECT i.[a b], i.c.d FROM i"),
        ('SELECT a FROM i TIMESTAMP BY "t" OVER "k"', "SELECT a FROM i TIMESTAMP BY t OVER k"),
        ('SELECT a FROM i PARTITION BY "PartitionId"', "SELECT a FROM i PARTITION BY PartitionId"),
        (
            'SELECT "k", COUNT(*) AS "n" FROM i GROUP BY "k", TumblingWindow(second, 5) HAVING "n" > 1',
            "SELECT k, COUNT(*) AS n FROM i GROUP BY k, TumblingWindow(second, 5) HAVING n > 1",
        ),
        (
            'WITH "s" AS (SELECT x FROM i) '
            'SELECT "s"."x" FROM "s" JOIN "j" ON DATEDIFF(second, "s", "j") BETWEEN 0 AND 1',
            "WITH s AS (SELECT x FROM i) SELECT s.x FROM s JOIN j ON DATEDIFF(second, s, j) BETWEEN 0 AND 1",
        ),
        ('CREATE TABLE "i" ("a" bigint); SELECT "a" FROM "i"', "CREATE TABLE i (a bigint); SELECT a FROM i"),
        ('SELECT e.ArrayValue AS "v" FROM i CROSS APPLY GetElements("x") AS "e"',
         "SELECT e.ArrayValue AS v FROM i CROSS APPLY GetArrayElements(x) AS e"),
        ('SELECT "a" + UPPER("b") AS c FROM i WHERE "a" > 5', "SELECT a + UPPER(b) AS c FROM i WHERE a > 5"),
        ('SELECT GetRecordPropertyValue(r, "[my][Field]") AS a FROM i',
         "SELECT GetRecordPropertyValue(r, '[my][Field]') AS a FROM i"),
        ('SELECT GetMetadataPropertyValue(i, "EventId") AS a FROM i',
         "SELECT GetMetadataPropertyValue(i, 'EventId') AS a FROM i"),
        ('SELECT a FROM i WHERE s = "WA" AND s IN ("a", "b") AND s LIKE "a!%" ESCAPE "!" AND s BETWEEN "a" AND "b"',
         "SELECT a FROM i WHERE s = 'WA' AND s IN ('a', 'b') AND s LIKE 'a!%' ESCAPE '!' AND s BETWEEN 'a' AND 'b'"),
        ('SELECT CASE WHEN s = "a" THEN "A" ELSE "B" END AS l, CASE s WHEN "a" THEN 1 END AS n FROM i',
         "SELECT CASE WHEN s = 'a' THEN 'A' ELSE 'B' END AS l, CASE s WHEN 'a' THEN 1 END AS n FROM i"),
        ('WITH s AS (SELECT x, A FROM i) SELECT CASE x WHEN 1 THEN "A" ELSE "B" END AS l FROM s',
         "WITH s AS (SELECT x, A FROM i) SELECT CASE x WHEN 1 THEN A ELSE 'B' END AS l FROM s"),
        ('WITH s AS (SELECT x FROM i) SELECT x, "no field" AS y FROM s',
         "WITH s AS (SELECT x FROM i) SELECT x, 'no field' AS y FROM s"),
        ('SELECT "a group" AS g, COUNT(*) AS n FROM i GROUP BY TumblingWindow(second, 5)',
         "SELECT 'a group' AS g, COUNT(*) AS n FROM i GROUP BY TumblingWindow(second, 5)"),
        ('SELECT "" AS e, a FROM i', "SELECT '' AS e, a FROM i"),
        ('SELECT AnomalyDetection_SpikeAndDip(v, 95, 60, "spikes") OVER (LIMIT DURATION(minute, 1)) AS s FROM i',
         "SELECT AnomalyDetection_SpikeAndDip(v, 95, 60, 'spikes') OVER (LIMIT DURATION(minute, 1)) AS s FROM i"),
    ],
)  # fmt: skip
def test_a_double_quoted_name_means_what_a_name_in_brackets_or_a_text_means(quoted: str, plain: str) -> None:
    assert explain(compile_query(quoted)) == explain(compile_query(plain))


def test_a_double_quoted_field_has_its_value_and_a_warning() -> None:
    sql = 'SELECT "source", "my [Field]" AS f INTO o FROM input'
    assert run(sql, [{"source": "s", "my [Field]": 1}]) == [{"source": "s", "f": 1}]
    assert notices(sql) == [
        (8, '"source" is read as the field source'),
        (18, '"my [Field]" is read as the field my [Field]'),
    ]
    assert notices('SELECT a FROM i WHERE s = "WA"') == [(27, '"WA" is read as text')]
    assert notices('SELECT "i"."a" INTO "o" FROM "i" TIMESTAMP BY "t"') == []


def test_the_row_of_a_source_beside_apply_is_no_column_of_the_step_and_said_to_be_none() -> None:
    """Microsoft's remote monitoring reads T.Message as the message that SELECT * has: here it has its fields."""
    step = "WITH T AS (SELECT * FROM i AS Message CROSS APPLY GetArrayElements(Message.points) AS p) "
    assert notices(f"{step}SELECT T.Message.x AS x, T.p FROM T") == [
        (97, "T.Message is read as a field: SELECT * with APPLY has the fields of Message, not its row")
    ]
    assert notices(f"{step}SELECT T.x, T.p FROM T") == []


def test_a_number_in_brackets_right_after_a_column_is_a_name_and_said_to_be_one() -> None:
    (found,) = lint(compile_query("SELECT a.items[0] FROM i AS a"))
    assert (found.column, found.message) == (15, "a.items[0] is read as a.items AS [0], not as an element")
    assert found.hint == "GetArrayElement(a.items, 0)"
    assert notices("SELECT items AS [0], v [1], w[x] FROM i") == []


# Sources --------------------------------------------------------------------------------------------------------------


def test_a_qualifier_that_names_no_source_is_not_passed_over() -> None:
    assert notices("SELECT x.a, x.b, i.x.c FROM i") == [
        (8, "x is no source of this FROM: it is read as a column of i that holds records")
    ]
    (found,) = lint(compile_query("SELECT inputs.a FROM input1 AS input"))
    assert found.hint == "did you mean input?"
    assert lint(compile_query("SELECT x.a FROM i"))[0].hint == "write i.x.a if it is one"
    assert notices("CREATE TABLE i (x record); SELECT x.a FROM i") == []
    (found,) = lint(compile_query("SELECT inputs.*, payload.* FROM input1 AS input"))
    assert found.hint == "did you mean input?"
    assert notices("SELECT IoTHub.ConnectionDeviceId, i.x.a FROM i") == []
    assert notices("WITH s AS (SELECT r FROM i) SELECT r.a FROM s") == []
    assert notices("WITH s AS (SELECT s FROM i) SELECT s.* FROM s AS t") == []


@pytest.mark.parametrize(
    "source", ["iothub", "[IoTHub] AS IOTHUB", "iothub AS i", "IotHub TIMESTAMP BY IoTHub.EnqueuedTime"]
)
def test_an_input_called_iothub_does_not_hide_what_an_iot_hub_adds(source: str) -> None:
    query = compile_query(f"SELECT IoTHub.ConnectionDeviceId AS id FROM {source}")
    assert ".IoTHub.ConnectionDeviceId\n" in explain(query)
    found = next(
        found for found in lint(query) if found.message.startswith("IoTHub.ConnectionDeviceId is read as what")
    )
    assert found.hint == "write ConnectionDeviceId alone if it is a field of the body"


def test_an_input_called_iothub_keeps_its_own_fields() -> None:
    assert notices("SELECT iothub.messageId, iothub.temperature FROM iothub") == []
    assert (
        notices("CREATE TABLE iothub (ConnectionDeviceId bigint); SELECT iothub.ConnectionDeviceId FROM iothub") == []
    )
    with pytest.raises(QueryError, match="iothub is called i here"):
        compile_query("SELECT iothub.temperature FROM iothub AS i")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("WITH s AS (SELECT r FROM i) SELECT x.a FROM s", "unknown column x"),
        ("SELECT x.a FROM i JOIN j ON DATEDIFF(second, i, j) BETWEEN 0 AND 1", "there is no source x in this FROM"),
        ("SELECT i.a FROM i AS j", "i is called j here"),
        ("SELECT i.* FROM i AS j", "i is called j here"),
        ("CREATE TABLE i (a bigint); SELECT x.a FROM i", "unknown column x"),
    ],
)
def test_a_qualifier_that_cannot_be_a_record_is_refused(sql: str, message: str) -> None:
    with pytest.raises(QueryError) as refused:
        compile_query(sql)
    assert [found.message for found in refused.value.diagnostics] == [message]


def test_an_input_with_the_name_of_its_column_is_not_the_whole_event() -> None:
    rows = [{"feature": "a", "v": 1}, {"feature": "b", "v": 2}]
    events = {("Feature", "0"): Events.of(rows)}

    def results(sql: str) -> list[dict[str, Any]]:
        return [row for _, row in run_log(program(sql), events, Policy.none())["o"]]

    assert results("SELECT feature INTO o FROM Feature") == [{"feature": "a"}, {"feature": "b"}]
    assert results("SELECT UPPER(feature) AS f INTO o FROM Feature WHERE feature = 'a'") == [{"f": "A"}]
    grouped = "SELECT feature, COUNT(*) AS n INTO o FROM Feature GROUP BY feature, TumblingWindow(day, 1)"
    assert sorted(row["feature"] for row in results(grouped)) == ["a", "b"]
    assert [message for _, message in notices("SELECT feature INTO o FROM Feature")] == [
        "feature is read as the column feature of Feature"
    ]
    # Where whole rows are documented, they stay whole.
    assert results("SELECT GetType(feature) AS t INTO o FROM Feature")[0] == {"t": "record"}
    assert notices("SELECT udf.f(i) AS f, GetRecordPropertyValue(i, 'a') AS a FROM i", functions=["udf.f"]) == []


def test_a_registered_function_may_be_called_without_its_prefix() -> None:
    """As the articles of 2016 do."""
    sql = "SELECT sentiment(text) AS s FROM i"
    assert explain(compile_query(sql, functions=["udf.Sentiment"])) == explain(
        compile_query("SELECT udf.sentiment(text) AS s FROM i")
    )
    assert notices(sql, functions=["udf.sentiment"]) == [(8, "sentiment is read as the function udf.sentiment")]
    with pytest.raises(QueryError, match="there is no function sentiment"):
        compile_query(sql, functions=[])


# Columns that a step is read by, and does not select ------------------------------------------------------------------

PARTITIONED = (
    "WITH s AS (SELECT COUNT(*) AS n, k FROM input PARTITION BY PartitionId "
    "GROUP BY TumblingWindow(second, 10), k, PartitionId) "
)


def test_a_step_may_be_read_by_a_partition_that_it_does_not_select() -> None:
    sql = (
        PARTITIONED
        + "SELECT SUM(n) AS n, k, PartitionId INTO o FROM s PARTITION BY PartitionId "
        + "GROUP BY TumblingWindow(second, 10), k, PartitionId SELECT * INTO p FROM s"
    )
    log = {("input", str(place)): Events.of([{"k": "a"}] * (place + 1)) for place in range(2)}
    results = run_log(program(sql), log, Policy.none())
    assert sorted((row["PartitionId"], row["n"]) for _, row in results["o"]) == [(0, 1), (1, 2)]
    assert [sorted(row) for _, row in results["p"]] == [["k", "n"], ["k", "n"]]
    plain = "WITH s AS (SELECT v FROM input PARTITION BY PartitionId) "
    lag = plain + "SELECT v, LAG(v) OVER (LIMIT DURATION(hour, 1)) AS b INTO o FROM s PARTITION BY PartitionId"
    log = {("input", str(place)): Events.of([{"v": place}, {"v": place + 10}]) for place in range(2)}
    results = run_log(program(lag), log, Policy.none())
    assert sorted((row["v"], row["b"]) for _, row in results["o"] if row["b"] is not None) == [(10, 0), (11, 1)]


def test_a_step_that_loses_its_partition_cannot_be_read_by_it() -> None:
    sql = PARTITIONED.replace(", k, PartitionId)", ", k)") + "SELECT n INTO o FROM s PARTITION BY PartitionId"
    with pytest.raises(QueryError, match="unknown column PartitionId"):
        compile_query(sql)


# CROSS JOIN -----------------------------------------------------------------------------------------------------------


def test_cross_join_pairs_every_event_with_all_reference_data() -> None:
    reference = {"r": [{"a": 1}, {"a": 2}]}
    sql = "SELECT i.v, r.a INTO o FROM input i CROSS JOIN r WHERE r.a <= i.v"
    assert run(sql, [{"v": 1}, {"v": 2}], reference=reference) == [
        {"v": 1, "a": 1},
        {"v": 2, "a": 1},
        {"v": 2, "a": 2},
    ]
    with pytest.raises(QueryError, match="CROSS JOIN takes no ON"):
        compile_query(sql.replace("WHERE", "ON"), reference_inputs=["r"])
    with pytest.raises(QueryError, match="expected APPLY or JOIN after CROSS"):
        compile_query("SELECT a FROM i CROSS j")


# Invisible characters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0xAD, 0x200E, 0x202A, 0x2066, 0xA0, 0x3000])
def test_invisible_characters_mean_nothing_outside_of_texts(code: int) -> None:
    sign = chr(code)
    sql = (
        f"{sign}SELECT{sign} {sign}UPPER{sign}({sign}a{sign}){sign} AS b,{sign}'x{sign}y' AS c{sign}, [d{sign}]"
        f" {sign}INTO o\n{sign}FROM i{sign}{sign} TIMESTAMP BY{sign} t{sign}"
    )
    plain = f"SELECT UPPER(a) AS b, 'x{sign}y' AS c, [d{sign}] INTO o FROM i TIMESTAMP BY t"
    assert explain(compile_query(sql)) == explain(compile_query(plain))


def test_an_invisible_character_in_a_word_is_left_out_and_beside_a_keyword_separates() -> None:
    assert explain(compile_query("SELECT device\u200bId FROM i")) == explain(compile_query("SELECT deviceId FROM i"))
    glued = "SELECT\u200ba\u200bINTO\u200bo\u200bFROM\u200bi\ufeffTIMESTAMP\u200bBY\u200bt"
    assert explain(compile_query(glued)) == explain(compile_query("SELECT a INTO o FROM i TIMESTAMP BY t"))


# The end of a query ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "line", "column", "length"),
    [
        ("SELECT x", 1, 8, 1),
        ("SELECT x\nFROM\n\n  ", 2, 1, 4),
        ("SELECT x FROM i WHERE [my column] =  -- nothing\n", 1, 35, 1),
        ("WITH s AS (SELECT x FROM input1", 1, 26, 6),
        ("CREATE TABLE i (a bigint);\n\n", 1, 26, 1),
    ],
)
def test_what_is_missing_at_the_end_points_at_the_last_word(sql: str, line: int, column: int, length: int) -> None:
    with pytest.raises(QueryError) as refused:
        compile_query(sql)
    found = refused.value.diagnostics[-1]
    assert (found.line, found.column, found.length) == (line, column, length)
    assert "^" * length in found.render(sql)
