"""Writes to a hub, reads it and queries it, wherever Spark runs: `everywhere_child.py STRING HUB [MASTER|REMOTE]`.

It prints how many events there are and how many differ, in a batch and in a stream; then how many events a query has
counted, and for how many keys. It is run by Python, by `spark-submit`, and with Tidegate in a
zip, so it imports nothing of these tests.
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import SparkSession

from tidegate.spark import sql
from tidegate.spark.source import EventHubsDataSource

QUERY = """SELECT i.id % 10 AS k, COUNT(*) AS n INTO o FROM i GROUP BY i.id % 10, TumblingWindow(second, 5)"""

if __name__ == "__main__":
    string, hub, *where = sys.argv[1:]
    builder = SparkSession.builder.appName("everywhere")
    for place in where:
        builder = builder.remote(place) if place.startswith("sc:") else builder.master(place)
    spark = builder.getOrCreate()
    # Tidegate is found by itself only where it is installed.
    spark.dataSource.register(EventHubsDataSource)
    options = {"connectionString": string, "eventHub": hub}
    rows = spark.range(900).selectExpr("to_json(struct(id)) AS body", "CAST(id % 7 AS string) AS partitionKey")
    rows.write.format("eventhubs").mode("append").options(**options).save()
    events = spark.read.format("eventhubs").options(startingPosition="earliest", **options).load()
    (batch,) = events.selectExpr("count(*)", "count(DISTINCT body)").collect()
    windows = sql(spark, QUERY, inputs={"i": events}).collect()
    with tempfile.TemporaryDirectory() as folder:
        query = (
            spark.readStream.format("eventhubs")
            .options(startingPosition="earliest", **options)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{folder}/events")
        )
        query.awaitTermination()
        (stream,) = spark.read.parquet(f"{folder}/events").selectExpr("count(*)", "count(DISTINCT body)").collect()
    print(*batch, *stream, sum(row.n for row in windows), len({row.k for row in windows}))
    spark.stop()
