"""The columns of an output for Spark; no Spark is started."""

from __future__ import annotations

import pickle
from typing import Any, cast

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from tidegate.connectors.model.errors import JobError, OutputError
from tidegate.engine import CATALOG, Program, ResultRows, Vector
from tidegate.ordering import parse_time
from tidegate.spark.queries.result_schema import ResultSchema, declared_schema, derived_schema, needs_samples
from tidegate.sql import compile_query
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.nodes import Type

NOON = parse_time("2026-01-31T12:00:00Z")


def program_of(select: str) -> Program:
    return Program.prepare(compile_query(f"SELECT {select} INTO result FROM input", catalog=CATALOG))


def rows(*records: dict[str, Any], star: bool = False) -> ResultRows:
    timestamps = np.arange(len(records), dtype=np.int64) + NOON
    if star:
        return ResultRows("result", timestamps, (None,), (Vector.of([*records]),))
    names = tuple(records[0])
    return ResultRows("result", timestamps, names, tuple(Vector.of([one[name] for one in records]) for name in names))


def derived(select: str, *samples: ResultRows) -> ResultSchema:
    return derived_schema(program_of(select), "result", samples, "sql")[1]


def declared(select: str, struct: StructType, **given: Any) -> ResultSchema:
    relation = program_of(select).query.outputs[0].relation
    return declared_schema(cast(SparkSession, None), struct, relation, "result", "sql", **given)[1]


def struct(**columns: Any) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in columns.items()])


def test_types_follow_from_the_query_where_it_says_them_and_else_from_results() -> None:
    select = "CAST(a AS bigint) AS a, System.Timestamp() AS t, b"
    schema = derived(select, rows({"a": 1, "t": None, "b": {"x": 1.5}}))
    assert schema.shown == ("bigint", "timestamp", "struct<x:double>")
    assert derived(select).shown == ("bigint", "timestamp", "string")
    assert not needs_samples(program_of("CAST(a AS bigint) AS a").query.outputs[0].relation)
    assert needs_samples(program_of("a").query.outputs[0].relation)
    assert needs_samples(program_of("*").query.outputs[0].relation)


def test_types_of_input_columns_are_used_where_they_are_known() -> None:
    sql = """
    WITH sums AS (SELECT k, SUM(v) AS v, AVG(v) AS mean FROM input WHERE v > 0 GROUP BY k, TumblingWindow(second, 10))
    SELECT s.k, i.t, s.v, s.mean, LAG(s.v) OVER (LIMIT DURATION(minute, 1)) AS before INTO result
    FROM sums AS s JOIN input AS i ON s.k = i.k AND DATEDIFF(second, s, i) BETWEEN 0 AND 5
    """
    types = {"k": Type.NVARCHAR, "v": Type.BIGINT, "t": Type.DATETIME}

    def known(mention: plan.Input, name: str) -> Type:
        return types.get(name, Type.ANY) if mention.name == "input" else Type.ANY

    program = Program.prepare(compile_query(sql, catalog=CATALOG))
    schema = derived_schema(program, "result", (), "sql", known)[1]
    assert schema.shown == ("string", "timestamp", "bigint", "double", "string")
    assert derived_schema(program, "result", (), "sql")[1].shown == ("string", "string", "string", "double", "string")


def test_the_columns_of_a_star_are_those_of_the_sample() -> None:
    schema = derived("*", rows({"a": 1}, {"b": "x", "A": 2.5}, star=True))
    assert (schema.names, schema.shown) == (("a", "b"), ("double", "string"))
    with pytest.raises(JobError, match=r"selects \*, and no result"):
        derived("*")


def test_rows_become_a_batch() -> None:
    schema = pickle.loads(pickle.dumps(derived("a, b", rows({"a": 1, "b": ["x"]}))))
    batch = schema.batch(rows({"a": None, "b": ["y", None]}, {"a": 2.0, "b": None}))
    assert batch.to_pylist() == [{"a": None, "b": ["y", None]}, {"a": 2, "b": None}]
    assert schema.batch(rows({"B": None, "a": 7})).to_pylist() == [{"a": 7, "b": None}]


def test_a_value_that_does_not_fit_is_an_error_that_says_what_to_do() -> None:
    schema = derived("a, b", rows({"a": 1, "b": "x"}))
    with pytest.raises(OutputError) as raised:
        schema.batch(rows({"a": 1, "b": "x"}, {"a": 8.5, "b": "x"}))
    assert str(raised.value) == (
        "output 'result', column 'a': a float does not go into a column of type bigint without losing its fraction; "
        "got 8.5 at 2026-01-31T12:00:00.0000001Z, expected bigint (derived from the query and its first results). "
        'Pass schema="a double, b string" or whatever fits, or CAST in the query'
    )


def test_a_field_that_the_sample_lacked_is_an_error() -> None:
    schema = derived("*", rows({"a": 1}, star=True))
    assert schema.batch(rows({"a": 1, "c": None}, star=True)).to_pylist() == [{"a": 1}]
    with pytest.raises(OutputError, match="a result has a field 'c'"):
        schema.batch(rows({"a": 1, "c": 2}, star=True))


def test_a_declared_schema_leaves_out_what_a_star_has_beyond_it() -> None:
    schema = declared("*", struct(a=LongType(), missing=StringType()))
    assert schema.batch(rows({"A": 1, "c": 2}, star=True)).to_pylist() == [{"a": 1, "missing": None}]


def test_rows_that_do_not_fit_are_dropped_where_that_is_the_policy() -> None:
    schema = declared("a", struct(a=LongType()), misfits="drop")
    batch = schema.batch(rows({"a": 1}, {"a": "x"}, {"a": None}))
    assert batch.to_pylist() == [{"a": 1}, {"a": None}]
    with pytest.raises(OutputError, match="Declare another type"):
        declared("a", struct(a=LongType())).batch(rows({"a": "x"}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (struct(ab=LongType()), "schema has a column 'ab', which the query does not select"),
        (struct(other=LongType()), "which the query does not select; it selects abc, b"),
        (struct(abc=LongType()), "schema lacks b, which the query selects"),
        (StructType([StructField("b", LongType()), StructField("B", LongType())]), "twice"),
        (struct(abc=LongType(), b=StructType([])), None),
        (7, "schema is a StructType or a text"),
    ],
)
def test_a_wrong_schema_is_refused(given: Any, message: str | None) -> None:
    if message is None:
        assert declared("abc, b", given).shown == ("bigint", "struct<>")
        return
    with pytest.raises(JobError) as raised:
        declared("abc, b", given)
    assert message in str(raised.value)


def test_timestamps_of_a_whole_column_lose_their_seventh_digit() -> None:
    schema = declared("t", struct(t=TimestampType()))
    texts = ["2026-01-31T12:00:00.1234567Z", "not a time"]
    with pytest.raises(OutputError, match="is not a time"):
        schema.batch(rows(*({"t": text} for text in texts)))
    one = ResultRows("result", np.array([NOON]), ("t",), (Vector.datetimes(np.array([NOON + 7])),))
    assert schema.batch(one).column(0).to_pylist()[0].isoformat() == "2026-01-31T12:00:00+00:00"
