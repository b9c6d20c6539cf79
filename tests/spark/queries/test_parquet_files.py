"""Files of Parquet that tasks read themselves give the rows that Spark reads; Spark reads what is more than files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidegate.connectors.model.errors import InputError
from tidegate.spark import events, sql
from tidegate.spark.queries.parquet_files import FileColumn, RowGroup, rows_of, rows_of_group

pytestmark = pytest.mark.spark
SOAK = pytest.mark.soak
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDERING = {"late_arrival_tolerance_s": 20, "out_of_order_tolerance_s": 3}
ALL = "SELECT device, speed, small, fast, photo, at, local, System.Timestamp() AS t INTO o FROM i TIMESTAMP BY at"
WINDOW = "SELECT device, COUNT(*) AS n INTO o FROM i TIMESTAMP BY at GROUP BY device, TumblingWindow(second, 10)"


def table(first: int = 0, count: int = 300) -> pa.Table:
    """Readings of three partitions, some out of order, with NULLs and numbers that are none."""
    n = range(first, first + count)
    arrivals = [NOON + timedelta(milliseconds=400 * one) for one in n]
    times = [at - timedelta(microseconds=one * 7919 % 5_000_000) for one, at in zip(n, arrivals, strict=True)]
    utc = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "part": pa.array([one % 3 for one in n], pa.int32()),
            "number": pa.array([one // 3 for one in n], pa.int32()),
            "arrived": pa.array(arrivals, utc),
            "at": pa.array(times, utc),
            "local": pa.array([None if one % 7 == 0 else datetime(2026, 1, 1, 0, 0, one % 60) for one in n]),
            "device": pa.array([None if one % 11 == 0 else f"dé-{one % 5}" for one in n]),
            "speed": pa.array([float("nan") if one % 13 == 0 else one * 0.1 for one in n]),
            "small": pa.array([one % 100 for one in n], pa.int16()),
            "fast": pa.array([one % 2 == 0 for one in n]),
            "photo": pa.array([bytes([one % 256]) for one in n]),
        }
    )


def rows(spark: SparkSession, frame: DataFrame, query: str = ALL) -> list[str]:
    given = events(frame, arrival="ARRIVED", partition="part", order="number")
    found = sql(spark, query, inputs={"i": given}, event_ordering=ORDERING)
    return sorted(map(str, found.collect()))


def plan(spark: SparkSession, frame: DataFrame, **given: Any) -> str:
    named = {"arrival": "arrived", "partition": "part", "order": "number", **given}
    found = sql(spark, WINDOW, inputs={"i": events(frame, **named)}, event_ordering=ORDERING)
    java: Any = found
    return str(java._jdf.queryExecution().toString())


def in_tasks(plan: str) -> bool:
    """Whether tasks read the files themselves."""
    return "files_of_i" in plan or "parts_of_i" in plan


def by_arrow(folder: Path, spark: SparkSession) -> None:
    folder.mkdir()
    pq.write_table(table(0, 100), folder / "a b%20.parquet", row_group_size=30)
    large = table(100, 200)
    place = large.schema.get_field_index("device")
    large = large.set_column(place, "device", large["device"].cast(pa.large_string()))
    pq.write_table(large, folder / "z.parquet", coerce_timestamps=None, row_group_size=64)
    (folder / "_SUCCESS").touch()


def by_spark(folder: Path, spark: SparkSession) -> None:
    spark.createDataFrame(table()).repartition(3).write.parquet(str(folder))


def by_spark_in_micros(folder: Path, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    try:
        by_spark(folder, spark)
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")


# Files that Spark wrote are in tests/spark/test_frame_inputs.py too.
@pytest.mark.parametrize(
    "write", [by_arrow, *(pytest.param(one, marks=SOAK) for one in (by_spark, by_spark_in_micros))]
)
def test_the_rows_are_those_that_spark_reads(
    spark: SparkSession, tmp_path: Path, write: Callable[[Path, SparkSession], None]
) -> None:
    write(tmp_path / "table", spark)
    spark.conf.set("spark.sql.session.timeZone", "America/Lima")
    try:
        frame = spark.read.parquet(str(tmp_path / "table"))
        assert in_tasks(plan(spark, frame))
        through_spark = frame.where("part IS NOT NULL")
        assert not in_tasks(plan(spark, through_spark))
        assert len(rows(spark, frame)) == 300
        assert rows(spark, frame) == rows(spark, through_spark)
        assert rows(spark, frame, WINDOW) == rows(spark, through_spark, WINDOW)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_what_is_more_than_files_is_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    by_arrow(folder, spark)

    def read(path: Path = folder, **options: Any) -> DataFrame:
        return spark.read.options(**options).parquet(str(path))

    assert in_tasks(plan(spark, read()))
    assert in_tasks(plan(spark, read().alias("readings")))
    cached = read().where("true").cache()
    by_value = tmp_path / "by-value"
    read().write.partitionBy("part").parquet(str(by_value))
    wider = "part bigint, number bigint, arrived timestamp, at timestamp, device string"
    by_spark_alone = {
        "options": read(mergeSchema="true"),
        "filter": read().where("number > 1"),
        "cache": cached,
        "partitions": read(by_value),
        "wider types": spark.read.schema(wider).parquet(str(folder)),
    }
    for reason, frame in by_spark_alone.items():
        assert not in_tasks(plan(spark, frame)), reason
    cached.unpersist()
    assert not in_tasks(plan(spark, read(), arrival=f.col("arrived")))
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        assert not in_tasks(plan(spark, read()))
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_query_with_bounds_leaves_the_choice_of_rows_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    by_arrow(tmp_path / "table", spark)
    given = events(spark.read.parquet(str(tmp_path / "table")), arrival="arrived", partition="part", order="number")
    found: Any = sql(spark, WINDOW, inputs={"i": given}, event_ordering=ORDERING, start=NOON + timedelta(seconds=60))
    assert not in_tasks(str(found._jdf.queryExecution().toString()))


def test_a_file_that_is_gone_or_replaced_is_named_without_a_traceback(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "0.parquet")
    given = events(spark.read.parquet(str(tmp_path)), arrival="arrived", partition="part", order="number")
    found = sql(spark, WINDOW, inputs={"i": given}, event_ordering=ORDERING)
    (tmp_path / "0.parquet").unlink()
    with pytest.raises(PythonException) as caught:
        found.collect()
    assert "0.parquet: the file cannot be read" in str(caught.value)

    pq.write_table(table(0, 10), tmp_path / "0.parquet")
    group = RowGroup(str(tmp_path / "0.parquet"), 0, 300, 100, 1, 300)
    with pytest.raises(InputError, match="was replaced"):
        list(rows_of([group], [FileColumn("number", "number", pa.int64())]))
    with pytest.raises(InputError, match="was replaced"):
        rows_of_group(group, [FileColumn("number", "number", pa.int64())])
