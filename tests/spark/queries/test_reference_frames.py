"""DataFrames as reference data of `sql` and `stream`."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import tidegate.spark as tidegate_spark
from tests.patience import PATIENCE_S
from tidegate.blobs import BlobError
from tidegate.connectors.model.errors import JobError
from tidegate.spark.queries.reference_frames import FrameTables

pytestmark = pytest.mark.spark

EVENTS = 200
JOINED = """SELECT i.n, r.name, r.price, r.since, r.parts.first AS first, GetArrayElement(r.wheels, 1) AS second
INTO result FROM i TIMESTAMP BY t LEFT JOIN r ON i.device = r.device"""
TABLE = (
    "device bigint, name string, price decimal(9,2), since date, built timestamp, parts map<string,string>, "
    "wheels array<int>, fast boolean"
)
SCHEMA = "n bigint, name string, price double, since timestamp, first string, second bigint"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def table(spark: SparkSession) -> DataFrame:
    """Return three devices out of four."""
    rows = [
        (n, f"press {n}", Decimal(f"{n}.25"), date(2020, 1, n + 1), NOON, {"first": "a" * n}, [n, 10 * n], n > 1)
        for n in range(3)
    ]
    return spark.createDataFrame(rows, TABLE)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    with path.open("w") as file:
        for n in range(EVENTS):
            arrival = f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z"
            body = {"t": arrival, "device": n % 4, "n": n}
            file.write(json.dumps({"partition": n % 2, "arrival": arrival, "body": body}) + "\n")
    return path


def expected() -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for n in range(EVENTS):
        device = n % 4
        known = (f"press {device}", device + 0.25, datetime(2020, 1, device + 1), "a" * device, 10 * device)
        found.append((n, *(known if device < 3 else (None,) * 5)))
    return found


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    naive = [name for name, type_ in frame.dtypes if type_ == "timestamp"]
    utc = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    for name in naive:
        frame = frame.withColumn(name, functions.to_utc_timestamp(name, utc or "UTC").cast("timestamp_ntz"))
    return [tuple(row) for row in frame.orderBy("n").collect()]


def test_a_query_over_history_joins_a_dataframe_with_its_types(spark: SparkSession, log: Path) -> None:
    inputs = {"i": log, "r": tidegate_spark.reference(table(spark))}
    assert rows_of(tidegate_spark.sql(spark, JOINED, inputs=inputs, schema=SCHEMA)) == expected()
    query = "SELECT r.name, r.price, r.since, r.fast INTO result FROM i TIMESTAMP BY t JOIN r ON i.device = r.device"
    derived = tidegate_spark.sql(spark, query, inputs=inputs)
    assert derived.dtypes == [
        ("name", "string"),
        ("price", "double"),
        ("since", "timestamp"),
        ("fast", "boolean"),
    ]
    assert derived.count() == EVENTS * 3 // 4


@pytest.mark.parametrize("placement", [pytest.param("process", marks=pytest.mark.soak), "spark"])
def test_a_stream_joins_it_in_either_placement_and_keeps_it_for_a_restart(
    spark: SparkSession, log: Path, tmp_path: Path, placement: str
) -> None:
    # The table of the second start is of the time it is read, and the log ends before that.
    for frame in (table(spark), table(spark).withColumn("name", functions.lit("another"))):
        query = (
            tidegate_spark.stream(
                spark,
                JOINED,
                inputs={"i": str(log), "r": tidegate_spark.reference(frame)},
                schema=SCHEMA,
                placement=placement,
                max_events_per_step=60,
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .format("parquet")
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(3 * PATIENCE_S)
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == expected()


def test_records_may_be_null_though_their_fields_never_are(spark: SparkSession) -> None:
    records = "(named_struct('part', map('k', named_struct('x', 1))), 1), (NULL, 2)"
    rows = spark.sql(f"SELECT st, n, TIMESTAMP'2026-01-01 00:00:00Z' AS arrival FROM VALUES {records} AS (st, n)")
    inputs = {"i": tidegate_spark.events(rows, arrival="arrival"), "r": tidegate_spark.reference(rows)}
    query = "SELECT i.n, i.st.part.k.x AS own, r.st.part.k.x AS joined INTO result FROM i JOIN r ON i.n = r.n"
    assert rows_of(tidegate_spark.sql(spark, query, inputs=inputs)) == [(1, 1, 1), (2, None, None)]


def test_rows_in_another_order_are_the_same_table_and_others_a_new_one(spark: SparkSession) -> None:
    frames = [table(spark), table(spark).repartition(3), table(spark).where("device > 0")]
    current = frames[0]
    tables = FrameTables(lambda: current, refresh_s=1e-9)
    blobs = []
    for following in frames:
        current = following
        ((blob, at),) = tables.find()
        assert at is None
        blobs.append(blob)
    assert blobs[0] == blobs[1] != blobs[2]
    assert blobs[2].modified > blobs[1].modified


def test_a_table_is_read_once_unless_it_is_to_be_refreshed(spark: SparkSession) -> None:
    calls = 0

    def source() -> DataFrame:
        nonlocal calls
        calls += 1
        return table(spark)

    tables = FrameTables(source, None)
    assert tables.find() == tables.find()
    assert calls == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.select(), "the DataFrame has no columns"),
        (lambda frame: frame.withColumn("span", functions.expr("INTERVAL 1 DAY")), "column 'span' is interval day"),
        (lambda frame: frame.select("name", functions.lit(1).alias("Name")), "has 2 columns 'name'; rename"),
        (lambda frame: "no frame", "the function returned str, expected a DataFrame"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(spark: SparkSession, change: Any, message: str) -> None:
    with pytest.raises(JobError, match=message) as raised:
        tidegate_spark.reference(lambda: change(table(spark)))
    assert "\n" not in str(raised.value)


def test_mistakes_are_one_line(spark: SparkSession, log: Path) -> None:
    nothing: Any = "cars"

    def refusal(reference: Any, query: str = JOINED) -> str:
        with pytest.raises(JobError) as raised:
            tidegate_spark.stream(spark, query, inputs={"i": str(log), "r": reference})
        return str(raised.value)

    assert "or tidegate.spark.reference(df) if it is a table" in refusal(table(spark))
    rate = spark.readStream.format("rate").load()
    with pytest.raises(JobError, match="is a stream, and reference data are a table"):
        tidegate_spark.reference(rate)
    with pytest.raises(JobError, match="refresh_s=0"):
        tidegate_spark.reference(table(spark), refresh_s=0)
    with pytest.raises(JobError, match="expected a DataFrame or a function"):
        tidegate_spark.reference(nothing)
    failing = table(spark).withColumn("price", functions.raise_error(functions.lit("no price")))
    said = refusal(tidegate_spark.reference(failing))
    assert said.startswith("reference data 'r': the DataFrame cannot be read: ")
    assert "no price" in said
    assert "\n" not in said


def test_a_table_that_breaks_later_leaves_the_one_before(spark: SparkSession) -> None:
    current = table(spark)
    tables = FrameTables(lambda: current, refresh_s=1e-9)
    ((before, _),) = tables.find()
    current = current.select()
    with pytest.raises(BlobError, match="no columns"):
        tables.find()
    assert tables.read_blob(before)
