"""Writes to a hub and reads it, wherever Spark runs: `everywhere_child.py STRING HUB [MASTER|REMOTE]`.

It prints how many events there are and how many differ. It is run by Python, by `spark-submit`, and with Tidegate in a
zip, so it imports nothing of these tests.
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import SparkSession

from tidegate.spark.source import EventHubsDataSource

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
    print(*batch, *stream)
    spark.stop()
