"""Copies a hub to another with a stream: `python -m tests.spark.copy_child STRING FROM TO CHECKPOINT`.

The rows are shuffled before they are written, so that a repeated task has them in another order.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def copying(spark: SparkSession, string: str, source: str, target: str, checkpoint: str) -> StreamingQuery:
    """Start a query that copies what a hub has to another."""
    stream = spark.readStream.format("eventhubs").options(connectionString=string, eventHub=source)
    return (
        stream.option("maxEventsPerTrigger", 3_000)
        .load()
        .select("body")
        .repartition(2, "body")
        .writeStream.format("eventhubs")
        .options(connectionString=string, eventHub=target, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    string, source, target, checkpoint = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2,20]")  # a task may fail 19 times: its Python worker is killed
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    copying(spark, string, source, target, checkpoint).awaitTermination()
