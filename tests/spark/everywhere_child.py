"""Writes to a hub, reads it and queries it, wherever Spark runs: `everywhere_child.py WHAT STRING HUB [MASTER|REMOTE]`.

WHAT is words with commas between them, each of which prints two numbers:

- `batch`, `source`: how many events the data source reads, and how many differ, in a batch and in a stream
- `sql`: how many events a query counts in history, and for how many keys
- `live`: the same for its results in files, without an end until all are counted
- `stream`: the same, up to the end of the log; after `live`, it has nothing to add
- `frame`: the same, of a DataFrame

It is run by Python, by `spark-submit`, and with Tidegate in a zip, so it imports nothing of these tests.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.spark import sql, stream
from tidegate.spark.source import EventHubsDataSource

QUERY = """SELECT i.id % 10 AS k, COUNT(*) AS n INTO o FROM i GROUP BY i.id % 10, TumblingWindow(second, 5)"""


def counted(spark: SparkSession, folder: str) -> tuple[int, int] | None:
    """Return how many events the files of a query count, and for how many keys; None while there are none."""
    if not batches(folder):
        return None
    (row,) = spark.read.parquet(folder).selectExpr("sum(n)", "count(DISTINCT k)").collect()
    # Spark's first batch is empty if there was nothing yet.
    return row[0] or 0, row[1]


def batches(folder: str) -> int:
    """Return how many batches Spark has written; before it has, it does not read their files."""
    return len([path for path in Path(folder, "_spark_metadata").glob("*") if path.name.isdecimal()])


def follow(spark: SparkSession, running: StreamingQuery, folder: str) -> None:
    """Wait until a query has counted everything, and stop it."""
    read, found = 0, None
    while found is None or found[0] < 900:
        assert running.isActive, running.exception()
        time.sleep(0.1)
        # Spark counts only when there is more to count.
        if (written := batches(folder)) > read:
            read, found = written, counted(spark, folder)
    running.stop()


def to_the_end(start: Callable[[], StreamingQuery]) -> None:
    """Run a query to its end, once more if Spark has given its planner's Python ten seconds to begin in vain."""
    for may_try_again in (True, True, False):
        try:
            start().awaitTermination()
            return
        except StreamingQueryException as error:
            if not may_try_again or "Python worker failed to connect back" not in str(error):
                raise


if __name__ == "__main__":
    words, string, hub, *where = sys.argv[1:]
    what = words.split(",")
    # As few partitions as there are cores: Spark's default of 200 is for many events.
    builder = SparkSession.builder.appName("everywhere").config("spark.sql.shuffle.partitions", "2")
    for place in where:
        builder = builder.remote(place) if place.startswith("sc:") else builder.master(place)
    spark = builder.getOrCreate()
    # Tidegate is found by itself only where it is installed.
    spark.dataSource.register(EventHubsDataSource)
    options = {"connectionString": string, "eventHub": hub}
    rows = spark.range(900).selectExpr("to_json(struct(id)) AS body", "CAST(id % 7 AS string) AS partitionKey")
    rows.write.format("eventhubs").mode("append").options(**options).save()
    events = spark.read.format("eventhubs").options(startingPosition="earliest", **options).load()
    if "batch" in what:
        print(*events.selectExpr("count(*)", "count(DISTINCT body)").collect()[0])
    if "sql" in what:
        windows = sql(spark, QUERY, inputs={"i": events}).collect()
        print(sum(row.n for row in windows), len({row.k for row in windows}))
    with tempfile.TemporaryDirectory() as folder:
        if "source" in what:
            source = (
                spark.readStream.format("eventhubs")
                .options(startingPosition="earliest", **options)
                .load()
                .writeStream.format("parquet")
                .option("checkpointLocation", f"{folder}/checkpoint")
                .trigger(availableNow=True)
            )
            to_the_end(lambda: source.start(f"{folder}/events"))
            passed_on = spark.read.parquet(f"{folder}/events")
            print(*passed_on.selectExpr("count(*)", "count(DISTINCT body)").collect()[0])
        counts = f"{folder}/counts"
        for form in ("live", "stream"):
            if form not in what:
                continue
            writer = stream(spark, QUERY, inputs={"i": options}, placement="spark", schema="k bigint, n bigint")
            writer = writer.option("checkpointLocation", f"{folder}/of-query").format("parquet")
            if form == "live":
                follow(spark, writer.start(counts), counts)
            else:
                # After a live query, this one has nothing to add.
                writer.trigger(availableNow=True).start(counts).awaitTermination()
            print(*(counted(spark, counts) or ()))
        if "frame" in what:
            writer = stream(spark, QUERY, inputs={"i": events}, placement="spark", schema="k bigint, n bigint")
            writer = writer.option("checkpointLocation", f"{folder}/of-frame").format("parquet")
            writer.start(f"{folder}/of-rows").awaitTermination()
            print(*(counted(spark, f"{folder}/of-rows") or ()))
    spark.stop()
